"""The check of a program's graphs and signature against the rules of a dialect.

The check itself is C (csrc/core/dialect.h). Here are the questions it asks, once for each target, and the faults in
words. Who judges is in `_verifier` for programs from files, in `_torch_verifier` for those that came from torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from fastexport import _core
from fastexport._errors import Fault, VerifyError

if TYPE_CHECKING:
    from fastexport._graph import Graph
    from fastexport._program import ExportedProgram

# Numbers of csrc/core/dialect.h.
ALLOWED, WRITES, NO_RESULT, REFUSED, MISSING = (1 << bit for bit in range(5))


# ---- faults ----------------------------------------------------------------------------------------------------------


def fault(code: str, node: str | None, message: str) -> Fault:
    """An error of a program that is in no file."""
    return Fault(code, _core.fault_kinds()[code], True, None, None, node, message)


def shown(value: Any) -> str:
    """A short repr, whatever the object does."""
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 200 else f"{text[:200]}..."


def _names(items: Any) -> str:
    return ", ".join(getattr(item, "__name__", None) or shown(item) for item in items)


# ---- what the check of a graph asks ----------------------------------------------------------------------------------


class Judge:
    """A verifier's view of targets; its lists are asked for when they are first needed, and once.

    Args:
        verifier: an object of `Verifier`, or of torch's class.

    Attributes:
        plain: classes whose objects are fine as values.
        refusals: what the verifier's own checks raise to say no.
        defaults: the methods `check_additional` that check nothing.
    """

    plain: tuple[type[Any], ...] = ()
    refusals: tuple[type[Exception], ...] = (VerifyError,)
    defaults: tuple[Callable[..., None], ...] = ()

    def __init__(self, verifier: Any) -> None:
        self.verifier = verifier
        self.functional = verifier.dialect != "TRAINING"
        self._reasons: dict[int | str, tuple[str, str | None]] = {}
        self._types: dict[str, tuple[type[Any], ...]] = {}
        self._builtins: list[Any] | None = None

    def types(self, which: str) -> tuple[type[Any], ...]:
        """The classes that a method of the verifier gives.

        Raises:
            AssertionError: one of them is object; torch's verifier does the same.
        """
        found = self._types.get(which)
        if found is None:
            found = getattr(self.verifier, which)()
            if any(kind is object for kind in found):
                raise AssertionError(f"{which} must not contain 'object'")
            self._types[which] = found
        return found

    def builtins(self) -> list[Any]:
        """The functions of Python that are allowed.

        Raises:
            AssertionError: one of them is no builtin; torch's verifier does the same.
        """
        if self._builtins is None:
            found = self.verifier.allowed_builtin_ops()
            if not all(isinstance(op, _BUILTIN_TYPES) for op in found):
                raise AssertionError("allowed_builtin_ops must all be builtins")
            self._builtins = found
        return self._builtins

    def function(self, target: Any) -> int:
        """Facts about what a node calls."""
        try:
            op = self.operator(target)
        except ValueError as error:
            self.refuse(target, error, "FX304")
            return 0
        if not isinstance(op, self.types("allowed_op_types")) and op not in self.builtins() and not self.is_listed(op):
            return 0
        facts = ALLOWED | self.operator_facts(op)
        if not facts & WRITES or not self.functional:
            try:
                self.verifier.check_valid_op(op)
            except self.refusals as error:
                self.refuse(target, error)
                facts |= REFUSED
        return facts

    def refuse(self, thing: Any, why: object, code: str | None = None) -> None:
        """Note why a target, a path or a value was refused, and the code of the fault when it has one of its own."""
        self._reasons[_key(thing)] = str(why), code

    def reason(self, thing: Any) -> tuple[str, str | None]:
        """What `refuse` has noted, or an empty text."""
        return self._reasons.get(_key(thing), ("", None))

    def operator(self, target: Any) -> Any:
        """What the verifier gets for a target.

        Raises:
            ValueError: the target stands for nothing.
        """
        return target

    def is_listed(self, target: Any) -> bool:
        """Whether a function is allowed in every dialect."""
        raise NotImplementedError

    def operator_facts(self, target: Any) -> int:
        """`WRITES` and `NO_RESULT` of an operator."""
        raise NotImplementedError

    def attribute(self, graph: Graph, module: Any, path: str, *, is_top: bool) -> int:
        """Facts about what a get_attr node names; module: what has it, where the graph does not."""
        raise NotImplementedError

    def member(self, module: Any, path: str) -> Any:
        """What of a module belongs to the subgraph at a path."""
        return None

    def value(self, value: Any) -> bool:
        """Whether an object whose class is not among `plain` can be the value of a node."""
        raise NotImplementedError

    def additional(self, module: Callable[[], Any]) -> list[Fault]:
        """What the verifier's own check of the whole says; its module is made when there is such a check."""
        if type(self.verifier).check_additional in self.defaults and "check_additional" not in vars(self.verifier):
            return []
        try:
            self.verifier.check_additional(module())
        except self.refusals as error:
            return [fault("FX311", None, f"the dialect {self.verifier.dialect} does not allow the program: {error}")]
        return []

    def fits(self, found: Any, *, is_top: bool) -> int:
        """The facts about an attribute by its class."""
        which = "allowed_getattr_types" if is_top else "allowed_getattr_types_for_subgm"
        return ALLOWED if isinstance(found, self.types(which)) else 0


_BUILTIN_TYPES = (type(len),)


def _key(thing: Any) -> int | str:
    """Paths are told apart by their text, other things by identity: the graph holds them while it is checked."""
    return thing if type(thing) is str else id(thing)


# ---- the check -------------------------------------------------------------------------------------------------------


class SignatureFacts(NamedTuple):
    """What the check of a signature has to know; see csrc/core/dialect.h.

    Attributes:
        inputs: a byte for each place that the core may remember for an input.
        outputs: likewise for an output.
        parameter: the class of parameters.
        elsewhere: gives weights that modules of subgraphs have; asked for a buffer that is nowhere else.
    """

    inputs: bytes
    outputs: bytes
    state_dict: Mapping[str, Any]
    constants: Mapping[str, Any]
    parameter: type[Any]
    elsewhere: Callable[[], Mapping[str, Any]]


def graph_faults(
    graph: Graph, judge: Judge, module: Any = None, *, values: bool, is_top: bool = True
) -> Iterator[Fault]:
    """What a dialect has to say of a graph and its subgraphs; module: what has its attributes, for the judge."""
    used: dict[str, Graph] = {}

    def attribute(path: str) -> int:
        if graph.subgraphs and path in graph.subgraphs:
            used[path] = graph.subgraphs[path]
        return judge.attribute(graph, module, path, is_top=is_top)

    def check(every: bool) -> list[tuple[str, str, str | None, Any]]:
        value = judge.value if values else None
        return _core.check_dialect(graph, judge.function, attribute, value, judge.plain, judge.functional, every)

    for code, node, other, extra in check(False) and check(True):
        yield _FAULTS[code](_Place(graph, judge, node, other, extra, is_top))
    for path, subgraph in used.items():
        member = judge.member(module, path)
        for each in graph_faults(subgraph, judge, member, values=values, is_top=False):
            yield each._replace(message=f"in the subgraph '{path}': {each.message}")


class _Place(NamedTuple):
    graph: Graph
    judge: Judge
    node: str
    other: str | None
    extra: Any  # the target; of lint, the message
    is_top: bool


def _method(at: _Place) -> Fault:
    message = f"'{at.node}' calls a method or a module, {shown(at.extra)}; an exported program only calls functions"
    return fault("FX301", at.node, message)


def _target_type(at: _Place) -> Fault:
    message = f"'{at.node}' has {shown(at.extra)} as its target; a call_function takes a callable, others take a str"
    return fault("FX303", at.node, message)


def _no_value(at: _Place) -> Fault:
    message = (
        f"'{at.node}' has no meta['val']; set it to what the node gives: a FakeTensor, a TensorMeta or the like, "
        "or run the pass refresh_fake_tensors"
    )
    return fault("FX305", at.node, message)


def _bad_value(at: _Place) -> Fault:
    value = at.graph.node(at.node).meta.get("val")
    why, code = at.judge.reason(value)
    message = (
        f"meta['val'] of '{at.node}' is {shown(value)}, which can't be the value of a node"
        f"{f': {why}' if why else ''}; it has to be a FakeTensor, a TensorMeta, a number or the like, or several"
    )
    return fault(code or "FX305", at.node, message)


def _not_allowed(at: _Place) -> Fault:
    why, code = at.judge.reason(at.extra)
    if why:
        return fault(code or "FX303", at.node, f"'{at.node}' calls {shown(at.extra)}: {why}")
    message = (
        f"'{at.node}' calls {shown(at.extra)}, which the dialect {at.judge.verifier.dialect} does not allow: it is "
        f"none of the classes {_names(at.judge.types('allowed_op_types'))}, and no function out of "
        f"{_names(at.judge.builtins())}"
    )
    return fault("FX303", at.node, message)


def _writes(at: _Place) -> Fault:
    message = (
        f"{shown(at.extra)} is not functional: it writes to its arguments, which the dialect "
        f"{at.judge.verifier.dialect} does not allow; use its functional form, or run_decompositions()"
    )
    return fault("FX309", at.node, message)


def _refused(at: _Place) -> Fault:
    why, _ = at.judge.reason(at.extra)
    dialect = at.judge.verifier.dialect
    return fault("FX311", at.node, f"the dialect {dialect} does not allow {shown(at.extra)} at '{at.node}': {why}")


def _no_attribute(at: _Place) -> Fault:
    message = (
        f"'{at.node}' takes the attribute {shown(at.extra)}, which the module does not have; add it, or correct it"
    )
    return fault("FX301", at.node, message)


def _bad_attribute(at: _Place) -> Fault:
    which = "allowed_getattr_types" if at.is_top else "allowed_getattr_types_for_subgm"
    why, _ = at.judge.reason(at.extra)
    message = (
        f"'{at.node}' takes the attribute {shown(at.extra)}, which is {why or 'of another class'}; "
        f"it may be {_names(at.judge.types(which))}: weights are inputs of an exported program"
    )
    return fault("FX301", at.node, message)


def _after_output(at: _Place) -> Fault:
    return fault("FX301", at.node, f"'{at.node}' stands behind the output '{at.other}', which has to be the last node")


_FAULTS: Mapping[str, Callable[[_Place], Fault]] = {
    "LINT": lambda at: fault("FX301", at.node, at.extra),
    "METHOD": _method,
    "TARGET_TYPE": _target_type,
    "NO_VALUE": _no_value,
    "BAD_VALUE": _bad_value,
    "NOT_ALLOWED": _not_allowed,
    "WRITES": _writes,
    "REFUSED": _refused,
    "NO_ATTRIBUTE": _no_attribute,
    "BAD_ATTRIBUTE": _bad_attribute,
    "AFTER_OUTPUT": _after_output,
}


# ---- the signature ---------------------------------------------------------------------------------------------------


def signature_faults(program: ExportedProgram, facts: SignatureFacts) -> Iterator[Fault]:
    """How a program's signature differs from its graph and weights."""
    graph = program.graph

    def check(every: bool) -> list[tuple[str, int, int]] | None:
        return _core.check_signature(
            graph, facts.inputs, facts.outputs, facts.state_dict, facts.constants, facts.parameter, every
        )

    found = check(False) and check(True)
    if found is None:
        yield fault("FX401", None, "the program has no signature")
    elif found:
        signature, results = program.graph_signature, _results(graph)
        for code, index, result in found:
            message = _signature_fault(graph, signature, results, facts, code, index, result)
            if message:
                node = signature.input_specs[index].arg.name if code in _OF_INPUTS else None
                yield fault("FX401", node, message)


def _signature_fault(
    graph: Graph, signature: Any, results: list[Any], facts: SignatureFacts, code: str, index: int, result: int
) -> str:
    """The message; empty when a second look, at what the core does not have, finds all well."""
    if code in _OF_INPUTS:
        read = signature.input_specs[index]
        if code == "BUFFER_MISSING" and read.target in facts.elsewhere():
            return ""
        return _OF_INPUTS[code](read.arg.name, read, _placeholder(graph, index))
    spec: Any = signature.output_specs[index] if index >= 0 else None
    if code == "USER_CONSTANT":
        return "" if _are_equal(results[result], spec.arg.value) else _user_output(spec, results[result], result)
    return _OF_OUTPUTS[code](graph, signature, spec, results, result)


def _are_equal(a: Any, b: Any) -> bool:
    try:
        return not a != b
    except Exception:  # arrays, and objects that can't be compared
        return False


def _results(graph: Graph) -> list[Any]:
    """What the graph returns: names of nodes, and constants."""
    last = list(graph.nodes)[-1:]
    if not last or last[0].op != "output" or not last[0].args or not isinstance(last[0].args[0], tuple | list | dict):
        return []
    return [item.name if isinstance(item, _core.Node) else item for item in last[0].args[0]]


def _placeholder(graph: Graph, index: int) -> str:
    names = [node.name for node in graph.nodes if node.op == "placeholder"]
    return names[index] if index < len(names) else ""


def _user_output(spec: Any, result: Any, place: int) -> str:
    want = spec.arg.value if hasattr(spec.arg, "value") else spec.arg.name
    return f"result {place} is {shown(result)}, but the signature has {shown(want)} there; bring them into one order"


def _differing(have: list[str], want: list[str]) -> str:
    return f"in the graph only: {sorted(set(have) - set(want))}; in the signature only: {sorted(set(want) - set(have))}"


def _input_count(graph: Graph, signature: Any, spec: Any, results: list[Any], result: int) -> str:
    names = [node.name for node in graph.nodes if node.op == "placeholder"]
    specs = [spec.arg.name for spec in signature.input_specs]
    return (
        f"the graph has {len(names)} inputs, but the signature {len(specs)}; change them together, "
        f"with add_input and remove_input ({_differing(names, specs)})"
    )


def _output_count(graph: Graph, signature: Any, spec: Any, results: list[Any], result: int) -> str:
    specs = [str(spec.arg.name) for spec in signature.output_specs]
    return (
        f"the graph has {len(results)} results, but the signature {len(specs)}; change them together, "
        f"with add_output and remove_output ({_differing([str(each) for each in results], specs)})"
    )


_KINDS_OF_ARGUMENTS = {
    "CUSTOM_OBJ": "a CustomObjArgument",
    "TOKEN": "a TokenArgument",
    "USER_INPUT": "something that callers have",
}

_OF_INPUTS: Mapping[str, Callable[[str, Any, str], str]] = {
    "INPUT_NAME": lambda name, spec, node: (
        f"the signature has the input '{name}' where the graph has '{node}'; bring them into one order"
    ),
    "INPUT_CLASS": lambda name, spec, node: (
        f"the input '{name}' is a {spec.kind.name}, so it has to be "
        f"{_KINDS_OF_ARGUMENTS.get(spec.kind.name, 'a TensorArgument')}, not a {type(spec.arg).__name__}"
    ),
    "INPUT_TARGET": lambda name, spec, node: (
        f"the input '{name}' is a {spec.kind.name}, but its target does not tell which"
    ),
    "PARAMETER_MISSING": lambda name, spec, node: (
        f"the input '{name}' is the parameter '{spec.target}', which the state dict does not have"
    ),
    "PARAMETER_TYPE": lambda name, spec, node: (
        f"the input '{name}' is the parameter '{spec.target}', but the state dict's is no torch.nn.Parameter"
    ),
    "BUFFER_PERSISTENCE": lambda name, spec, node: (
        f"the input '{name}' is the buffer '{spec.target}', but nothing tells whether it is persistent"
    ),
    "BUFFER_MISSING": lambda name, spec, node: (
        f"the input '{name}' is the buffer '{spec.target}', which neither the state dict nor the constants have"
    ),
    "BUFFER_IN_STATE": lambda name, spec, node: (
        f"the input '{name}' is the buffer '{spec.target}', which is not persistent, so the state dict may not have it"
    ),
    "CONSTANT_MISSING": lambda name, spec, node: (
        f"the input '{name}' is '{spec.target}' of the constants, which do not have it"
    ),
}

_OF_OUTPUTS: Mapping[str, Callable[[Any, Any, Any, list[Any], int], str]] = {
    "INPUT_COUNT": _input_count,
    "NO_OUTPUT": lambda *_: "the graph does not end with an output; give it one with graph.output(...)",
    "OUTPUT_FORM": lambda *_: "the output has to return a tuple of its results, even of one",
    "OUTPUT_COUNT": _output_count,
    "OUTPUT_CLASS": lambda graph, signature, spec, results, result: (
        f"the output '{spec.arg.name}' is a {spec.kind.name}, but a {type(spec.arg).__name__}"
    ),
    "MUTATION_TARGET": lambda graph, signature, spec, results, result: (
        f"the output '{spec.arg.name}' is a {spec.kind.name} of '{spec.target}', which is no input of that kind"
    ),
    "MUTATION_RESULT": lambda graph, signature, spec, results, result: (
        f"result {result}, {shown(results[result])}, stands among the updates of inputs, but the signature has no "
        f"such update; they are: {dict(signature.buffers_to_mutate)}, {dict(signature.parameters_to_mutate)}, "
        f"{dict(signature.user_inputs_to_mutate)}"
    ),
    "USER_OUTPUT": lambda graph, signature, spec, results, result: _user_output(spec, results[result], result),
}
