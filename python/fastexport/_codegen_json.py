"""Code generators in documents of graphs: none for a plain one, and for nested containers their specs as JSON text."""

from __future__ import annotations

from typing import Any

from fastexport._codegen import CodeGen, PyTreeCodeGen, PyTreeInfo
from fastexport._loaded import loaded
from fastexport._treespec import TreeSpec

_KEYS = {"orig_args", "in_spec", "out_spec"}


def codegen_json(codegen: Any) -> dict[str, Any] | None:
    """What a document says of a code generator; None: nothing, as of a plain one.

    Raises:
        TypeError: it is of another class, changes code, or is for a function of another name.
        ValueError: a type in its specs has no text, or is nested too deep.
    """
    kind = type(codegen)
    graph = loaded("torch.fx.graph")
    plain = (CodeGen, getattr(graph, "CodeGen", CodeGen))
    nested = (PyTreeCodeGen, getattr(graph, "_PyTreeCodeGen", PyTreeCodeGen))
    if kind not in (*plain, *nested) or codegen._body_transformer is not None:
        raise TypeError(f"_codegen of {kind.__name__}")
    if kind in plain:
        return None
    names, in_spec, out_spec = codegen.pytree_info
    if not all(type(name) is str for name in names):
        raise TypeError("_codegen with names that are no strings")
    return {
        "orig_args": list(names),
        "in_spec": _spec_json(in_spec),
        "out_spec": None if out_spec is None else _spec_json(out_spec),
    }


def _spec_json(spec: Any) -> str:
    return (spec if isinstance(spec, TreeSpec) else TreeSpec.from_torch(spec)).to_json()


def read_codegen(value: Any) -> PyTreeCodeGen:
    """The inverse of `codegen_json`.

    Raises:
        ValueError: it says something else.
    """
    if not isinstance(value, dict) or value.keys() != _KEYS:
        raise ValueError("a codegen has orig_args, in_spec and out_spec")
    names, in_spec, out_spec = value["orig_args"], value["in_spec"], value["out_spec"]
    if not isinstance(names, list) or not all(type(name) is str and name.isidentifier() for name in names):
        raise ValueError("the orig_args of a codegen are names")
    if type(in_spec) is not str or type(out_spec) not in (str, type(None)):
        raise ValueError("the specs of a codegen are texts")
    return PyTreeCodeGen(
        PyTreeInfo(names, TreeSpec.from_json(in_spec), None if out_spec is None else TreeSpec.from_json(out_spec))
    )
