"""The command line: fastexport VERB FILE. Data goes to stdout, progress and errors to stderr.

Exit codes: 0 clean or same, 1 findings or different, 2 wrong usage or an unreadable file, 3 an error of our own.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

CLEAN, FOUND, UNREADABLE, INTERNAL, INTERRUPTED = 0, 1, 2, 3, 130

_EPILOG = "Exit codes: 0 clean or same, 1 findings or different, 2 usage or unreadable file, 3 internal error."


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line.

    Args:
        argv: the arguments; those of the process when None.

    Returns:
        The exit code.
    """
    from fastexport._errors import FastExportError

    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w"))
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure:
        reconfigure(errors="backslashreplace")  # what the terminal's encoding lacks
    try:
        options = _parser().parse_args(argv)
        code = options.run(options)
        sys.stdout.flush()
        return int(code)
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLEAN
    except KeyboardInterrupt:
        return INTERRUPTED
    except (FastExportError, OSError) as error:
        _complain(error)
        return UNREADABLE
    except SystemExit as stop:  # argparse's
        return stop.code if isinstance(stop.code, int) else UNREADABLE
    except Exception as error:
        import traceback

        traceback.print_exc()
        _complain(f"this is an error of fastexport itself, please report it: {error}")
        return INTERNAL


def _complain(message: object) -> None:
    from fastexport._terminal import escape

    print(f"fastexport: {escape(str(message))}", file=sys.stderr)


# ---- the parser ----------------------------------------------------------------------------------


class _Formatter(argparse.HelpFormatter):
    """argparse's own asks shutil for the width, which takes longer to import than most of our work takes."""

    def __init__(self, prog: str) -> None:
        try:
            columns = int(os.environ.get("COLUMNS") or os.get_terminal_size().columns)
        except (OSError, ValueError):
            columns = 80
        super().__init__(prog, width=columns - 2)


def _parser() -> argparse.ArgumentParser:
    from fastexport import __version__

    parser = argparse.ArgumentParser(
        prog="fastexport",
        formatter_class=_Formatter,
        description="Open, check, compare and change .pt2 files of torch.export, without torch.",
        epilog=_EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"fastexport {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True, prog="fastexport")

    show = _verb(verbs, "show", "print the program", _show)
    show.add_argument("file", metavar="FILE")
    what = show.add_mutually_exclusive_group()
    what.add_argument("--signature", action="store_true", help="inputs, outputs and ranges only")
    what.add_argument("--summary", action="store_true", help="a few lines about the whole")
    what.add_argument("--table", action="store_true", help="the nodes as a table")
    what.add_argument("--tree", action="store_true", help="the modules, repeats folded")
    what.add_argument("--node", metavar="NAME", help="one node with its meta")
    what.add_argument("--subgraph", metavar="PATH", help="the text of one subgraph, such as true_graph_0")
    _common(show)

    stats = _verb(verbs, "stats", "counts and sizes, a column a file", _stats)
    stats.add_argument("files", metavar="FILE", nargs="+")
    _common(stats)

    check = _verb(verbs, "check", "list everything that is wrong", _check)
    check.add_argument("files", metavar="FILE", nargs="+")
    check.add_argument("--strict", action="store_true", help="also what torch's exporter would not have written")
    check.add_argument("--no-weights", action="store_true", help="don't read the weights to check their CRCs")
    check.add_argument("--select", metavar="CODES", help="only findings whose code starts so: FX1,FX301")
    check.add_argument("--ignore", metavar="CODES", help="no findings whose code starts so")
    _common(check)

    explain = _verb(verbs, "explain", "what a finding's code means", _explain)
    explain.add_argument("code", metavar="CODE", nargs="?")

    diff = _verb(verbs, "diff", "compare two programs", _diff)
    diff.add_argument("a", metavar="A")
    diff.add_argument("b", metavar="B")
    _common(diff)

    opt = _verb(verbs, "opt", "run passes and save the result", _opt)
    opt.add_argument("file", metavar="IN")
    opt.add_argument("-o", "--output", metavar="OUT", required=True)
    opt.add_argument("--passes", metavar="A,B", required=True, help="eliminate_getitems,eliminate_dead_code,lint")
    _common(opt)

    extract = _verb(verbs, "extract", "write one entry of the archive", _extract)
    extract.add_argument("file", metavar="FILE")
    extract.add_argument("entry", metavar="ENTRY", nargs="?", help="without it, the names and sizes of all entries")
    extract.add_argument("-o", "--output", metavar="OUT", help="a file instead of stdout")
    _common(extract)

    weights = _verb(verbs, "weights", "list weights and constants, or show one", _weights)
    weights.add_argument("file", metavar="FILE")
    weights.add_argument("name", metavar="NAME", nargs="?")
    _common(weights)
    return parser


def _verb(verbs: Any, name: str, text: str, run: Callable[[Any], int]) -> argparse.ArgumentParser:
    description = f"{text[0].upper()}{text[1:]}."
    parser: argparse.ArgumentParser = verbs.add_parser(
        name, help=text, description=description, formatter_class=_Formatter
    )
    parser.set_defaults(run=run)
    return parser


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.add_argument("--model", metavar="NAME", help="which model, of a file with several")


def _load(options: Any, path: str | None = None, *, verify: bool = False, model: str | None = None) -> Any:
    from fastexport._errors import FormatError
    from fastexport._program import load

    name = path if path is not None else options.file
    source = sys.stdin.buffer.read() if name == "-" else name
    try:
        return load(source, verify=verify, model=model or options.model)
    except FormatError as error:
        error.args = (f"{name}: {error}",)  # of several files, which
        raise


# ---- the verbs -----------------------------------------------------------------------------------


def _show(options: Any) -> int:
    from fastexport import _show

    return _show.show(_load(options), options)


def _stats(options: Any) -> int:
    from fastexport import _show

    return _show.stats([(path, _load(options, path)) for path in options.files], options)


def _weights(options: Any) -> int:
    from fastexport import _show

    return _show.weights(_load(options), options)


def _check(options: Any) -> int:
    from fastexport import _check

    return _check.check(options, lambda path, model: _load(options, path, model=model))


def _explain(options: Any) -> int:
    from fastexport import _check

    return _check.explain(options)


def _diff(options: Any) -> int:
    from fastexport import _compare

    return _compare.diff(_load(options, options.a), _load(options, options.b), options)


def _opt(options: Any) -> int:
    from fastexport import _terminal
    from fastexport._passes import run_passes

    program = _load(options, verify=True)
    names = [name.strip() for name in options.passes.split(",") if name.strip()]
    try:
        if not names:
            raise ValueError("--passes names no pass")
        results = run_passes(program.graph, names)
    except ValueError as error:
        _complain(error)
        return UNREADABLE
    program.save(options.output)
    rows = [
        {
            "pass": result.name,
            "removed": len(result.removed),
            "replaced": len(result.replaced),
            "seconds": result.seconds,
        }
        for result in results
    ]
    if options.json:
        _terminal.write_json({"output": options.output, "passes": rows})
    else:
        for row in rows:
            _terminal.write(f"{row['pass']}: {row['removed']} removed, {row['replaced']} replaced")
    return CLEAN


def _extract(options: Any) -> int:
    from fastexport import _terminal
    from fastexport._program import open_archive

    archive = open_archive(sys.stdin.buffer.read() if options.file == "-" else options.file)
    if options.entry is None:
        entries = [{"name": name, "size": size} for name, size, _, _ in archive.entries()]
        if options.json:
            _terminal.write_json(entries)
        else:
            _terminal.write_table([(str(entry["size"]), str(entry["name"])) for entry in entries], right=(0,))
        return CLEAN
    try:
        data = archive.read(options.entry)
    except KeyError:
        _complain(f"{options.file} has no entry {options.entry!r}; `fastexport extract {options.file}` lists them")
        return UNREADABLE
    if options.output:
        from fastexport._terminal import write_file

        write_file(options.output, data)
    else:
        sys.stdout.buffer.write(data)
    return CLEAN
