"""Dialects of exported programs: the class `Verifier`, and what dialects have to say of programs from files.

This works without torch; programs that came from torch are in `_torch_verifier`, the check itself in `_dialect`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from fastexport import _core
from fastexport._dialect import MISSING, WRITES, Judge, graph_faults, shown
from fastexport._errors import Fault
from fastexport._loaded import loaded
from fastexport._operators import Operator

if TYPE_CHECKING:
    from fastexport._graph import Graph
    from fastexport._program import ExportedProgram

__all__ = ["Verifier"]

_BUILTINS: tuple[Callable[..., Any], ...] = (
    *(
        getattr(operator, name)
        for name in """
            abs add and_ eq floordiv ge getitem gt le lshift lt mod mul ne neg not_ or_ pow rshift sub truediv
        """.split()
    ),
    math.ceil,
    math.floor,
    math.trunc,
    round,
)
_OWN = ("", "ATEN", "TRAINING")  # dialects that nobody can define anew
_registry: dict[str, type[Verifier]] = {}


class Verifier:
    """The rules of a dialect: which operators and attributes a program may have.

    A subclass is a dialect of its own. It says its name, overrides what it wants to be different, and is known from
    then on: `ExportedProgram.verify` takes it by name or class, and a file that says it is of the dialect is checked by
    it. The rules are those of torch's class of the same name. Operators are the objects that the graph has as targets:
    an `Operator` in a program that was read from a file, torch's own in one that came from torch.

    Raises:
        TypeError: a subclass has no `dialect` of its own, or takes the name of one of torch's, or overrides `check`.

    Example:
        >>> import fastexport
        >>> class NoLinear(fastexport.Verifier):
        ...     dialect = "NO_LINEAR"
        ...
        ...     def check_valid_op(self, op):
        ...         if "linear" in op.__name__:
        ...             raise fastexport.VerifyError(f"{op} is to be decomposed")
        >>> ep = fastexport.load("tests/data/pt2/samples/current/linear.pt2")
        >>> [(fault.code, fault.node) for fault in ep.verify(dialect="NO_LINEAR", all=True)]
        [('FX311', 'linear')]
    """

    dialect: ClassVar[str] = "ATEN"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        name = cls.__dict__.get("dialect")
        if not isinstance(name, str) or (name in _OWN and cls.__module__ != __name__):
            raise TypeError(f"{cls.__name__} needs a dialect, a str that is none of {_OWN}, not {name!r}")
        if "check" in cls.__dict__:
            raise TypeError(f"{cls.__name__} can't override check(); override what it asks, such as check_additional()")
        if name not in _OWN:
            _registry[name] = cls

    def allowed_op_types(self) -> tuple[type[Any], ...]:
        """Classes of operators that may be called."""
        return (Operator, *classes_of_torch("torch._ops", "OpOverload", "HigherOrderOperator"))

    def allowed_builtin_ops(self) -> list[Callable[..., Any]]:
        """Functions of Python that may be called besides: those on numbers, and getitem."""
        return list(_BUILTINS)

    def allowed_getattr_types(self) -> tuple[type[Any], ...]:
        """Classes of what get_attr nodes of the program's own graph may name."""
        from fastexport._graph_module import GraphModule

        torchs = classes_of_torch("torch.fx", "GraphModule") + classes_of_torch("torch.utils._pytree", "TreeSpec")
        return (GraphModule, *torchs)

    def allowed_getattr_types_for_subgm(self) -> tuple[type[Any], ...]:
        """The same for subgraphs, which may have weights: they are operands of what calls them."""
        return (*self.allowed_getattr_types(), *classes_of_torch("torch", "Tensor"), _core.Tensor)

    def check_valid_op(self, op: Any) -> None:
        """Look at an operator that is of an allowed class; called once for each that a graph calls.

        Raises:
            VerifyError: it may not be called; its message becomes that of the fault.
        """

    def check_additional(self, graph_module: Any) -> None:
        """Look at the program as a whole, when nothing else was found.

        Args:
            graph_module: the program's `GraphModule`.

        Raises:
            VerifyError: something is wrong.
        """

    def check(self, program: Any) -> None:
        """Check a program of fastexport, or one of torch.

        Raises:
            VerifyError: it breaks a rule of the dialect.
        """
        from fastexport._program import ExportedProgram

        if not isinstance(program, ExportedProgram):
            from fastexport._torch_api import from_export

            program = from_export(program)
        program.verify(dialect=self)


class _Training(Verifier):
    """Operators that write to their arguments are allowed."""

    dialect = "TRAINING"


def classes_of_torch(module: str, *names: str) -> tuple[type[Any], ...]:
    """Classes of torch, if that is loaded: without it nothing can be of them."""
    found = loaded(module)
    return tuple(getattr(found, name) for name in names) if found is not None else ()


def verifier_for(dialect: Any) -> Verifier:
    """What a caller names: an object, a class or the name of a dialect.

    Raises:
        ValueError: nobody has defined a dialect of that name.
        TypeError: it is something else.
    """
    if isinstance(dialect, str):
        known: Mapping[str, type[Verifier]] = {"": Verifier, "ATEN": Verifier, "TRAINING": _Training, **_registry}
        if dialect not in known:
            raise ValueError(f"there is no dialect {dialect!r}; define one as a subclass of fastexport.Verifier")
        return known[dialect]()
    if isinstance(dialect, type) and issubclass(dialect, Verifier):
        return dialect()
    if isinstance(dialect, Verifier):
        return dialect
    raise TypeError(f"a dialect is a str or a subclass of fastexport.Verifier, not {shown(dialect)}")


# ---- programs that were read from files ------------------------------------------------------------------------------


class _FileJudge(Judge):
    """Of programs that were read from files: their values are checked elsewhere."""

    defaults = (Verifier.check_additional,)

    def is_listed(self, target: Any) -> bool:
        return isinstance(target, Operator) and target.kind in ("sym", "function")

    def operator_facts(self, target: Any) -> int:
        if not isinstance(target, Operator) or not self.functional:
            return 0
        try:
            return WRITES if any(argument[4] for argument in target.arguments) else 0
        except LookupError:
            return WRITES if target.kind == "operator" and _looks_inplace(target.name) else 0

    def attribute(self, graph: Graph, module: Any, path: str, *, is_top: bool) -> int:
        from fastexport._graph_module import GraphModule

        subgraph = (graph.subgraphs or {}).get(path)
        return MISSING if subgraph is None else self.fits(GraphModule.of_program(subgraph, {}, {}), is_top=is_top)


def _looks_inplace(name: str) -> bool:
    parts = name.split(".")
    stem = parts[3] if len(parts) > 3 else ""
    return stem.endswith("_") and not stem.endswith("__")


def with_dialects(program: ExportedProgram, faults: list[Fault], dialect: Any) -> list[Fault]:
    """Add to the faults of a program from a file what dialects have to say of it.

    Args:
        program: the program.
        faults: what the check of files has found: it knows the rules of the dialects that the file names.
        dialect: to be checked in their place, or None: those that the file names.
    """
    if dialect is None:
        named = [name for name in program.verifiers if name in _registry]
        unknown = tuple(f"'{name}' is not known here" for name in named)
        kept = [each for each in faults if not (each.code == "FX103" and any(text in each.message for text in unknown))]
        return kept + [each for name in named for each in _of_file(program, _registry[name](), written=True)]
    verifier = verifier_for(dialect)
    return [each for each in faults if each.code != "FX309"] + _of_file(program, verifier, written=False)


def _of_file(program: ExportedProgram, verifier: Verifier, *, written: bool) -> list[Fault]:
    """What a verifier has to say; written: operators that write are looked for elsewhere."""
    judge = _FileJudge(verifier)
    judge.functional = judge.functional and not written
    faults = list(graph_faults(program.graph, judge, values=False))
    return faults or judge.additional(lambda: program.graph_module)
