"""Findings for people: a line each, with the line of the model's source under it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fastexport._command.formats.common import described, level_of, origin
from fastexport._terminal import colour, complain, emit, one_line

if TYPE_CHECKING:
    from fastexport._command.sources import Sources
    from fastexport._findings import FileReport

_RED, _YELLOW, _GREY = 31, 33, 90


def write(reports: Iterable[FileReport], sources: Sources, *, quiet: bool) -> None:
    """Each file as it becomes known; those that can't be read are told of on stderr."""
    for report in reports:
        if report.unreadable:
            complain(f"{report.path}: {described(report.findings[0])}")
        else:
            _write_report(report, sources, quiet)
        sys.stdout.flush()


def _write_report(report: FileReport, sources: Sources, quiet: bool) -> None:
    path = one_line(report.path)
    for finding in report.findings:
        severity = colour(level_of(finding.fault), _RED if finding.fault.is_error else _YELLOW, sys.stdout)
        emit(f"{path}: {severity} {finding.fault.code} {described(finding)}")
        place = sources.place(finding)
        if place is not None:
            emit(colour(f"    at {origin(finding, place)}", _GREY, sys.stdout))
    if report.findings:
        errors, warnings = report.errors, len(report.findings) - report.errors
        emit(f"{path}: {_count(errors, 'error')}, {_count(warnings, 'warning')}")
    elif not quiet:
        emit(f"{path}: ok")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
