"""What a torch.export.ExportedProgram is made of, and whether a program is made of that.

torch takes a program's parts as they are given, and many a pass puts them in anew. A part of another kind is told here,
by its name, before anything is made of the program.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import torch
import torch.export
import torch.fx
from torch.export import exported_program as torch_program
from torch.export import graph_signature as torch_signature

from fastexport._torch_export import guards_code

_PARTS: tuple[tuple[str, type[Any]], ...] = (
    ("graph_module", torch.fx.GraphModule),
    ("graph_signature", torch_signature.ExportGraphSignature),
    ("state_dict", dict),
    ("constants", dict),
    ("range_constraints", dict),
    ("module_call_graph", list),
    ("verifiers", list),
)
_ARGUMENTS = torch_signature.ArgumentSpec.__args__
_TEXT = (str, type(None))


def check_parts(program: torch.export.ExportedProgram) -> None:
    """Raise TypeError unless each part of a program is of the class that it has to be; the message names it."""
    for name, cls in _PARTS:
        _check(name, getattr(program, name), cls)
    signature = program.graph_signature
    for which, spec, kind in (
        ("input_specs", torch_signature.InputSpec, torch_signature.InputKind),
        ("output_specs", torch_signature.OutputSpec, torch_signature.OutputKind),
    ):
        _check(f"graph_signature.{which}", getattr(signature, which), list)
        _check_specs(which, getattr(signature, which), spec, kind)
    calls = program.module_call_graph
    _check_all("module_call_graph[{}]", calls, torch_program.ModuleCallEntry)
    signatures = list(map(attrgetter("signature"), calls))
    _check_all("module_call_graph[{}].signature", signatures, torch_program.ModuleCallSignature, type(None))
    for place, call in enumerate(signatures):
        if call is not None:
            _check_call(f"module_call_graph[{place}].signature", call)
    check_verifiers(program.verifiers)
    if not program.verifiers:
        raise TypeError("the program's verifiers is empty; it has to have one at least")
    guards = guards_code(program)
    _check("guards_code", guards, list)
    _check_all("guards_code[{}]", guards, str)


def check_verifiers(verifiers: list[Any]) -> None:
    """Raise TypeError unless each is a class that can verify, as torch's Verifier."""
    for place, verifier in enumerate(verifiers):
        _check(f"verifiers[{place}]", verifier, type)
        if not (hasattr(verifier, "check") and hasattr(verifier, "dialect")):
            raise TypeError(
                f"the program's verifiers[{place}] is the class {verifier.__name__}; "
                "it has to be a subclass of torch's Verifier"
            )


def _check_specs(which: str, specs: list[Any], cls: type[Any], kind: type[Any]) -> None:
    _check_all(which + "[{}]", specs, cls)
    _check_all(which + "[{}].kind", map(attrgetter("kind"), specs), kind)
    _check_arguments(which + "[{}].arg", list(map(attrgetter("arg"), specs)))
    _check_all(which + "[{}].target", map(attrgetter("target"), specs), *_TEXT)


def _check_call(name: str, signature: Any) -> None:
    for part in ("inputs", "outputs"):
        _check(f"{name}.{part}", getattr(signature, part), list)
        _check_arguments(f"{name}.{part}[{{}}]", getattr(signature, part))


def _check_arguments(name: str, arguments: list[Any]) -> None:
    _check_all(name, arguments, *_ARGUMENTS)
    _check_all(name + ".name", map(attrgetter("name"), arguments), str)


def _check_all(name: str, values: Iterable[Any], *classes: type[Any]) -> None:
    """The same for many; the number of the value goes into the name."""
    values = list(values)
    if not set(map(type, values)).issubset(classes):
        for place, value in enumerate(values):
            _check(name.format(place), value, *classes)


def _check(name: str, value: Any, *classes: type[Any]) -> None:
    if issubclass(type(value), classes):  # not isinstance, which asks the value
        return
    wanted = " or ".join(cls.__name__ for cls in classes if cls is not type(None))
    raise TypeError(f"the program's {name} is a {type(value).__name__}; it has to be a {wanted}")
