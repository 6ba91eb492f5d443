"""What is wrong with an argument, told by the name of the public function or option that it was given to."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

from fastexport._graph import Graph
from fastexport._loaded import loaded

_KINDS = (
    ("fastexport._graph_module", "GraphModule"),
    ("fastexport._program", "ExportedProgram"),
    ("torch.fx.graph", "Graph"),
    ("torch.fx.graph_module", "GraphModule"),
    ("torch.export.exported_program", "ExportedProgram"),
)


def check_graph(function: str, g: Any, *, files: bool = False) -> None:
    """Raise TypeError unless g is a graph, module or program, of fastexport or torch.

    Args:
        function: the name of what it was given to.
        g: what was given; if it was a file, what was read of it.
        files: that function takes .pt2 files, too.
    """
    if isinstance(g, Graph):
        return
    # Where the module of a class was never imported, g is none of it.
    if any(isinstance(g, getattr(loaded(module), name, ())) for module, name in _KINDS):
        return
    more = ", or the path, file or bytes of a .pt2 file" if files else ""
    raise TypeError(
        f"{function}() takes a fastexport or torch graph, module or program{more}, not {type(g).__name__}"
        + ("; open files with load()" if isinstance(g, str | bytes) or hasattr(g, "__fspath__") else "")
    )


def whole(name: str, value: Any, least: int) -> int:
    """An option that is a whole number.

    Raises:
        TypeError: it is none.
        ValueError: it is too small.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is a whole number, not {value!r}") from None
    if number < least:
        raise ValueError(f"{name} is at least {least}, not {number}")
    return number


def check_text(name: str, value: Any) -> None:
    """Raise TypeError unless an option is a text or None."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} is a str or None, not {value!r}")


def check_mapping(name: str, value: Any) -> None:
    """Raise TypeError unless an option is a mapping or None."""
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(f"{name} is a dict, not {value!r}")


def list_of(name: str, value: Iterable[Any], what: str) -> list[Any]:
    """The items of an argument.

    Args:
        name: of the argument.
        value: what was given.
        what: what its items are, such as "nodes".

    Raises:
        TypeError: it is a text, or nothing that has items.
    """
    try:
        items = None if isinstance(value, str | bytes) else iter(value)
    except TypeError:
        items = None
    if items is None:
        raise TypeError(f"{name} is a list of {what}, not {value!r}")
    return list(items)


def findings_of(value: Iterable[Any]) -> list[Any]:
    """The items of an argument that is findings.

    Raises:
        TypeError: it has none, or something else is among them.
    """
    findings = list_of("findings", value, "findings, such as those of verify(all=True)")
    for finding in findings:
        if not hasattr(finding, "code") or not hasattr(finding, "message"):
            raise TypeError(f"findings holds what is no finding: {finding!r}")
    return findings
