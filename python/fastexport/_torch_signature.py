"""Signatures of programs that came from torch: what their specs said when they were read, and specs made of that.

The core holds what each input and output stands for, and so follows edits; it has no words for the classes of arguments
and for objects. Those are taken out of torch's specs when a program is read. Specs are not looked at afterwards, so
that all that judges, shows, converts or saves a program goes by the same, whatever is done to them meanwhile.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.export import graph_signature as torch_signature

from fastexport import _signature as ours
from fastexport._symbols import SymBool, SymFloat, SymInt

if TYPE_CHECKING:
    from fastexport._graph import Graph

__all__ = ["SYMBOLIC", "Arguments", "core_inputs", "core_outputs", "for_torch", "same_argument", "specs_of"]

# By the names of torch's kinds, the core's numbers. Kinds themselves are hashed by Python code.
_INPUT_NUMBERS = {kind.name: number for number, kind in enumerate(ours._INPUT_KINDS)}
_OUTPUT_NUMBERS = {kind.name: number for number, kind in enumerate(ours._OUTPUT_KINDS)}
_BUFFER = _INPUT_NUMBERS["BUFFER"]
_KINDS: dict[Any, tuple[list[Any], list[Any]]] = {  # by the core's numbers, of each module that has classes
    classes: (
        [classes.InputKind[kind.name] for kind in ours._INPUT_KINDS],
        [classes.OutputKind[kind.name] for kind in ours._OUTPUT_KINDS],
    )
    for classes in (ours, torch_signature)
}

_NAMES = (  # of classes of arguments, by their numbers in csrc/core/dialect.h
    "TensorArgument",
    "SymIntArgument",
    "SymFloatArgument",
    "SymBoolArgument",
    "ConstantArgument",
    "CustomObjArgument",
    "TokenArgument",
)
_CLASSES = tuple(getattr(torch_signature, name) for name in _NAMES)
_CLASS_NUMBERS = {cls: number for number, cls in enumerate(_CLASSES)}
_CONSTANT, _CUSTOM = _NAMES.index("ConstantArgument"), _NAMES.index("CustomObjArgument")
_NO_PERSISTENCE, _OBJECT = 1 << 6, 1 << 7  # of csrc/core/dialect.h
_IN_CORE = (type(None), bool, int, float, str)

# torch's class, ours, and the class of the argument that has such a value
SYMBOLIC = (
    (torch.SymInt, SymInt, "SymIntArgument"),
    (torch.SymFloat, SymFloat, "SymFloatArgument"),
    (torch.SymBool, SymBool, "SymBoolArgument"),
)


# ---- from torch ------------------------------------------------------------------------------------------------------


class Arguments(NamedTuple):
    """What the inputs or outputs of torch's program were, by the places that the core remembers.

    Attributes:
        facts: a byte for each: the number of its class, and what the verifier has to know besides.
        objects: place -> a copy of the argument, of those that hold more than a name.
    """

    facts: bytes
    objects: dict[int, Any]

    @classmethod
    def of_inputs(cls, specs: list[Any]) -> Arguments:
        """What input specs say."""
        numbers, objects = _numbers(specs)
        buffer = torch_signature.InputKind.BUFFER
        for place, spec in enumerate(specs):
            if spec.kind is buffer and spec.persistent is None:
                numbers[place] |= _NO_PERSISTENCE
        return cls(bytes(numbers), objects)

    @classmethod
    def of_outputs(cls, specs: list[Any]) -> Arguments:
        """What output specs say."""
        numbers, objects = _numbers(specs)
        for place, arg in objects.items():
            if numbers[place] == _CONSTANT and type(arg.value) not in _IN_CORE:
                numbers[place] |= _OBJECT
        return cls(bytes(numbers), objects)

    def name_of_class(self, place: int) -> str:
        """The class of an argument."""
        return _NAMES[self.facts[place] & (_NO_PERSISTENCE - 1)]


def _numbers(specs: list[Any]) -> tuple[list[int], dict[int, Any]]:
    known = _CLASS_NUMBERS
    numbers = [known[cls] if (cls := type(spec.arg)) in known else _class_number(spec.arg) for spec in specs]
    objects = {
        place: copy.copy(specs[place].arg) for place, number in enumerate(numbers) if number in (_CONSTANT, _CUSTOM)
    }
    return numbers, objects


def _class_number(arg: Any) -> int:
    """Of an argument of a derived class."""
    return next((number for number, cls in enumerate(_CLASSES) if isinstance(arg, cls)), len(_CLASSES) - 1)


def core_inputs(specs: list[Any]) -> list[tuple[Any, ...]]:
    """What the core holds of input specs."""
    return [
        (_INPUT_NUMBERS[spec.kind._name_], *_argument_parts(spec.arg), spec.target, bool(spec.persistent), place)
        for place, spec in enumerate(specs)
    ]


def core_outputs(specs: list[Any]) -> list[tuple[Any, ...]]:
    """What the core holds of output specs."""
    return [
        (_OUTPUT_NUMBERS[spec.kind._name_], *_argument_parts(spec.arg), spec.target, False, place)
        for place, spec in enumerate(specs)
    ]


def _argument_parts(arg: Any) -> tuple[str | None, Any, str | None]:
    """(node, constant, name of the constant)"""
    if isinstance(arg, torch_signature.ConstantArgument):
        return None, arg.value, arg.name
    return arg.name, None, None


# ---- as it is now ----------------------------------------------------------------------------------------------------


def specs_of(classes: Any, graph: Graph, inputs: Arguments, outputs: Arguments) -> Any:
    """The signature of a graph as it is now.

    Args:
        classes: the module whose classes it is made of: torch's, or ours.
        graph: the graph.
        inputs: what its inputs were in torch's program.
        outputs: likewise its outputs.
    """
    now_in, now_out = graph._signature() or ([], [])
    input_kinds, output_kinds = _KINDS[classes]
    return classes.ExportGraphSignature(
        [
            classes.InputSpec(
                input_kinds[spec[0]],
                _argument(classes, spec, inputs, graph),
                spec[4],
                spec[5] if spec[0] == _BUFFER else None,
            )
            for spec in now_in
        ],
        [
            classes.OutputSpec(output_kinds[spec[0]], _argument(classes, spec, outputs, graph), spec[4])
            for spec in now_out
        ],
    )


def _argument(classes: Any, spec: tuple[Any, ...], arguments: Arguments, graph: Graph) -> Any:
    """The argument of an input or output as it is now, of the class that it had."""
    _, node, value, name, _, _, place = spec
    was = arguments.objects.get(place)
    if node is None:
        if isinstance(was, torch_signature.ConstantArgument):  # its value may be an object, which is not in the core
            value = was.value
        return classes.ConstantArgument(name or "", value)
    if place < 0:  # an edit has made it
        return _argument_of_value(classes, node, _value_of(graph, node))
    if isinstance(was, torch_signature.ConstantArgument):
        return classes.TensorArgument(node)
    if was is not None:
        return classes.CustomObjArgument(node, was.class_fqn, was.fake_val)
    return getattr(classes, arguments.name_of_class(place))(node)


def _value_of(graph: Graph, name: str) -> Any:
    """The value of a node; None when it is erased, of which the verifier tells."""
    try:
        return graph.node(name).meta.get("val")
    except KeyError:
        return None


def _argument_of_value(classes: Any, name: str, value: Any) -> Any:
    """The argument that a node of that name is, whose value may be torch's or ours; without one, a tensor."""
    for theirs, own, cls in SYMBOLIC:
        if isinstance(value, theirs | own):
            return getattr(classes, cls)(name)
    if isinstance(value, torch_signature.CustomObjArgument | ours.CustomObjArgument):
        return classes.CustomObjArgument(name, value.class_fqn, value.fake_val)
    return classes.TensorArgument(name)


# ---- to torch --------------------------------------------------------------------------------------------------------


def same_argument(arg: Any, spec: Any) -> Any:
    """One of our arguments as torch's."""
    return getattr(torch_signature, type(arg).__name__)(**vars(arg))


def for_torch(signature: ours.ExportGraphSignature, argument: Callable[[Any, Any], Any] = same_argument) -> Any:
    """One of our signatures as torch's.

    Args:
        signature: ours.
        argument: makes torch's argument of ours and its spec.
    """
    return torch_signature.ExportGraphSignature(
        [
            torch_signature.InputSpec(
                torch_signature.InputKind[spec.kind.name], argument(spec.arg, spec), spec.target, spec.persistent
            )
            for spec in signature.input_specs
        ],
        [
            torch_signature.OutputSpec(
                torch_signature.OutputKind[spec.kind.name], argument(spec.arg, spec), spec.target
            )
            for spec in signature.output_specs
        ],
    )
