"""Write docs/parity.md: the public names of torch.fx beside those of fastexport.

    python tools/parity_table.py            write the file
    python tools/parity_table.py --check    exit 1 when it is not what would be written, or a name is missing

Run it with the torch that fastexport is made for, and fastexport importable.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.fx
from torch.fx.graph import CodeGen, PythonCode
from torch.fx.passes.utils.matcher_utils import InternalMatch, SubgraphMatcher

import fastexport

OUTPUT = Path(__file__).resolve().parent.parent / "docs" / "parity.md"

# Class of torch, the same of fastexport, the class whose names don't count.
CLASSES: tuple[tuple[type, str, type], ...] = (
    (torch.fx.Graph, "Graph", object),
    (torch.fx.Node, "Node", object),
    (torch.fx.GraphModule, "GraphModule", torch.nn.Module),
    (CodeGen, "CodeGen", object),
    (PythonCode, "PythonCode", object),
    (torch.fx.Tracer, "Tracer", object),
    (torch.fx.Proxy, "Proxy", object),
    (torch.fx.Interpreter, "Interpreter", object),
    (torch.fx.Transformer, "Transformer", object),
    (SubgraphMatcher, "SubgraphMatcher", object),
    (InternalMatch, "Match", object),
)
FUNCTIONS = ("symbolic_trace", "wrap", "replace_pattern", "has_side_effect", "map_arg", "map_aggregate")
# What is there under another name, or needs a word.
NOTES = {
    "Graph.eliminate_dead_code": "returns a PassResult, which is true or false; more options",
    "Graph.lint": "raises LintError, a RuntimeError; `all=True` returns every fault",
    "Graph.python_code": 'code that runs; `policy="torch"` gives torch\'s own text',
    "Graph.print_tabular": "needs no package",
    "Graph.owning_module": "the torch module, or the fastexport GraphModule",
    "GraphModule.recompile": "compiles at the next call",
    "GraphModule.graph": "assigning compiles at the next call",
    "GraphModule.to_folder": "done by torch, through `to_fx()`",
    "PythonCode.globals": "made when it is first asked for",
    "has_side_effect": "torch's own; what it registers counts here too",
}
# Parameters that have another name here: what they stand for is wider.
RENAMED = {"replace_pattern": {"gm": "g"}}


class Row(NamedTuple):
    """A name of torch.fx.

    Attributes:
        name: with that of the class.
        there: fastexport has it.
        missing: parameters of torch's that ours does not take.
        more: parameters that only ours takes.
    """

    name: str
    there: bool
    missing: tuple[str, ...] = ()
    more: tuple[str, ...] = ()


def parameters_of(function: Any) -> dict[str, inspect.Parameter] | None:
    """The parameters of a function or method; None of anything else, and where C does not tell."""
    if isinstance(function, property) or not callable(function) or isinstance(function, type):
        return None
    try:
        return {name: value for name, value in inspect.signature(function).parameters.items() if name != "self"}
    except (TypeError, ValueError):
        return None


def compared(name: str, theirs: Any, ours: Any) -> Row:
    """How ours differs from theirs."""
    wanted, given = parameters_of(theirs), parameters_of(ours)
    if wanted is None or given is None:
        return Row(name, True)
    kinds = {value.kind for value in given.values()}
    wanted = {RENAMED.get(name, {}).get(each, each): value for each, value in wanted.items()}
    takes_any = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} <= kinds
    missing = () if takes_any else tuple(each for each in wanted if each not in given)
    return Row(name, True, missing, tuple(each for each in given if each not in wanted))


def rows_of(theirs: type, name: str, base: type) -> list[Row]:
    """The rows of a class: its public names that the base has not."""
    ours = getattr(fastexport, name, None)
    own = vars(theirs)
    rows = []
    fields = getattr(theirs, "__dataclass_fields__", {})
    for each in sorted({*dir(theirs), *fields}):
        if each.startswith("_") or (hasattr(base, each) and each not in own):
            continue
        label = f"{name}.{each}"
        if ours is None or not (hasattr(ours, each) or each in getattr(ours, "__annotations__", {})):
            rows.append(Row(label, False))
        else:
            rows.append(compared(label, getattr(theirs, each, None), getattr(ours, each, None)))
    return rows


def rows() -> list[Row]:
    """All rows of the table."""
    found = []
    for name in FUNCTIONS:
        theirs = getattr(torch.fx, name, None) or getattr(torch.fx.node, name)
        is_there = hasattr(fastexport, name) or NOTES.get(name, "").startswith("torch's own")
        found.append(compared(name, theirs, getattr(fastexport, name, None)) if is_there else Row(name, False))
    for kind, name, base in CLASSES:
        found += rows_of(kind, name, base)
    return found


def text() -> str:
    """The file."""
    lines = [
        "# torch.fx and fastexport",
        "",
        f"The public names of torch.fx {torch.__version__.partition('+')[0]}. Generated by `tools/parity_table.py`; "
        "tests/test_parity.py fails when one is",
        "missing. A fastexport GraphModule is a light holder: what a torch.nn.Module offers besides is reached through",
        "`GraphModule.to_fx()`.",
        "",
        "| torch.fx | fastexport | differences |",
        "|---|---|---|",
    ]
    for row in rows():
        notes = [NOTES[row.name]] if row.name in NOTES else []
        if row.missing:
            notes.append("without " + ", ".join(f"`{name}`" for name in row.missing))
        if row.more and row.name not in NOTES:
            notes.append("also " + ", ".join(f"`{name}`" for name in row.more))
        lines.append(f"| `{row.name}` | {'yes' if row.there else '**no**'} | {'; '.join(notes)} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Write or check the file; the exit code."""
    new = text()
    if "--check" not in arguments:
        OUTPUT.write_text(new)
        return 0
    missing = [row.name for row in rows() if not row.there]
    if missing:
        print(f"missing: {', '.join(missing)}", file=sys.stderr)
    is_old = not OUTPUT.exists() or OUTPUT.read_text() != new
    if is_old:
        print(f"{OUTPUT} is out of date; run tools/parity_table.py", file=sys.stderr)
    return 1 if missing or is_old else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
