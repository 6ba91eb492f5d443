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


class Fault(NamedTuple):
    """One thing that is wrong, or worth a look, in a program or the file that holds it.

    Attributes:
        code: a stable code, such as ``"FX302"``.
        kind: its name, such as ``"name"``.
        is_error: an error, or a warning.
        entry: the entry of the archive, such as ``"models/model.json"``, or None.
        json_path: where in that entry, such as ``"$.graph_module.graph.nodes[3].target"``, or None.
        node: the name of the node at fault, or None.
        message: what is wrong and what to do about it.
    """

    code: str
    kind: str
    is_error: bool
    entry: str | None
    json_path: str | None
    node: str | None
    message: str

    def __str__(self) -> str:
        where = " ".join(part for part in (self.entry, self.json_path, self.node and f"node {self.node}") if part)
        return f"{self.code} {where}: {self.message}" if where else f"{self.code} {self.message}"


class FormatError(FastExportError, ValueError):
    """A file is damaged, hostile, or of a form that can't be read (or written).

    Attributes:
        faults: all that was found, as `Fault`; the message is that of the first error.
        entry: the entry of the archive at fault, or None.
        json_path: where in that entry, or None.
        kind: the kind of fault, such as ``"crc"``.
    """

    def __init__(
        self,
        message: str,
        *,
        entry: str | None = None,
        json_path: str | None = None,
        kind: str = "zip",
        faults: list[Fault] | None = None,
    ) -> None:
        super().__init__(message)
        self.entry = entry
        self.json_path = json_path
        self.kind = kind
        self.faults = faults or []

    def __reduce__(self) -> tuple[object, ...]:
        return _format_error_again, (type(self), str(self), self.__dict__)


def _format_error_again(cls: type[FormatError], message: str, attributes: dict[str, object]) -> FormatError:
    error = cls(message)
    error.__dict__.update(attributes)
    return error


class FileError(FormatError, OSError):
    """The system can't read or write a file; an OSError too."""


class VerifyError(FastExportError):
    """A program breaks a rule of the export IR; through a torch door, torch's SpecViolationError.

    Args:
        faults: what was found; a text alone is what a check of one's own raises, see `Verifier`.

    Attributes:
        faults: all that was found, as `Fault`; the message is that of the first error.
    """

    def __init__(self, faults: list[Fault] | str) -> None:
        super().__init__(faults if isinstance(faults, str) else _summary(faults))
        self.faults = [Fault("FX311", "dialect", True, None, None, None, faults)] if isinstance(faults, str) else faults

    def __reduce__(self) -> tuple[type[VerifyError], tuple[list[Fault]]]:
        return type(self), (self.faults,)


def _summary(faults: list[Fault]) -> str:
    errors = [fault for fault in faults if fault.is_error]
    if not errors:
        return "the program can't be used"
    more = f" (and {len(errors) - 1} more: see .faults)" if len(errors) > 1 else ""
    return f"{errors[0]}{more}"


def format_error(faults: list[tuple[object, ...]]) -> FormatError:
    """The exception for the faults that the C part found."""
    found = [Fault(*fault) for fault in faults]  # type: ignore[arg-type]
    errors = [fault for fault in found if fault.is_error]
    first = errors[0] if errors else Fault("FX101", "zip", True, None, None, None, "the file is damaged")
    cls = FileError if first.kind == "io" else FormatError
    return cls(
        _summary(found if errors else [first]),
        entry=first.entry,
        json_path=first.json_path,
        kind=first.kind,
        faults=found,
    )
