"""The exceptions of fastexport, and the faults that lint reports."""

from __future__ import annotations

from typing import NamedTuple


class FastExportError(Exception):
    """The base of every error that is fastexport's own."""


class LintFault(NamedTuple):
    """One fault of a graph.

    Attributes:
        code: the kind of fault, such as ``"UNDEFINED_OPERAND"``.
        node: the name of the node at fault.
        operand: the name of the other node involved, or None.
        message: what is wrong, where, and what to do about it.
    """

    code: str
    node: str
    operand: str | None
    message: str


class LintError(FastExportError, RuntimeError):
    """A graph breaks a rule; torch.fx raises RuntimeError for the same.

    Attributes:
        faults: the faults found, as `LintFault`; the message is that of the first.
    """

    def __init__(self, faults: list[LintFault]) -> None:
        super().__init__(faults[0].message if faults else "the graph is malformed")
        self.faults = faults

    def __reduce__(self) -> tuple[type[LintError], tuple[list[LintFault]]]:
        return type(self), (self.faults,)


class LintTargetError(LintError, ValueError):
    """A node has a target of the wrong type; torch.fx raises ValueError for it."""


def lint_error(faults: list[LintFault]) -> LintError:
    """The exception for some faults, of the class torch.fx would raise for the first."""
    return (LintTargetError if faults and faults[0].code == "TARGET_TYPE" else LintError)(faults)
