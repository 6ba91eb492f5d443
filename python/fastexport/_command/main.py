"""Running a command line: what goes wrong becomes a message and an exit code."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Any

from fastexport._command.exits import INTERNAL, INTERRUPTED, NO_READER, UNREADABLE, Refused
from fastexport._command.output import closed


class _Closed(io.TextIOBase):
    """Standard output that is closed: whoever writes is told so, since nobody will read it."""

    def write(self, text: object) -> int:
        raise closed()

    @property
    def buffer(self) -> Any:
        """Where bytes are written."""
        return self


def console() -> int:
    """What the command fastexport, and python -m fastexport, run: the command line of the process."""
    try:
        from fastexport._command.interrupts import watch

        if sys.stdout is None:  # closed by whoever started us
            sys.stdout = _Closed()
        if sys.stderr is None:
            sys.stderr = open(os.devnull, "w")
        watch()
        return main()
    except KeyboardInterrupt:  # outside of what main() watches over
        return INTERRUPTED


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line.

    Args:
        argv: the arguments; those of the process when None.

    Returns:
        The exit code.
    """
    from fastexport._errors import FastExportError
    from fastexport._terminal import complain, tell

    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure:
        reconfigure(errors="backslashreplace")  # what the terminal's encoding lacks
    try:
        return _run(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError as error:
        return _reader_gone(error)
    except Refused as refusal:
        complain(refusal)
        return refusal.code
    except (FastExportError, OSError) as error:
        complain(_words_of(error))
        return UNREADABLE
    except MemoryError:
        complain("there is not enough memory")
        return UNREADABLE
    except SystemExit as stop:  # argparse's
        return stop.code if isinstance(stop.code, int) else UNREADABLE
    except Exception as error:
        import traceback

        tell(traceback.format_exc())
        complain(f"this is an error of fastexport itself, please report it: {error}")
        return INTERNAL


def _reader_gone(error: BrokenPipeError) -> int:
    """The reader of our output has gone, as `head` does: no word of it. Of an output that was named it is an error."""
    from fastexport._command.output import is_stdout
    from fastexport._terminal import complain

    if error.filename is not None and not is_stdout(error.filename):
        complain(_words_of(error))
        return UNREADABLE
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return NO_READER


def _words_of(error: Exception) -> str:
    """What is said of an error; of the system's, of a file, what other commands say."""
    from fastexport._errors import FastExportError

    if not isinstance(error, OSError) or isinstance(error, FastExportError):
        return str(error)
    has_path = error.filename is not None and error.strerror
    if has_path:
        return f"{os.fsdecode(error.filename) or repr('')}: {error.strerror}"
    return error.strerror or str(error)


def _run(argv: Sequence[str]) -> int:
    from fastexport._command.verbs import parser

    try:
        options = parser(argv).parse_args(argv)
    except SystemExit:
        sys.stdout.flush()  # help that can't be written is an error, as all output
        raise
    if getattr(options, "output_file", None) in (None, "-"):
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    from contextlib import redirect_stdout
    from io import StringIO

    from fastexport._command.output import check_output, check_two
    from fastexport._new_file import write_file

    check_output(options.output_file, _inputs(options))
    for name in ("output", "safetensors"):
        check_two(options.output_file, getattr(options, name, None))
    text = StringIO()
    with redirect_stdout(text):
        code = options.run(options)
    write_file(options.output_file, text.getvalue().encode("utf-8", "backslashreplace"))
    return code


def _inputs(options: Any) -> list[str]:
    """The files that a command line reads."""
    named = [getattr(options, name, None) for name in ("file", "other", "a", "b")]
    patterns = getattr(options, "files", ())
    if patterns:
        from fastexport._command.batch import named_files

        return named_files(patterns)
    return list(filter(None, named))
