"""Findings as one JSON document; see schemas/check-1.json."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fastexport._command.formats.common import level_of
from fastexport._command.output import write_document

if TYPE_CHECKING:
    from fastexport._command.sources import Sources
    from fastexport._findings import FileReport, Finding


def write(reports: Iterable[FileReport], sources: Sources, *, quiet: bool) -> None:
    """The document, when all files are known."""
    del quiet  # a script wants all files
    files = [report_json(report, sources) for report in reports]
    findings = [finding for file in files for finding in file["findings"]]
    summary = {
        "files": len(files),
        "unreadable": sum(file["status"] == "unreadable" for file in files),
        "errors": sum(finding["level"] == "error" for finding in findings),
        "warnings": sum(finding["level"] == "warning" for finding in findings),
    }
    write_document("check", {"files": files, "summary": summary})


def report_json(report: FileReport, sources: Sources) -> dict[str, Any]:
    """One file of the document."""
    findings = [_finding_json(finding, sources) for finding in report.findings]
    return {"path": report.path, "status": report.status, "findings": findings}


def _finding_json(finding: Finding, sources: Sources) -> dict[str, Any]:
    fault, place = finding.fault, sources.place(finding)
    return {
        "code": fault.code,
        "kind": fault.kind,
        "level": level_of(fault),
        "message": fault.message,
        "entry": fault.entry,
        "json_path": fault.json_path,
        "node": fault.node,
        "module": finding.module,
        "source": None if place is None else place._asdict(),
    }
