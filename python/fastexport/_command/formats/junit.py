"""Findings as JUnit's XML: a test case a file, which fails for its errors; warnings are told in its output.

Source: the form that JUnit's task of Apache Ant writes, as Jenkins and GitLab read it. XML 1.0 has no way to say most
control characters, nor half of a surrogate pair: they are written as escapes like \\x1b.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape as escape_xml
from xml.sax.saxutils import quoteattr

from fastexport._command.formats.common import described, level_of, origin
from fastexport._terminal import one_line, write_markup

if TYPE_CHECKING:
    from fastexport._command.sources import Sources
    from fastexport._findings import FileReport, Finding

_INVALID = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write(reports: Iterable[FileReport], sources: Sources, *, quiet: bool) -> None:
    """The document, when all files are known."""
    del quiet
    cases = list(reports)
    failures = sum(bool(report.errors) and not report.unreadable for report in cases)
    errors = sum(report.unreadable for report in cases)
    counts = f'tests="{len(cases)}" failures="{failures}" errors="{errors}"'
    print('<?xml version="1.0" encoding="utf-8"?>')
    print(f'<testsuites name="fastexport check" {counts}>')
    print(f'  <testsuite name="fastexport check" {counts} skipped="0">')
    for report in cases:
        write_markup(_case(report, sources))
    print("  </testsuite>\n</testsuites>")


def _case(report: FileReport, sources: Sources) -> str:
    path = sources.relative(report.path)
    folder, _, name = path.rpartition("/")
    head = f"    <testcase classname={_attribute(folder or '.')} name={_attribute(name)} file={_attribute(path)}"
    errors = [finding for finding in report.findings if finding.fault.is_error]
    warnings = [finding for finding in report.findings if not finding.fault.is_error]
    parts = []
    if errors:
        kind = "error" if report.unreadable else "failure"
        message, code = _attribute(described(errors[0])), _attribute(errors[0].fault.code)
        parts.append(f"      <{kind} message={message} type={code}>{_text(errors, sources)}</{kind}>")
    if warnings:
        parts.append(f"      <system-out>{_text(warnings, sources)}</system-out>")
    return "\n".join([f"{head}>", *parts, "    </testcase>"]) if parts else f"{head}/>"


def _text(findings: list[Finding], sources: Sources) -> str:
    lines = []
    for finding in findings:
        place = sources.place(finding)
        lines.append(f"{level_of(finding.fault)} {finding.fault.code} {described(finding)}")
        lines += [f"    at {origin(finding, place)}"] if place is not None else []
    return escape_xml(_valid("\n".join(lines)))


def _attribute(text: str) -> str:
    return quoteattr(_valid(one_line(text)))


def _valid(text: str) -> str:
    return _INVALID.sub(lambda match: ascii(match.group())[1:-1], text)
