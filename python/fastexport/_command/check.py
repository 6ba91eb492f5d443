"""fastexport check: everything that is wrong with files, in the form that people, scripts or a forge want."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

from fastexport._command.arguments import add_jobs, add_model, add_output_format, names
from fastexport._command.batch import each_file, named_files
from fastexport._command.exits import CLEAN, FOUND, UNREADABLE, Refused
from fastexport._command.files import source_of
from fastexport._command.sources import Sources
from fastexport._findings import FileReport, Finding, check_file
from fastexport._terminal import Progress, is_terminal


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    parser.add_argument("files", metavar="FILE", nargs="+", help='files, folders or patterns; "-" is standard input')
    parser.add_argument("--strict", action="store_true", help="also what torch's exporter would not have written")
    parser.add_argument("--no-weights", action="store_true", help="don't read the weights to check their CRCs")
    parser.add_argument(
        "--select",
        metavar="CODES",
        help="only findings whose code starts so: FX1,FX301; a file that can't be opened is told of anyhow",
    )
    parser.add_argument("--ignore", metavar="CODES", help="no findings whose code starts so")
    parser.add_argument(
        "--fail-on", metavar="WHAT", help='exit 1 also for warnings: "warning" for all, or codes (FX304,FX502)'
    )
    parser.add_argument("--exit-zero", action="store_true", help="exit 0 in spite of findings")
    parser.add_argument("-q", "--quiet", action="store_true", help="nothing about files without findings")
    parser.add_argument(
        "--source-root",
        metavar="DIR",
        type=_folder,
        default=".",
        help="where the model's source is (default: the current folder)",
    )
    add_output_format(parser, "text", "json", "jsonl", "github", "sarif", "junit")
    add_jobs(parser)
    add_model(parser)


def _folder(path: str) -> str:
    if not os.path.isdir(path):
        raise argparse.ArgumentTypeError(f"there is no folder {path!r}")
    return path


def run(options: Any) -> int:
    """Check the files; what can't be read is a finding, too, and the rest goes on."""
    rules = _Rules(options)
    rules.check()
    files = named_files(options.files)
    reports = each_file(partial(_check_one, options, len(files) == 1), files, options.jobs)
    writer = import_module(f"fastexport._command.formats.{options.output_format}")
    writer.write(rules.applied(reports), Sources(options.source_root), quiet=options.quiet)
    return rules.code


def _check_one(options: Any, is_only: bool, path: str) -> FileReport:
    """The report on one file; when it is the only one, with a bar for weights that take their time."""
    bar = _Bar(path) if is_only and not options.no_weights and is_terminal(sys.stderr) else None
    source = source_of(path)
    report = check_file(
        path,
        data=None if source is path else source,
        model=options.model,
        level="strict" if options.strict else "lenient",
        weights=not options.no_weights,
        progress=bar,
    )
    if bar is not None:
        bar.close()
    return report


class _Bar(Progress):
    """A bar that is told how much is done of how much."""

    def __init__(self, label: str) -> None:
        super().__init__(label, 1)

    def __call__(self, done: int, total: int) -> None:
        self.total = total
        self.add(done - self.done)


class _Rules:
    """Which findings count, and what the exit code becomes by them."""

    def __init__(self, options: Any) -> None:
        self._select = _codes(options.select)
        self._ignore = _codes(options.ignore)
        wanted = _codes(options.fail_on)
        self._fail_on = tuple(code for code in wanted if code not in ("ERROR", "WARNING"))
        self._fail_on_all = "WARNING" in wanted
        self._exit_zero = options.exit_zero
        self.code = CLEAN

    def check(self) -> None:
        """See that each code that was named begins one that there is."""
        from fastexport import _core

        given = {"--select": self._select, "--ignore": self._ignore, "--fail-on": self._fail_on}
        for option, prefix in ((option, prefix) for option, prefixes in given.items() for prefix in prefixes):
            if not any(code.startswith(prefix) for code in _core.fault_kinds()):
                word = ', and "warning" is the word for all' if option == "--fail-on" else ""
                raise Refused(f"{option}: no code begins with {prefix!r}{word}; `fastexport explain` lists the codes")

    def applied(self, reports: Iterable[FileReport]) -> Iterator[FileReport]:
        """The reports with the findings that count."""
        for report in reports:
            wanted = report._replace(findings=list(filter(self._counts, report.findings))) if report.opened else report
            if report.unreadable:
                self.code = UNREADABLE
            elif self.code == CLEAN and not self._exit_zero and any(map(self._fails, wanted.findings)):
                self.code = FOUND
            yield wanted

    def _counts(self, finding: Finding) -> bool:
        code = finding.fault.code
        return (not self._select or code.startswith(self._select)) and not (
            self._ignore and code.startswith(self._ignore)
        )

    def _fails(self, finding: Finding) -> bool:
        fault = finding.fault
        return fault.is_error or self._fail_on_all or bool(self._fail_on and fault.code.startswith(self._fail_on))


def _codes(text: str | None) -> tuple[str, ...]:
    return tuple(name.upper() for name in names(text))
