"""Findings as workflow commands of GitHub, which it shows beside the lines of a pull request.

Source: GitHub's documentation, "Workflow commands for GitHub Actions". What has a meaning in a command is written as
%XX, as the toolkit of GitHub's own actions does it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fastexport._command.formats.common import described, level_of
from fastexport._terminal import one_line

if TYPE_CHECKING:
    from fastexport._command.sources import Sources
    from fastexport._findings import FileReport, Finding


def write(reports: Iterable[FileReport], sources: Sources, *, quiet: bool) -> None:
    """A command for each finding; nothing where there is none."""
    del quiet
    for report in reports:
        path = sources.relative(report.path)
        for finding in report.findings:
            print(_command(path, finding, sources), flush=True)


def _command(path: str, finding: Finding, sources: Sources) -> str:
    place, fault = sources.place(finding), finding.fault
    properties = {"file": path}
    message = described(finding)
    if place is not None and place.exists:
        properties = {"file": place.file, "line": str(place.line)}
        message = f"{one_line(path)}: {message}"
    properties["title"] = f"{fault.code} {fault.kind}"
    listed = ",".join(f"{name}={escape_property(one_line(value))}" for name, value in properties.items())
    return f"::{level_of(fault)} {listed}::{escape_message(message)}"


def escape_message(text: str) -> str:
    r"""The text behind the second "::".

    >>> escape_message("100%\nend")
    '100%25%0Aend'
    """
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(text: str) -> str:
    """The value of a property.

    >>> escape_property("C:a,b")
    'C%3Aa%2Cb'
    """
    return escape_message(text).replace(":", "%3A").replace(",", "%2C")
