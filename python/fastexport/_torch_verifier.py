"""The bridge to torch's verifier: programs that came from torch are checked as torch's `validate` would.

Structure, operators, attributes and the signature are checked in C, with what torch's verifiers and their subclasses
answer when they are asked once for each target. Whatever is odd (values of unusual classes, functions on torch's closed
list, modules that torch knows by name) is put to torch's own check, one by one. On a torch whose verifier is another
than the one that is known here, and for verifiers that replace the whole check, torch checks what `to_torch` makes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
import torch.fx
from torch.export import graph_signature as torch_signature

from fastexport import _torch_export, _verifier
from fastexport._dialect import (
    ALLOWED,
    MISSING,
    NO_RESULT,
    WRITES,
    Judge,
    SignatureFacts,
    fault,
    graph_faults,
    signature_faults,
)
from fastexport._errors import Fault, LintError, VerifyError, shown_as
from fastexport._interface import _has_node
from fastexport._lift import tell_unlifted
from fastexport._operators import Operator
from fastexport._torch_module import check_symbols, module_of
from fastexport._torch_parts import check_verifiers

try:
    from torch._export import verifier as torch_verifier
    from torch._ops import OpOverload
    from torch._subclasses.fake_tensor import FakeTensor

    from fastexport.acceleration import _export as fast_export
    from fastexport.acceleration._known import are_known
except (ImportError, AttributeError):
    _FOUND = False
else:
    _FOUND = True

if TYPE_CHECKING:
    from fastexport._graph import Graph
    from fastexport._torch_source import TorchProgram

__all__ = [
    "RejectedProgram",
    "as_ours",
    "check",
    "check_additional",
    "names_nothing",
    "raise_faults",
]

# Digests of the source texts of what is checked here in other words.
_FUNCTIONS = {
    "_check_val": "4b3c44d677d29593",
    "getattr_recursive": "8e9b28ffc0f4b9ed",
    "_verify_exported_program_module_call_graph": "5630db0957af0d5a",
    "_verify_exported_program_signature": "28e166748f97611d",
}


def _is_torchs() -> bool:
    """Whether torch's verifier is, now, the one that is known here."""
    return (
        _torch_export.FAST
        and are_known(vars(torch_verifier), _FUNCTIONS)
        and are_known(vars(torch_verifier.Verifier), _torch_export._VERIFIER)
    )


# ---- the exception ---------------------------------------------------------------------------------------------------

_SpecViolationError: Any = torch_verifier.SpecViolationError if _FOUND else Exception


@shown_as("VerifyError")
class RejectedProgram(VerifyError, _SpecViolationError):
    """A program of torch breaks a rule of the export IR: a `VerifyError`, and torch's SpecViolationError."""


@shown_as("VerifyError")
class MalformedProgram(RejectedProgram, RuntimeError):
    """A graph of it is malformed, for which torch raises a RuntimeError."""


@shown_as("VerifyError")
class UnfitProgram(RejectedProgram, ValueError):
    """Something of it is nothing to the other side (a name, an operator, an expression), so it can't be converted."""


_CLASSES_OF_CODES = {"FX301": MalformedProgram, "FX304": UnfitProgram, "FX306": UnfitProgram}


def raise_faults(faults: list[Fault]) -> None:
    """Raise for the errors among some faults."""
    first = next((each for each in faults if each.is_error), None)
    if first is not None:
        raise _CLASSES_OF_CODES.get(first.code, RejectedProgram)(faults)


@contextmanager
def as_ours() -> Iterator[None]:
    """Torch's SpecViolationErrors leave this as our exception, which is one of them, with torch's message."""
    try:
        yield
    except RejectedProgram:
        raise
    except _SpecViolationError as error:
        raise RejectedProgram([fault("FX400", None, str(error))]) from error


# ---- what torch's rules say of targets and values --------------------------------------------------------------------

_PLAIN_TYPES: tuple[type[Any], ...] = (
    *((FakeTensor,) if _FOUND else ()),
    *(torch.Tensor, torch.nn.Parameter, torch.SymInt, torch.SymFloat, torch.SymBool),
    *(type(None), int, bool, float, str),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)


@functools.lru_cache(maxsize=4096)
def _facts_of(operator: Any) -> int:
    """Of an operator's schema, which never changes."""
    schema = operator._schema
    return (WRITES if schema.is_mutable else 0) | (0 if schema.returns else NO_RESULT)


class _TorchJudge(Judge):
    """Of programs that came from torch."""

    plain = _PLAIN_TYPES
    refusals = (VerifyError, _SpecViolationError)
    defaults = (_verifier.Verifier.check_additional, *((torch_verifier.Verifier.check_additional,) if _FOUND else ()))

    def operator(self, target: Any) -> Any:
        return target.to_torch() if isinstance(target, Operator) else target

    def is_listed(self, target: Any) -> bool:
        try:
            return fast_export._is_listed_function(_torch_export._stock_check(), target)
        except TypeError:  # no function of torch is unhashable
            return False

    def operator_facts(self, target: Any) -> int:
        if not isinstance(target, OpOverload):
            return 0
        return _facts_of(target) if type(target) is OpOverload else _facts_of.__wrapped__(target)

    def member(self, module: Any, path: str) -> Any:
        try:
            return torch_verifier.getattr_recursive(module, path)
        except RuntimeError:
            return None

    def attribute(self, graph: Graph, module: Any, path: str, *, is_top: bool) -> int:
        found = self.member(module, path)
        if found is None:
            return MISSING
        if isinstance(found, torch.nn.Module) and type(found).__name__ in fast_export._BY_NAME:
            return self._module_by_name(path, found)
        facts = self.fits(found, is_top=is_top)
        if not facts:
            self.refuse(path, f"of {type(found)}")
        return facts

    def _module_by_name(self, path: str, found: Any) -> int:
        """A module that torch knows by the name of its class, in a module that has nothing but this."""
        graph = torch.fx.Graph()
        graph.create_node("get_attr", "found")
        module: Any = torch.fx.GraphModule.__new__(torch.fx.GraphModule)
        torch.nn.Module.__init__(module)
        module._graph = graph  # no code is needed, and none is made
        module.found = found
        try:
            _torch_export._stock_check()(torch_verifier.Verifier(), module)
        except _SpecViolationError as error:
            self.refuse(path, error)
            return 0
        return ALLOWED

    def value(self, value: Any) -> bool:
        try:
            return self._check_value(value)
        except (MemoryError, AssertionError):
            raise
        except Exception as error:  # of an object that can't be looked at
            self.refuse(value, f"{type(error).__name__}: {error}")
            return False

    def _check_value(self, value: Any) -> bool:
        from fastexport._torch_program import OUR_VALUES

        items = value if type(value) in (list, tuple) else (value,)
        if any(isinstance(item, OUR_VALUES) for item in items):
            try:
                for item in items:
                    check_symbols(item)
            except ValueError as error:
                self.refuse(value, error, "FX306")
                return False
            items = [item for item in items if not isinstance(item, OUR_VALUES)]
        for item in items:
            torch_verifier._check_val(SimpleNamespace(name="it", meta={"val": item}))
        return True


# ---- the program -----------------------------------------------------------------------------------------------------


def _call_faults(program: TorchProgram) -> Iterator[Fault]:
    """Names in the module call graph that no node has."""
    called = program.graph._called()
    for entry in program._source.module_call_graph:
        if entry.signature is None:
            continue
        for what, args in (("input", entry.signature.inputs), ("output", entry.signature.outputs)):
            for arg in args:
                if arg.name and called.get(arg.name) is None and not _has_node(program.graph, arg.name):
                    message = (
                        f"the {what} '{arg.name}' of module '{entry.fqn}' is no node of the graph; the calling "
                        "convention of that module is kept (preserve_module_call_signature), so what it names may be "
                        "replaced, but not erased"
                    )
                    yield fault("FX401", None, message)


def _program_faults(program: TorchProgram, judge: _TorchJudge) -> Iterator[Fault]:
    facts = SignatureFacts(
        program._source.inputs.facts,
        program._source.outputs.facts,
        program.state_dict,
        program.constants,
        torch.nn.Parameter,
        program._source.module.state_dict,
    )
    yield from graph_faults(program.graph, judge, program._source.module, values=True)
    yield from _call_faults(program)
    yield from signature_faults(program, facts)


def names_nothing(program: torch.export.ExportedProgram) -> VerifyError | None:
    """What to raise for a program whose signature names nodes that are not there, so that it can't be taken."""
    nodes = {node.name for node in program.graph.nodes}
    signature = program.graph_signature
    specs = [("input", spec) for spec in signature.input_specs] + [("output", spec) for spec in signature.output_specs]
    missing = [
        fault("FX401", None, f"the signature has the {what} '{spec.arg.name}', which is no node of the graph")
        for what, spec in specs
        if not isinstance(spec.arg, torch_signature.ConstantArgument) and spec.arg.name not in nodes
    ]
    return UnfitProgram(missing) if missing else None


def checks_natively(verifier: Any) -> bool:
    """Whether a verifier's class leaves the check of the whole to torch's, and torch's is the one known here."""
    return (
        _is_torchs()
        and issubclass(verifier, torch_verifier.Verifier)
        and verifier.check is torch_verifier.Verifier.check
        and verifier._check_graph_module is torch_verifier.Verifier._check_graph_module
    )


def _check_with(program: TorchProgram, verifier: Any, *, additional: bool) -> list[Fault]:
    judge = _TorchJudge(verifier)
    faults = list(_program_faults(program, judge))
    if faults or not additional:
        return faults
    return judge.additional(lambda: _module(program, verifier))


def _module(program: TorchProgram, verifier: Any) -> Any:
    """The program's module as its verifier's own check wants it."""
    if isinstance(verifier, _verifier.Verifier):
        return program.graph_module
    return module_of(program.graph, program._source.module, is_top=True)


def _ask_torch(program: TorchProgram, verifier: Any) -> list[Fault]:
    """What torch says of the program as it would be there."""
    try:
        program._graph.lint()
        verifier().check(program._convert())
    except (LintError, ValueError, RuntimeError, _SpecViolationError) as error:
        return [fault("FX400", None, str(error))]
    return []


def _verifiers(program: TorchProgram, dialect: Any) -> list[Any]:
    if dialect is None:
        check_verifiers(program.verifiers)
        return list(program.verifiers)
    if isinstance(dialect, str):
        return [_verifier._registry.get(dialect) or _torch_export.loaded_verifiers([dialect])[0]]
    if _FOUND and isinstance(dialect, type) and issubclass(dialect, torch_verifier.Verifier):
        return [dialect]
    return [_verifier.verifier_for(dialect)]


def check(program: TorchProgram, dialect: Any = None, *, additional: bool = True) -> list[Fault]:
    """What is wrong with a program.

    Args:
        program: the program.
        dialect: a name, a verifier's class, or an object of `fastexport.Verifier`; None: the program's own verifiers.
        additional: also ask the verifiers' own checks of the whole, for which a module has to be made.
    """
    verifiers = _verifiers(program, dialect)
    if not verifiers:
        return [fault("FX311", None, "the program has no verifier, so it is of no dialect")]
    found: list[Fault] = []
    for each in verifiers:
        if isinstance(each, _verifier.Verifier):
            faults = _check_with(program, each, additional=additional)
        elif issubclass(each, _verifier.Verifier) or checks_natively(each):
            faults = _check_with(program, each(), additional=additional)
        else:
            faults = _ask_torch(program, each)
        found += [one for one in faults if one not in found]
    return tell_unlifted(program, found)


def check_additional(program: torch.export.ExportedProgram) -> None:
    """Have the verifiers of a program that `check` has passed look at the whole.

    Raises:
        RejectedProgram: one refuses it.
    """
    for cls in program.verifiers:
        if checks_natively(cls):
            raise_faults(_TorchJudge(cls()).additional(lambda: program.graph_module))
