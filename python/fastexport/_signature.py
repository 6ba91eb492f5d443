"""What the inputs and outputs of an exported program stand for: torch.export's signature types, without torch.

Names, fields, printed forms and derived properties are those of torch.export.graph_signature (2.13).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fastexport._records import Record
from fastexport._tables import Column, Table, Tabular

if TYPE_CHECKING:
    from fastexport._core import Program
    from fastexport._graph import Graph
    from fastexport._program import ExportedProgram


class TensorArgument(Record):
    """An input or output that is a tensor; `name` is that of its node."""

    name: str


class TokenArgument(Record):
    """A token, which orders effects."""

    name: str


class SymIntArgument(Record):
    """A symbolic integer."""

    name: str


class SymFloatArgument(Record):
    """A symbolic float."""

    name: str


class SymBoolArgument(Record):
    """A symbolic truth value."""

    name: str


class CustomObjArgument(Record):
    """A TorchBind object; `class_fqn` names its class."""

    name: str
    class_fqn: str
    fake_val: Any = None


class ConstantArgument(Record):
    """A Python constant: an input that the program does not look at, or a result that is always the same."""

    name: str
    value: int | float | bool | str | None


ArgumentSpec = (
    TensorArgument
    | SymIntArgument
    | SymFloatArgument
    | SymBoolArgument
    | ConstantArgument
    | CustomObjArgument
    | TokenArgument
)


class InputKind(Enum):
    """What an input is."""

    USER_INPUT = 1
    PARAMETER = 2
    BUFFER = 3
    CONSTANT_TENSOR = 4
    CUSTOM_OBJ = 5
    TOKEN = 6


class OutputKind(Enum):
    """What an output is."""

    USER_OUTPUT = 1
    LOSS_OUTPUT = 2
    BUFFER_MUTATION = 3
    PARAMETER_MUTATION = 4
    GRADIENT_TO_PARAMETER = 5
    GRADIENT_TO_USER_INPUT = 6
    USER_INPUT_MUTATION = 7
    TOKEN = 8


def _check_argument(arg: object) -> None:
    if not isinstance(arg, ArgumentSpec):
        raise TypeError(f"the argument of a spec is a TensorArgument or the like, not {type(arg).__name__}")


class InputSpec(Record):
    """One input.

    Attributes:
        kind: what it is.
        arg: which node it is.
        target: the parameter, buffer, constant or object it stands for; None for user inputs and tokens.
        persistent: of a buffer, whether it is in the state dict; None for the others.
    """

    kind: InputKind
    arg: ArgumentSpec
    target: str | None
    persistent: bool | None = None

    def _check(self) -> None:
        _check_argument(self.arg)
        if self.kind is InputKind.BUFFER and self.persistent is None:
            raise ValueError(f"the buffer {self.target!r} needs persistent=True or persistent=False")

    def __str__(self) -> str:
        target = "" if self.target is None else f" target='{self.target}'"
        persistent = "" if self.persistent is None else f" persistent={self.persistent}"
        return f"{self.arg.name}: {self.kind.name}{target}{persistent}"


class OutputSpec(Record):
    """One output.

    Attributes:
        kind: what it is.
        arg: which node it is, or which constant.
        target: the buffer, parameter or user input that it updates or is the gradient of; None for the others.
    """

    kind: OutputKind
    arg: ArgumentSpec
    target: str | None

    def _check(self) -> None:
        _check_argument(self.arg)

    def __str__(self) -> str:
        target = "" if self.target is None else f" target='{self.target}'"
        return f"{self.arg.name}: {self.kind.name}{target}"


class ExportBackwardSignature(Record):
    """Which outputs of a joint graph are gradients, and which is the loss."""

    gradients_to_parameters: dict[str, str]
    gradients_to_user_inputs: dict[str, str]
    loss_output: str


_Constant = int | float | bool | str | None


class ExportGraphSignature(Record, Tabular):
    """The inputs and outputs of a program, in the order of its placeholders and results.

    The signature that an `ExportedProgram` gives is a picture of the program as it is at that moment: the program keeps
    its own in step with edits of the graph; changing this object changes nothing.

    >>> s = ExportGraphSignature(
    ...     [InputSpec(InputKind.PARAMETER, TensorArgument("p_w"), "w"),
    ...      InputSpec(InputKind.USER_INPUT, TensorArgument("x"), None)],
    ...     [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument("add"), None)])
    >>> dict(s.inputs_to_parameters)
    {'p_w': 'w'}
    >>> print(s)
    <BLANKLINE>
    # inputs
    p_w: PARAMETER target='w'
    x: USER_INPUT
    <BLANKLINE>
    # outputs
    add: USER_OUTPUT
    <BLANKLINE>
    """

    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]

    def _targets(self, kind: InputKind) -> tuple[str, ...]:
        return tuple(s.target for s in self.input_specs if s.kind is kind and s.target is not None)

    def _inputs(self, kind: InputKind, cls: type = TensorArgument) -> Mapping[str, str]:
        return _targets_by_name(self.input_specs, kind, cls)

    def _outputs(self, kind: OutputKind) -> Mapping[str, str]:
        return _targets_by_name(self.output_specs, kind, TensorArgument)

    @property
    def parameters(self) -> Collection[str]:
        """Names of the parameters."""
        return self._targets(InputKind.PARAMETER)

    @property
    def buffers(self) -> Collection[str]:
        """Names of the buffers."""
        return self._targets(InputKind.BUFFER)

    @property
    def non_persistent_buffers(self) -> Collection[str]:
        """Names of the buffers that are not in the state dict."""
        return tuple(
            s.target
            for s in self.input_specs
            if s.kind is InputKind.BUFFER and s.persistent is False and s.target is not None
        )

    @property
    def lifted_tensor_constants(self) -> Collection[str]:
        """Names of the tensors that are constants."""
        return self._targets(InputKind.CONSTANT_TENSOR)

    @property
    def lifted_custom_objs(self) -> Collection[str]:
        """Names of the TorchBind objects."""
        return self._targets(InputKind.CUSTOM_OBJ)

    @property
    def user_inputs(self) -> Collection[_Constant]:
        """Node names of what the caller gives; a constant by its value."""
        return tuple(_user_value(s.arg) for s in self.input_specs if s.kind is InputKind.USER_INPUT)

    @property
    def user_outputs(self) -> Collection[_Constant]:
        """Node names of what the caller gets; a constant by its value."""
        kinds = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
        return tuple(_user_value(s.arg) for s in self.output_specs if s.kind in kinds)

    @property
    def inputs_to_parameters(self) -> Mapping[str, str]:
        """Node name -> parameter."""
        return self._inputs(InputKind.PARAMETER)

    @property
    def inputs_to_buffers(self) -> Mapping[str, str]:
        """Node name -> buffer."""
        return self._inputs(InputKind.BUFFER)

    @property
    def inputs_to_lifted_tensor_constants(self) -> Mapping[str, str]:
        """Node name -> constant."""
        return self._inputs(InputKind.CONSTANT_TENSOR)

    @property
    def inputs_to_lifted_custom_objs(self) -> Mapping[str, str]:
        """Node name -> TorchBind object."""
        return self._inputs(InputKind.CUSTOM_OBJ, CustomObjArgument)

    @property
    def buffers_to_mutate(self) -> Mapping[str, str]:
        """Node name of a result -> the buffer that it updates."""
        return self._outputs(OutputKind.BUFFER_MUTATION)

    @property
    def parameters_to_mutate(self) -> Mapping[str, str]:
        """Node name of a result -> the parameter that it updates."""
        return self._outputs(OutputKind.PARAMETER_MUTATION)

    @property
    def user_inputs_to_mutate(self) -> Mapping[str, str]:
        """Node name of a result -> the user input that it updates."""
        return self._outputs(OutputKind.USER_INPUT_MUTATION)

    @property
    def backward_signature(self) -> ExportBackwardSignature | None:
        """The gradients and the loss of a joint graph; None when there is no loss."""
        loss = [s.arg.name for s in self.output_specs if s.kind is OutputKind.LOSS_OUTPUT]
        if not loss:
            return None
        if len(loss) > 1:
            raise ValueError(f"a joint graph has one loss, but these are: {', '.join(loss)}")
        return ExportBackwardSignature(
            dict(self._outputs(OutputKind.GRADIENT_TO_PARAMETER)),
            dict(self._outputs(OutputKind.GRADIENT_TO_USER_INPUT)),
            loss[0],
        )

    @property
    def assertion_dep_token(self) -> Mapping[int, str] | None:
        """Always None, as in torch."""
        return None

    @property
    def input_tokens(self) -> Collection[str]:
        """Node names of the tokens that come in."""
        return tuple(s.arg.name for s in self.input_specs if s.kind is InputKind.TOKEN)

    @property
    def output_tokens(self) -> Collection[str]:
        """Node names of the tokens that go out."""
        return tuple(s.arg.name for s in self.output_specs if s.kind is OutputKind.TOKEN)

    def replace_all_uses(self, old: str, new: str) -> None:
        """Let inputs and outputs that are one node be another one: what a pass over a torch.fx graph has to do.

        A program does this by itself when its graph is edited; it takes no notice of what is done to this picture.

        Args:
            old: the name of the node.
            new: that of the other one.
        """
        if not (isinstance(old, str) and isinstance(new, str)):
            raise TypeError("replace_all_uses() takes the names of two nodes")
        specs: list[InputSpec | OutputSpec] = [*self.input_specs, *self.output_specs]
        for spec in specs:
            if spec.arg.name == old and not isinstance(spec.arg, ConstantArgument):
                spec.arg.name = new

    def get_replace_hook(self, replace_inputs: bool = False) -> Callable[[Any, str, Any], None]:
        """A function that torch.fx calls when it replaces a node, so that this signature follows.

        Args:
            replace_inputs: also when a placeholder is replaced, whoever uses it.

        Returns:
            What torch's ``GraphModule._set_replace_hook`` takes: a function of the node, the name of the new one and
            the user.

        >>> s = ExportGraphSignature([], [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument("add"), None)])
        >>> class Node:
        ...     op, name = "output", "add"
        >>> s.get_replace_hook()(Node(), "mul", Node())
        >>> s.user_outputs
        ('mul',)
        """

        def follow(old: Any, new: str, user: Any) -> None:
            if user.op == "output" or (replace_inputs and old.op == "placeholder"):
                self.replace_all_uses(old.name, new)

        return follow

    def to_dict(self) -> dict[str, Any]:
        """Inputs and outputs, each as a dict of its kind, name, target and so on, for JSON."""
        rows = self.to_records()
        for row in rows:
            del row["side"]
        inputs = len(self.input_specs)
        return {"inputs": rows[:inputs], "outputs": rows[inputs:]}

    def _table(self) -> Table:
        columns = (Column("side"), Column("name"), Column("kind"), Column("target"), Column("persistent"))
        rows = [("input", s.arg.name, s.kind.name, s.target, s.persistent) for s in self.input_specs]
        rows += [("output", s.arg.name, s.kind.name, s.target, None) for s in self.output_specs]
        return Table(columns, rows)

    def __repr__(self) -> str:
        specs = (f"{name}=[{_some(getattr(self, name))}]" for name in self._fields)
        return f"ExportGraphSignature({', '.join(specs)})"

    def __str__(self) -> str:
        inputs = "\n".join(map(str, self.input_specs))
        outputs = "\n".join(map(str, self.output_specs))
        return f"\n# inputs\n{inputs}\n\n# outputs\n{outputs}\n"


_SHOWN = 10  # specs in a repr


def _some(specs: Collection[Any]) -> str:
    more = [f"+{len(specs) - _SHOWN} more"] if len(specs) > _SHOWN else []
    return ", ".join([*map(repr, list(specs)[:_SHOWN]), *more])


def _targets_by_name(specs: Collection[Any], kind: Enum, cls: type[Any]) -> Mapping[str, str]:
    chosen = (s for s in specs if s.kind is kind and s.target is not None and isinstance(s.arg, cls))
    return MappingProxyType({s.arg.name: s.target for s in chosen})


def _user_value(arg: ArgumentSpec) -> _Constant:
    if isinstance(arg, TokenArgument):
        raise RuntimeError(f"{arg} can't be an argument or a result of the user's")
    return arg.value if isinstance(arg, ConstantArgument) else arg.name


class ModuleCallSignature(Record):
    """The calling convention of a module that was preserved on export: its arguments, and how they are nested."""

    inputs: list[ArgumentSpec]
    outputs: list[ArgumentSpec]
    in_spec: Any
    out_spec: Any
    forward_arg_names: list[str] | None = None

    def replace_all_uses_with(self, original_node: Any, new_node: Any) -> None:
        """Let arguments and results that are one node be another one."""
        arguments: list[ArgumentSpec] = [*self.inputs, *self.outputs]
        for argument in arguments:
            if argument.name == original_node.name:
                argument.name = new_node.name


class ModuleCallEntry(Record):
    """A module of the program by its path, and its calling convention where that was preserved; "" is the program."""

    fqn: str
    signature: ModuleCallSignature | None = None


# ---- from what the file and the core hold ----------------------------------------------------------

_INPUT_KINDS = tuple(InputKind)  # by the core's numbers
_OUTPUT_KINDS = (
    OutputKind.USER_OUTPUT,
    OutputKind.LOSS_OUTPUT,
    OutputKind.BUFFER_MUTATION,
    OutputKind.GRADIENT_TO_PARAMETER,
    OutputKind.GRADIENT_TO_USER_INPUT,
    OutputKind.USER_INPUT_MUTATION,
    OutputKind.PARAMETER_MUTATION,
    OutputKind.TOKEN,
)
_NAMED: dict[str, Callable[[str], ArgumentSpec]] = {
    "as_tensor": TensorArgument,
    "as_sym_int": SymIntArgument,
    "as_sym_float": SymFloatArgument,
    "as_sym_bool": SymBoolArgument,
}


def signature_of(graph: Graph, program: Program) -> ExportGraphSignature:
    """The signature of a program's graph as it is now; the file tells the classes of arguments."""
    signature = graph._signature()
    if signature is None:
        return ExportGraphSignature([], [])
    inputs, outputs = signature
    return ExportGraphSignature(
        [_input_spec(spec, program, graph) for spec in inputs], [_output_spec(spec, program, graph) for spec in outputs]
    )


def weight_names(graph: Graph) -> tuple[list[str], list[str]]:
    """The names of parameters and of buffers in the signature of a program's graph, without making the signature."""
    names: dict[InputKind, list[str]] = {InputKind.PARAMETER: [], InputKind.BUFFER: []}
    for number, _, _, _, target, *_ in (graph._signature() or ((), ()))[0]:
        if target is not None and _INPUT_KINDS[number] in names:
            names[_INPUT_KINDS[number]].append(target)
    return names[InputKind.PARAMETER], names[InputKind.BUFFER]


def module_calls_of(program: ExportedProgram) -> list[ModuleCallEntry]:
    """The module call graph of a program, with the names that its nodes have now."""
    renamed = program.graph._renamed()
    fields = program._program.json("model", "graph_module", "treespec_namedtuple_fields") or {}
    return [
        ModuleCallEntry(entry["fqn"], _call_signature(entry.get("signature"), renamed, fields))
        for entry in program._module_calls()
    ]


def _call_signature(
    signature: dict[str, Any] | None, renamed: Mapping[str, str | None], fields: Mapping[str, Any]
) -> ModuleCallSignature | None:
    from fastexport._treespec import TreeSpec

    if signature is None:
        return None
    return ModuleCallSignature(
        [_renamed_argument(argument, renamed) for argument in signature["inputs"]],
        [_renamed_argument(argument, renamed) for argument in signature["outputs"]],
        TreeSpec.from_json(signature["in_spec"], fields),
        TreeSpec.from_json(signature["out_spec"], fields),
        signature.get("forward_arg_names"),
    )


def replaced_in_calls(graph: Graph) -> dict[str, str]:
    """Of the nodes of a file that its module call graph names, those in whose place others stand: {name: the other's}.

    The others go by the names that they have in the file, as far as they are of the file.
    """
    called = graph._called()
    changed = []
    for old in called:  # keys alone, and no comprehension: CPython 3.11 can't make the others when memory runs out
        if called[old] is not None and called[old] != old:
            changed.append(old)
    if not changed:
        return {}
    renamed = graph._renamed()
    in_file = {now: old for old, now in renamed.items() if now is not None}
    replaced = {}
    for old in changed:
        now = called[old]
        if now is not None and renamed.get(old) != now:
            replaced[old] = in_file.get(now, now)
    return replaced


def with_names(value: Any, names: Mapping[str, str]) -> Any:
    """Arguments of a document with names replaced."""
    if isinstance(value, list):
        return [with_names(item, names) for item in value]
    if isinstance(value, dict):
        return {
            key: names.get(item, item)
            if key in ("name", "as_name") and isinstance(item, str)
            else with_names(item, names)
            for key, item in value.items()
        }
    return value


def _renamed_argument(argument: Mapping[str, Any], renamed: Mapping[str, str | None]) -> ArgumentSpec:
    found = _argument_of_json(argument)
    if not isinstance(found, ConstantArgument):
        found.name = renamed.get(found.name) or found.name
    return found


def _input_spec(spec: tuple[Any, ...], program: Program, graph: Graph) -> InputSpec:
    number, node, value, name, target, persistent, origin = spec
    kind = _INPUT_KINDS[number]
    if kind is InputKind.TOKEN:
        return InputSpec(kind, TokenArgument(node or ""), target)
    if origin < 0 and node is not None:  # an edit has made it
        arg = argument_of_value(node, graph.node(node).meta.get("val"))
        return InputSpec(kind, arg, target, persistent if kind is InputKind.BUFFER else None)
    was = None
    if kind in (InputKind.USER_INPUT, InputKind.CUSTOM_OBJ):
        was = _argument_in_file(program, "input_specs", origin)
    arg = _argument(node, value, name, was)
    return InputSpec(kind, arg, target, persistent if kind is InputKind.BUFFER else None)


def _output_spec(spec: tuple[Any, ...], program: Program, graph: Graph) -> OutputSpec:
    number, node, value, name, target, _, origin = spec
    kind = _OUTPUT_KINDS[number]
    if kind is OutputKind.TOKEN:
        return OutputSpec(kind, TokenArgument(node or ""), target)
    if kind is OutputKind.USER_OUTPUT and origin < 0 and node is not None:  # an edit has made it
        return OutputSpec(kind, argument_of_value(node, graph.node(node).meta.get("val")), target)
    was = _argument_in_file(program, "output_specs", origin) if kind is OutputKind.USER_OUTPUT else None
    return OutputSpec(kind, _argument(node, value, name, was), target)


def argument_of_value(name: str, value: Any) -> ArgumentSpec:
    """The argument that a node of that name and value is; one without a value passes for a tensor."""
    from fastexport._symbols import SymBool, SymFloat, SymInt

    for symbolic, cls in ((SymInt, SymIntArgument), (SymFloat, SymFloatArgument), (SymBool, SymBoolArgument)):
        if isinstance(value, symbolic):
            return cls(name)
    return CustomObjArgument(name, value.class_fqn) if isinstance(value, CustomObjArgument) else TensorArgument(name)


def _argument_in_file(program: Program, specs: str, origin: int) -> ArgumentSpec | None:
    """What the file says of an input or output; None for one that an edit made."""
    if origin < 0:
        return None
    ((tag, value),) = program.json("model", "graph_module", "signature", specs, origin).items()
    if tag == "custom_obj":
        return _argument_of_json({"as_custom_obj": value["arg"]})
    return _argument_of_json(value["arg"]) if tag in ("user_input", "user_output") else None


def _argument_of_json(argument: Mapping[str, Any]) -> ArgumentSpec:
    """An Argument of the file's schema as one of the classes above."""
    ((tag, value),) = argument.items()
    if tag == "as_custom_obj":
        return CustomObjArgument(value["name"], value["class_fqn"])
    if tag in _NAMED and isinstance(value, dict):
        name = value.get("name", value.get("as_name"))
        if name is not None:
            return _NAMED[tag](name)
        (value,) = value.values()
    return ConstantArgument("", None if tag == "as_none" else value)


def _argument(node: str | None, value: _Constant, name: str | None, was: ArgumentSpec | None) -> ArgumentSpec:
    """The argument of an input or output as it is now; `was` is what the file says of it."""
    if node is None:
        return ConstantArgument(name or "", value)
    if isinstance(was, CustomObjArgument):
        return CustomObjArgument(node, was.class_fqn)
    if isinstance(was, SymIntArgument | SymFloatArgument | SymBoolArgument):
        return type(was)(node)
    return TensorArgument(node)
