"""What the forms share: words for a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fastexport._terminal import one_line

if TYPE_CHECKING:
    from fastexport._command.sources import Place
    from fastexport._errors import Fault
    from fastexport._findings import Finding


def level_of(fault: Fault) -> Literal["error", "warning"]:
    """The severity of a fault in a word, which is the same in all forms."""
    return "error" if fault.is_error else "warning"


def described(finding: Finding) -> str:
    """Where in the file, and what; on one line, with nothing hidden in it."""
    fault = finding.fault
    where = " ".join(part for part in (fault.entry, fault.json_path, fault.node and f"node {fault.node}") if part)
    return one_line(f"{where}: {fault.message}" if where else fault.message)


def origin(finding: Finding, place: Place) -> str:
    """Where in the model, as a person is told of it."""
    function = f" in {place.function}" if place.function else ""
    module = f", module {finding.module}" if finding.module else ""
    return one_line(f"{place.file}:{place.line}{function}{module}")
