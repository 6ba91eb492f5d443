"""Findings as JSON lines: a document a file, with the file as the only one in it, as soon as it is known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fastexport._command.formats.json import report_json
from fastexport._command.output import write_line

if TYPE_CHECKING:
    from fastexport._command.sources import Sources
    from fastexport._findings import FileReport


def write(reports: Iterable[FileReport], sources: Sources, *, quiet: bool) -> None:
    """A line a file."""
    for report in reports:
        if report.findings or not quiet:
            write_line("check", {"files": [report_json(report, sources)]})
