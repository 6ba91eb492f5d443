"""Findings as SARIF 2.1.0, the form in which forges and editors take the results of checks.

Source: OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0"; what GitHub needs of it besides is in
its documentation, "SARIF support for code scanning".
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fastexport._codes import EXPLANATIONS
from fastexport._command.formats.common import described, level_of
from fastexport._remote import is_url
from fastexport._terminal import one_line, write_json

if TYPE_CHECKING:
    from fastexport._command.sources import Sources
    from fastexport._findings import FileReport, Finding

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def write(reports: Iterable[FileReport], sources: Sources, *, quiet: bool) -> None:
    """The log, when all files are known."""
    del quiet
    run = _Run(sources)
    for report in reports:
        run.add(report)
    write_json({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run.to_json()]})


class _Run:
    """The run of a log: rules are those of the results, in the order in which they come up."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._rules: dict[str, dict[str, Any]] = {}
        self._results: list[dict[str, Any]] = []
        self._notifications: list[dict[str, Any]] = []
        self._artifacts: list[dict[str, Any]] = []
        self._fingerprints: Counter[str] = Counter()

    def add(self, report: FileReport) -> None:
        """What was found in one file; one that can't be read is no result but trouble of the tool."""
        path = self._sources.relative(report.path)
        self._artifacts.append({"location": _artifact(path), "roles": ["analysisTarget"]})
        for finding in report.findings:
            if report.unreadable:
                self._notifications.append(_notification(path, finding))
            else:
                self._results.append(self._result(path, finding))

    def to_json(self) -> dict[str, Any]:
        """The run as SARIF has it."""
        from fastexport import __version__

        driver = {"name": "fastexport", "version": __version__, "rules": list(self._rules.values())}
        invocation: dict[str, Any] = {"executionSuccessful": not self._notifications}
        if self._notifications:
            invocation["toolExecutionNotifications"] = self._notifications
        return {
            "tool": {"driver": driver},
            "invocations": [invocation],
            "artifacts": self._artifacts,
            "results": self._results,
            "columnKind": "unicodeCodePoints",
        }

    def _result(self, path: str, finding: Finding) -> dict[str, Any]:
        fault, place = finding.fault, self._sources.place(finding)
        if fault.code not in self._rules:
            self._rules[fault.code] = _rule(fault.code, fault.kind)
        # GitHub wants a line, also of what has none.
        archive = {"physicalLocation": {"artifactLocation": _artifact(path), "region": {"startLine": 1}}}
        location: dict[str, Any] = archive
        result: dict[str, Any] = {
            "ruleId": fault.code,
            "ruleIndex": list(self._rules).index(fault.code),
            "level": level_of(fault),
            "message": {"text": described(finding)},
        }
        if place is not None and place.exists:
            region = {"startLine": place.line}
            location = {"physicalLocation": {"artifactLocation": _artifact(place.file), "region": region}}
            result["relatedLocations"] = [{**archive, "id": 1, "message": {"text": f"the file {one_line(path)}"}}]
            result["message"]["text"] = f"{one_line(path)}: {described(finding)}"
        logical = _logical(finding)
        result["locations"] = [{**location, "logicalLocations": [logical]} if logical else location]
        result["partialFingerprints"] = {"fastexport/v1": self._fingerprint(path, finding)}
        return result

    def _fingerprint(self, path: str, finding: Finding) -> str:
        """The same for the same finding in the next export of the model: by code, file, and node or place."""
        fault = finding.fault
        text = "\0".join((fault.code, path, fault.entry or "", fault.node or fault.json_path or ""))
        digest = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:32]
        self._fingerprints[digest] += 1
        return f"{digest}:{self._fingerprints[digest]}"


def _rule(code: str, kind: str) -> dict[str, Any]:
    page = EXPLANATIONS[code]
    return {
        "id": code,
        "name": kind,
        "shortDescription": {"text": page.meaning},
        "fullDescription": {"text": page.why},
        "help": {"text": f"{page.why}\n\nExample: {page.example}\n\nWhat to do: {page.remedy}"},
    }


def _notification(path: str, finding: Finding) -> dict[str, Any]:
    return {
        "level": "error",
        "message": {"text": described(finding)},
        "descriptor": {"id": finding.fault.code},
        "locations": [{"physicalLocation": {"artifactLocation": _artifact(path)}}],
    }


def _artifact(path: str) -> dict[str, str]:
    """A path as a URI: a relative one stays so, and forges read it from the root of the repository."""
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError:  # what another machine called a file
        name = path.encode("utf-8", "backslashreplace")
    if is_url(path):
        return {"uri": quote(name, "/:?#[]@!$&'()*+,;=%")}
    return {"uri": f"file://{quote(name)}" if os.path.isabs(path) else quote(name)}


def _logical(finding: Finding) -> dict[str, str]:
    """The node by the path of its module."""
    if not finding.fault.node:
        return {"fullyQualifiedName": one_line(finding.module), "kind": "module"} if finding.module else {}
    name = one_line(finding.fault.node)
    whole = f"{one_line(finding.module)}.{name}" if finding.module else name
    return {"name": name, "fullyQualifiedName": whole, "kind": "object"}
