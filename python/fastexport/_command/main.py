"""Running a command line: what goes wrong becomes a message and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from fastexport._command.exits import CLEAN, INTERNAL, INTERRUPTED, UNREADABLE


def console() -> int:
    """What the command fastexport, and python -m fastexport, run: the command line of the process."""
    from fastexport._command.interrupts import watch

    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w"))
    watch()
    return main()


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line.

    Args:
        argv: the arguments; those of the process when None.

    Returns:
        The exit code.
    """
    from fastexport._errors import FastExportError
    from fastexport._terminal import complain, escape, inert

    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure:
        reconfigure(errors="backslashreplace")  # what the terminal's encoding lacks
    try:
        return _run(sys.argv[1:] if argv is None else argv)
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLEAN
    except KeyboardInterrupt:
        return INTERRUPTED
    except (FastExportError, OSError) as error:
        complain(error)
        return UNREADABLE
    except SystemExit as stop:  # argparse's
        return stop.code if isinstance(stop.code, int) else UNREADABLE
    except Exception as error:
        import traceback

        print(inert(escape(traceback.format_exc())), file=sys.stderr)
        complain(f"this is an error of fastexport itself, please report it: {error}")
        return INTERNAL


def _run(argv: Sequence[str]) -> int:
    from fastexport._command.verbs import parser

    options = parser(argv).parse_args(argv)
    if getattr(options, "output_file", None) in (None, "-"):
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    from contextlib import redirect_stdout
    from io import StringIO

    from fastexport._command.interrupts import writing
    from fastexport._command.output import check_output
    from fastexport._new_file import write_file

    check_output(options.output_file, _inputs(options))
    text = StringIO()
    with redirect_stdout(text):
        code = options.run(options)
    with writing:
        write_file(options.output_file, text.getvalue().encode("utf-8", "backslashreplace"))
    return code


def _inputs(options: Any) -> list[str]:
    """The files that a command line reads."""
    named = [getattr(options, name, None) for name in ("file", "other", "a", "b")]
    return [*filter(None, named), *getattr(options, "files", ())]
