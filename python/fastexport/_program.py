"""ExportedProgram: what a .pt2 file holds, opened without torch.

The C part reads and checks the file (`_core.Program`); the graph lives in the core and may be edited; signature, value
tables and weights follow. Documents that say more than the graph (module call graph, ranges, guards) are decoded when
they are asked for.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Collection, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

from fastexport import _core
from fastexport._arguments import check_mapping
from fastexport._display import Displayed
from fastexport._errors import Fault, Faults, FormatError, VerifyError, format_error, naming
from fastexport._graph import Graph
from fastexport._program_passes import ProgramPasses
from fastexport._ranges import ValueRange
from fastexport._state import InputTargets, Storages, TensorDict

if TYPE_CHECKING:
    from fastexport._core import Node, Program, Tensor
    from fastexport._graph_module import GraphModule
    from fastexport._notebook import View
    from fastexport._signature import ExportGraphSignature, InputKind, ModuleCallEntry
    from fastexport._stats import Summary
    from fastexport._treespec import TreeSpec
    from fastexport._verifier import Verifier

Level = Literal["lenient", "strict"]


class CallSpec(NamedTuple):
    """How the arguments and results of a program are nested."""

    in_spec: TreeSpec | None
    out_spec: TreeSpec | None


class ExportedProgram(ProgramPasses, Displayed):
    """An exported program: a graph, its signature, weights, and what torch.export notes beside them.

    Made by `fastexport.load`. The attributes can't be set; the graph itself can be edited with all that a `Graph`
    offers, and the signature, the values and the weights follow.

    Example:
        >>> import fastexport
        >>> ep = fastexport.load("tests/data/pt2/samples/current/linear.pt2")
        >>> ep.graph_signature.user_inputs
        ('x',)
        >>> ep.state_dict["fc.weight"].shape
        (3, 4)
    """

    _program: Program
    _graph: Graph

    def __init__(self, program: Program, *, mmap: bool = True) -> None:
        set_ = object.__setattr__
        set_(self, "_program", program)
        set_(self, "_graph", program.build(Graph))
        set_(self, "_storages", Storages(program.archive, mmap))
        set_(self, "_inputs", InputTargets(self._graph))
        set_(self, "_weights", TensorDict(program, self._storages, self._inputs, constants=False))
        set_(self, "_constants", TensorDict(program, self._storages, self._inputs, constants=True))
        set_(self, "_calls", None)
        set_(self, "_guards", None)
        set_(self, "faults", Faults(Fault(*fault) for fault in [*program.archive.faults, *program.faults]))

    _storages: Storages
    _weights: TensorDict
    _constants: TensorDict
    _inputs: InputTargets
    _calls: list[dict[str, Any]] | None  # the module call graph, in the file's form, once an edit has changed it
    _guards: list[str] | None  # likewise the guards
    faults: Faults[Fault]

    def __setattr__(self, name: str, value: Any) -> None:
        raise _read_only(name)

    def __delattr__(self, name: str) -> NoReturn:
        raise RuntimeError(f"{name!r} of an ExportedProgram can't be deleted")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError("an ExportedProgram can't be called itself; call what its module() gives")

    # ---- the contract of torch's class

    @property
    def graph(self) -> Graph:
        """The program's graph."""
        return self._graph

    @property
    def graph_module(self) -> GraphModule:
        """The graph with its subgraphs and weights as attributes."""
        from fastexport._graph_module import GraphModule
        from fastexport._meta_json import decode_metadata

        metadata = self._program.json("model", "graph_module", "metadata") or {}
        return GraphModule.of_program(self._graph, self._weights, decode_metadata(metadata))

    @property
    def graph_signature(self) -> ExportGraphSignature:
        """What inputs and outputs stand for, now: made anew at each call."""
        from fastexport._signature import signature_of

        return signature_of(self._graph, self._program)

    @property
    def state_dict(self) -> TensorDict:
        """Parameters and persistent buffers by name, each read from the file when it is touched."""
        return self._weights

    @property
    def constants(self) -> TensorDict:
        """Constant tensors, non-persistent buffers and custom objects by name."""
        return self._constants

    @property
    def tensor_constants(self) -> Mapping[str, Any]:
        """The same as `constants`, under its old name."""
        return self.constants

    @property
    def range_constraints(self) -> dict[_core.Expr, ValueRange]:
        """What each dynamic size may be; of those that the program uses."""
        return {
            _core.Expr.parse(key, form="str"): ValueRange(lower, upper)
            for key, lower, upper, seen in self._program.ranges()
            if seen
        }

    def _ranges(self) -> dict[_core.Expr, ValueRange]:
        """The range constraints as fastexport has them, whatever the program came from."""
        return self.range_constraints

    def _without_torch(self, value: Any) -> Any:
        """The value of a node as fastexport has it, whatever the program came from."""
        return value

    @property
    def module_call_graph(self) -> list[ModuleCallEntry]:
        """The modules of the program, the program itself first."""
        from fastexport._signature import module_calls_of

        return module_calls_of(self)

    def _module_calls(self) -> list[dict[str, Any]]:
        """The module call graph in the file's form and with the file's names of nodes; of new nodes, their own."""
        from fastexport._signature import replaced_in_calls, with_names

        replaced = replaced_in_calls(self._graph)
        return with_names(self._stored_calls(), replaced) if replaced else self._stored_calls()

    def _stored_calls(self) -> list[dict[str, Any]]:
        """The same before any node in it was replaced."""
        calls = self._program.json("model", "graph_module", "module_call_graph") if self._calls is None else self._calls
        return calls or []

    def _set_module_calls(self, calls: list[dict[str, Any]]) -> None:
        object.__setattr__(self, "_calls", calls)

    def _read_spec(self, spec: Any) -> TreeSpec:
        """A tree spec of the module call graph."""
        from fastexport._treespec import TreeSpec

        fields = self._program.json("model", "graph_module", "treespec_namedtuple_fields") or {}
        return TreeSpec.from_json(spec, fields)

    def _write_spec(self, spec: TreeSpec) -> Any:
        """A tree spec as the module call graph has it."""
        return spec.to_json()

    @property
    def call_spec(self) -> CallSpec:
        """How arguments and results are nested."""
        entries = self.module_call_graph
        signature = entries[0].signature if entries else None
        return CallSpec(signature.in_spec, signature.out_spec) if signature else CallSpec(None, None)

    @property
    def example_inputs(self) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The arguments the program was exported with: (args, kwargs), or None; also once it takes others.

        They are pickled in the file; only tensors and plain containers are read, nothing is called.

        Raises:
            FormatError: the pickle asks for anything else; the message names it.
        """
        from fastexport._interface import takes_other_inputs
        from fastexport._unpickle import load_example_inputs

        entry = self._program.sample_inputs
        if entry is None or takes_other_inputs(self) or not self._storages[entry].nbytes:
            return None
        return load_example_inputs(self._storages[entry], entry=entry)

    @property
    def dialect(self) -> str:
        """The dialect of the operators: ``"TRAINING"``, ``"ATEN"`` or that of a backend."""
        return self.verifiers[0]

    @property
    def verifiers(self) -> list[str]:
        """The dialects whose verifiers the program claims to pass."""
        return self._program.json("model", "verifiers") or ["ATEN"]

    @property
    def verifier(self) -> Any:
        """The first of `verifiers`, whose dialect is the program's."""
        return self.verifiers[0]

    @property
    def guards(self) -> list[str]:
        """Conditions on the inputs, as Python texts. They are shown, and never run."""
        return self._program.json("model", "guards_code") or [] if self._guards is None else self._guards

    def _set_guards(self, guards: list[str]) -> None:
        if guards != self.guards:
            object.__setattr__(self, "_guards", guards)

    @property
    def opset_version(self) -> dict[str, int]:
        """Versions of operator sets."""
        return self._program.json("model", "opset_version")

    @property
    def schema_version(self) -> tuple[int, int] | None:
        """The version of the file's schema; None of a program that came from torch."""
        version = self._program.json("model", "schema_version")
        return (version["major"], version["minor"]) if version else None

    @property
    def torch_version(self) -> str:
        """The torch that wrote the program."""
        return self._program.json("model", "torch_version") or "<=2.4"

    @property
    def extra_files(self) -> dict[str, bytes]:
        """The files that were saved along with the program, by name."""
        prefix = "extra_files/" if self._program.layout == "C" else "extra/"
        archive = self._program.archive
        return {name[len(prefix) :]: archive.read(name) for name, *_ in archive.entries() if name.startswith(prefix)}

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """(name, tensor) of each parameter."""
        return ((name, self.state_dict[name]) for name in self.graph_signature.parameters)

    def parameters(self) -> Iterator[Tensor]:
        """Each parameter."""
        return (tensor for _, tensor in self.named_parameters())

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """(name, tensor) of each buffer."""
        signature = self.graph_signature
        apart = set(signature.non_persistent_buffers)
        for name in signature.buffers:
            is_constant = name in apart or name not in self.state_dict
            yield name, self.constants[name] if is_constant else self.state_dict[name]

    def buffers(self) -> Iterator[Tensor]:
        """Each buffer."""
        return (tensor for _, tensor in self.named_buffers())

    # ---- checks

    def verify(
        self,
        *,
        all: bool = False,
        level: Level = "lenient",
        weights: bool = True,
        dialect: str | type[Verifier] | Verifier | None = None,
    ) -> Faults[Fault]:
        """Check the program as it is now; one that was read from a file without torch.

        What torch's own verifier checks, and of a file: checksums, weights against the graph, arguments against the
        operators' schemas, symbols that nothing binds, and more. A program that came from torch is judged as torch
        does, which passes much that no file can hold; ``level="strict"`` tells of that too.

        Args:
            all: return every error and warning instead of raising.
            level: "strict" also reports what torch's exporter would not have written, and of a program that came from
                torch what `save`, and `load` after it, would refuse.
            weights: also read all weights to their ends and check their checksums.
            dialect: the name or class of a dialect to check, in the place of those that the program is of: a
                `Verifier`, and for programs that came from torch one of torch's too.

        Returns:
            The faults, warnings included; without ``all``, warnings only.

        Raises:
            VerifyError: there are errors, and ``all`` is false; of a program that came from torch it is torch's
                SpecViolationError too.
            ValueError: there is no such level or dialect.
        """
        if level not in ("lenient", "strict"):
            raise ValueError(f"level must be 'lenient' or 'strict', not {level!r}")
        faults = self._check(strict=level == "strict", limit=0 if weights else None, dialect=dialect)
        if not all:
            self._raise_faults(faults)
        return Faults(faults)

    def _raise_faults(self, faults: list[Fault]) -> None:
        if any(fault.is_error for fault in faults):
            raise VerifyError(faults)

    def validate(self) -> None:
        """The same as `verify`, for errors only."""
        self.verify()

    def _check(self, *, strict: bool, limit: int | None, dialect: Any = None) -> list[Fault]:
        from fastexport._interface import calls_text

        try:
            found = self._program.verify(self._graph, strict, calls_text(self))
        except VerifyError as error:  # meta that no file can hold
            return list(error.faults)
        if limit is not None:
            found += self._program.check_payloads(limit)
        faults = [Fault(*fault) for fault in found]
        if any(fault.code == "FX301" for fault in faults):
            from fastexport._lift import tell_unlifted

            faults = tell_unlifted(self, faults)
        if self._weights.changed or self._constants.changed:
            from fastexport._state import with_changes

            faults = with_changes(faults, self, strict=strict)
        if dialect is None and "fastexport._verifier" not in sys.modules:  # so nobody has defined a dialect
            return faults
        from fastexport._verifier import with_dialects

        return with_dialects(self, faults, dialect)

    def draw(self, path: Any = None, **options: Any) -> str:
        """A picture of the program, as SVG or for Graphviz; see `fastexport.draw`."""
        from fastexport._draw import draw

        return draw(self, path, **options)

    def save(
        self, path_or_file: Any, *, extra_files: Mapping[str, str | bytes] | None = None, verify: bool = True
    ) -> None:
        """Write the program; see `fastexport.save`."""
        from fastexport._save import save

        save(self, path_or_file, extra_files=extra_files, verify=verify)

    # ---- inputs and outputs

    def rename_input(self, old: str, new: str) -> None:
        """Give an input another name, in the graph, the signature and the calling convention of modules.

        Args:
            old: the name of its placeholder.
            new: a name that no node has: an identifier. forward's parameter, and a keyword argument, that bears the
                old one gets it too.

        Raises:
            ValueError: there is no such input, or the name is taken or can't be one.
        """
        from fastexport import _interface

        _interface.rename_input(self, old, new)

    def add_input(self, name: str, value: Any) -> Node:
        """Add an input: the last positional argument of the program.

        Args:
            name: of its placeholder, and of the parameter.
            value: its `TensorMeta`, or `SymInt` and the like: what the program may rely on.

        Returns:
            The placeholder, which nobody uses yet.

        Raises:
            ValueError: the name is taken, or can't be one.
            TypeError: the value is something else, such as a tensor.

        >>> import fastexport
        >>> ep = fastexport.load("tests/data/pt2/samples/current/linear.pt2")
        >>> ep.add_input("scale", fastexport.TensorMeta(fastexport.DType("float32"), ()))
        scale
        >>> ep.graph_signature.user_inputs
        ('x', 'scale')
        """
        from fastexport import _interface

        return _interface.add_input(self, name, value)

    def remove_input(self, name: str) -> None:
        """Remove an input that nobody uses, with its weight or its argument.

        Args:
            name: the name of its placeholder.

        Raises:
            ValueError: there is no such input, something uses or updates it, or its argument is a field of a container
                that can't lose it.
        """
        from fastexport import _interface

        _interface.remove_input(self, name)

    def remove_unused_inputs(self, *, user_inputs: bool = False) -> list[str]:
        """Remove parameters, buffers and constants that nobody uses, with their weights.

        Args:
            user_inputs: the caller's arguments too; the program is then called without them.

        Returns:
            The names of the placeholders that are gone.

        >>> import fastexport
        >>> ep = fastexport.load("tests/data/pt2/samples/current/shared_weights.pt2")
        >>> ep.remove_unused_inputs(), "emb.weight" in ep.state_dict
        (['p_emb_weight'], False)
        """
        from fastexport import _interface

        return _interface.remove_unused_inputs(self, user_inputs)

    def add_output(self, node: Node) -> None:
        """Return a node's value too, as the last result. A program that returns one value then returns a tuple.

        Args:
            node: of the program's graph.

        Raises:
            ValueError: it is none.
        """
        from fastexport import _interface

        _interface.add_output(self, node)

    def remove_output(self, which: str | int) -> None:
        """Return one of the results no longer.

        Args:
            which: the name of its node, or its number among the results.

        Raises:
            ValueError: there is no such result, or it is the only one.
        """
        from fastexport import _interface

        _interface.remove_output(self, which)

    # ---- constants

    def add_constant(self, name: str, value: Any, *, kind: InputKind | None = None, persistent: bool = True) -> Node:
        """Add a constant, a parameter or a buffer: an input that the caller does not give.

        Args:
            name: its path in the program, such as ``"encoder.scale"``.
            value: a tensor, or what has a buffer; a program that came from torch takes torch tensors.
            kind: ``InputKind.PARAMETER``, ``BUFFER`` or, by default, ``CONSTANT_TENSOR``.
            persistent: of a buffer, whether it is in the state dict.

        Returns:
            Its placeholder, which nobody uses yet.

        Raises:
            ValueError: the program has a weight or constant of that name.
            TypeError: the value is no tensor, and has no buffer of numbers.

        >>> import array
        >>> ep = load("tests/data/pt2/samples/current/linear.pt2")
        >>> ep.add_constant("scale", array.array("f", [1, 2, 3]))
        c_scale
        >>> ep.graph_signature.lifted_tensor_constants, ep.constants["scale"].shape
        (('scale',), (3,))
        """
        from fastexport import _lift
        from fastexport._signature import InputKind

        return _lift.add_constant(self, name, value, kind or InputKind.CONSTANT_TENSOR, persistent)

    def lift_constants(self, values: Mapping[str, Any] | None = None) -> list[str]:
        """Make inputs of what get_attr nodes of the graph refer to: tensors and objects, but not subgraphs.

        As torch's own pass of that name: several nodes of one tensor become one input, and those without users go.
        What `unlift_constants` took out of the inputs becomes what it was.

        Args:
            values: path -> tensor, for nodes that refer to what the program has not got: new constants.

        Returns:
            The names of the inputs, in the order of the nodes.

        Raises:
            ValueError: a node refers to what is neither in the program nor in ``values``. Nothing is changed.

        >>> import array
        >>> ep = load("tests/data/pt2/samples/current/linear.pt2")
        >>> relu = ep.graph.node("relu")
        >>> with ep.graph.inserting_after(relu):
        ...     scale = ep.graph.get_attr("scale")
        ...     product = ep.graph.call_function("torch.ops.aten.mul.Tensor", (relu, scale))
        >>> scale.append(product)
        >>> product.meta["val"] = relu.meta["val"]
        >>> ep.graph.output_node().args = ((product,),)
        >>> ep.lift_constants({"scale": array.array("f", [1, 2, 3])})
        ['c_scale']
        >>> ep.validate()
        """
        from fastexport import _lift

        return _lift.lift_constants(self, values)

    def unlift_constants(self, names: Collection[str] | None = None) -> list[Node]:
        """Make get_attr nodes of inputs that are weights and constants, for a pass that wants them so.

        Nodes keep their names. A program has no such nodes: lift them again with `lift_constants` after the pass.

        Args:
            names: of weights and constants; by default all.

        Returns:
            The nodes.

        Raises:
            ValueError: no input is one of them.

        >>> ep = load("tests/data/pt2/samples/current/linear.pt2")
        >>> [(node, node.op, node.target) for node in ep.unlift_constants(["fc.bias"])]
        [(p_fc_bias, 'get_attr', 'fc.bias')]
        >>> ep.lift_constants()
        ['p_fc_bias']
        """
        from fastexport import _lift

        return _lift.unlift_constants(self, names)

    def unlift(self) -> GraphModule:
        """A module that refers to its weights and constants, and writes to what it updates, as torch's `module`.

        The program stays as it is. Tokens are gone, as the order of the nodes says what they said.

        Raises:
            ValueError: a call with an effect has no value, which would tell how many results it has.
            RuntimeError: something that has no effect uses a token.

        >>> ep = load("tests/data/pt2/samples/current/linear.pt2")
        >>> [node.name for node in ep.unlift().graph.nodes]
        ['fc_weight', 'fc_bias', 'x', 'linear', 'relu', 'output']
        """
        from fastexport import _lift

        return _lift.unlift(self)

    def _attribute(self, node: Node) -> Any:
        """What a get_attr node refers to, when it is no weight and no constant of the program's."""
        raise ValueError(f"node {node.name!r} refers to {node.target!r}, which the program has not got; give its value")

    def _as_value(self, value: Any, is_parameter: bool) -> Any:
        """A tensor as the program holds them."""
        from fastexport._state import as_parameter
        from fastexport._tensors import from_array

        tensor = value if isinstance(value, _core.Tensor) else from_array(value)
        return as_parameter(tensor, tensor.dtype.is_floating_point) if is_parameter else tensor

    def _is_parameter(self, value: Any) -> bool:
        return isinstance(value, _core.Tensor) and value.is_param

    def _meta_of(self, name: str, value: Any) -> Any:
        """What the graph knows of a weight or constant."""
        from fastexport._tensor_meta import TensorMeta

        return TensorMeta.of(value)

    def _add_values(self, values: Mapping[str, Any], *, is_constant: bool) -> None:
        state = self._constants if is_constant else self._weights
        for name, value in values.items():
            state[name] = value

    def _forget_values(self, names: Collection[str]) -> None:
        """Let those go that were assigned, and have no input any more; the file's own are gone already."""
        for state in (self._weights, self._constants):
            for name in state.changed.intersection(names):
                if name in state:
                    del state[name]

    # ---- torch

    def to_torch(
        self, *, copy: bool = True, example_inputs: bool = False, pickles: bool = False, allow: Collection[str] = ()
    ) -> Any:
        """Build the torch.export.ExportedProgram that this is.

        Of a program that was read from a file it is what torch.export.load makes of the file, edits included; code is
        generated only when it is looked at. torch executes names, tree specs, expressions and guards: they have to be
        of the known forms. Of a program that came from torch it is one with the same weights and all else.

        Args:
            copy: of a file's weights; False shares its memory: what is written there shows in this program, and is
                saved with it.
            example_inputs: also hand over the example inputs, which torch unpickles, with ``weights_only``.
            pickles: the file is trusted: constants that are pickles, and example inputs that hold more than tensors,
                are unpickled by torch, which runs what they say.
            allow: what tree specs may have imported, each as "module:name": factories of defaultdicts, and classes of
                enums.

        Returns:
            A torch.export.ExportedProgram that torch's verifier has passed.

        Raises:
            VerifyError: the program has errors.
            ValueError: torch has no such operator; a guard is not of the known form; a tree spec or a constant is not
                allowed for.
            ImportError: there is no torch.

        Example:
            >>> import fastexport
            >>> ep = fastexport.load("tests/data/pt2/samples/current/linear.pt2")
            >>> type(ep.to_torch())
            <class 'torch.export.exported_program.ExportedProgram'>
        """
        from fastexport import _torch_program

        return _torch_program.to_torch(self, copy=copy, example_inputs=example_inputs, pickles=pickles, allow=allow)

    def module(self, *, check_guards: bool = True) -> Any:
        """A torch.fx.GraphModule that runs the program; see `to_torch`, and torch's ``ExportedProgram.module``.

        Args:
            check_guards: check the inputs when it is called.
        """
        return self.to_torch().module(check_guards=check_guards)

    def run_decompositions(self, decomp_table: Mapping[Any, Any] | None = None) -> ExportedProgram:
        """The program with operators decomposed, which is torch's work; see `to_torch`.

        Args:
            decomp_table: operator of torch -> its decomposition; None: torch's table for the core operators of ATen.
        """
        from fastexport._torch_api import from_export

        check_mapping("decomp_table", decomp_table)
        table = None if decomp_table is None else dict(decomp_table)
        return from_export(self.to_torch().run_decompositions(table))

    # ---- for people

    def summary(self, *, depth: int | None = 3) -> Summary:
        """The modules of the program with their operators, parameters and bytes; see `fastexport.summary`."""
        from fastexport import _stats

        return _stats.summary(self, depth=depth)

    def view(self, *, height: int | str = 600, width: int | str = "100%") -> View:
        """The report page of the program, for a notebook: a page of its own in the cell.

        Args:
            height, width: of the frame: pixels, or a length of CSS such as ``"80vh"``.

        Raises:
            ValueError: it is no such length.
        """
        from fastexport._notebook import View

        return View(self, height, width)

    # ---- copies and text

    def __deepcopy__(self, memo: dict[int, Any]) -> ExportedProgram:
        twin = object.__new__(type(self))
        memo[id(self)] = twin
        set_ = object.__setattr__
        for name, value in self.__dict__.items():
            set_(twin, name, value)
        set_(twin, "_graph", copy.deepcopy(self._graph, memo))
        set_(twin, "_inputs", self._inputs.copy_for(twin._graph))
        for name in ("_weights", "_constants"):
            set_(twin, name, self.__dict__[name].copy_for(twin._inputs))
        set_(twin, "faults", Faults(self.faults))
        return twin

    def __copy__(self) -> ExportedProgram:
        return self.__deepcopy__({})

    def __reduce__(self) -> tuple[Any, ...]:
        from io import BytesIO

        file = BytesIO()
        self.save(file, verify=False)
        return _from_bytes, (file.getvalue(), self._program.model)

    def __repr__(self) -> str:
        from fastexport._summary import summary

        return summary(self)

    def __str__(self) -> str:
        code = self.graph_module.print_readable(print_output=False).replace("\n", "\n    ")
        signature = str(self.graph_signature).replace("\n", "\n    ")
        return (
            f"ExportedProgram:\n    {code}\nGraph signature: {signature}\nRange constraints: {self.range_constraints}\n"
        )


def _read_only(name: str) -> RuntimeError:
    return RuntimeError(
        f"{name!r} of an ExportedProgram can't be set; edit the graph in place, or assign to state_dict[...]"
    )


def _from_bytes(data: bytes, model: str) -> ExportedProgram:
    return load(data, verify=False, model=model)


# ---- opening -------------------------------------------------------------------------------------


def open_archive(path_or_file: Any, limits: Mapping[str, int] | None = None) -> _core.Archive:
    """The archive of a path, a URL of fsspec's, an open file, or bytes."""
    import os

    from fastexport import _remote

    chosen = dict(limits) if limits is not None else None
    if _remote.is_url(path_or_file):
        path_or_file = _remote.open_file_of(path_or_file)
    if _remote.is_open_file(path_or_file):
        with path_or_file as file:
            return _core.Archive(_file_source(file, path_or_file), chosen)
    if isinstance(path_or_file, str | os.PathLike):
        return _core.Archive(os.open(path_or_file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), chosen)
    if hasattr(path_or_file, "read"):
        return _core.Archive(_file_source(path_or_file, path_or_file), chosen)
    try:
        memoryview(path_or_file).release()
    except TypeError:
        raise TypeError(f"a path, an open binary file or bytes are needed, not {type(path_or_file).__name__}") from None
    return _core.Archive(path_or_file, chosen)


def _file_source(file: Any, place: Any) -> Any:
    """A descriptor of our own for a file of the disk that stands at its start, a `RemoteFile`, or the bytes.

    Others that have a descriptor, such as gzip's, give other bytes than lie behind it. place: see `ranges_of`.
    """
    import io
    import os

    from fastexport._remote import ranges_of

    if isinstance(getattr(file, "raw", file), io.FileIO):
        try:
            if file.tell() == 0:
                return os.dup(file.fileno())
        except OSError:  # a pipe
            pass
    remote = ranges_of(file, place)
    if remote is not None:
        return remote
    data = file.read()
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"a .pt2 file is binary: open it with 'rb'; read() gave {type(data).__name__}")
    return data


def load(
    path_or_file: Any,
    *,
    verify: bool = True,
    model: str | None = None,
    mmap: bool = True,
    extra_files: dict[str, Any] | None = None,
    limits: Mapping[str, int] | None = None,
) -> ExportedProgram:
    """Open a .pt2 file without torch. Nothing that the file holds is ever executed.

    All layouts that torch has written are read: the present archive (layout A), the archive with pickled weights (B)
    and the flat zip of torch 2.7 and before (C).

    Args:
        path_or_file: a path, an open binary file, or the bytes; a URL or an OpenFile of fsspec, of which only what is
            needed is fetched when it is large (``"filecache::s3://..."`` keeps a copy on the disk, whose weights are
            then mapped).
        verify: check the program too, with the checksums of weights when they are no more than
            ``limits["checked_bytes"]`` in all; of more, none is read, and each is checked when it is first touched.
            Without it only what reading needs is checked.
        model: the name of the model, of an archive with several; by default ``"model"``, or the only one.
        mmap: map weights into memory when they are touched. The file must then not be cut short while it is open;
            ``False`` reads them instead.
        extra_files: a dict to be filled with the texts of the files saved along, as torch.export.load does.
        limits: what a file may ask of us, by name, in the place of the defaults of `fastexport.LIMITS`; 0 is no limit.

    Returns:
        The program. What was noted without being an error is in its ``faults``.

    Raises:
        FormatError: the file is damaged, or no exported program; it names the entry and the JSON path.
        OSError: the file can't be read: FileNotFoundError and the like, as open() raises them.
        TypeError: an option is of another type.

    Example:
        >>> import fastexport
        >>> ep = fastexport.load("tests/data/pt2/samples/current/linear.pt2")
        >>> len(ep.graph.nodes)
        6
    """
    _check_options(verify, model, mmap, extra_files, limits)
    with naming(path_or_file):
        program = _core.Program(open_archive(path_or_file, limits), model)
        ep = ExportedProgram(program, mmap=mmap)
        if verify:
            budget = (limits or {}).get("checked_bytes", LIMITS["checked_bytes"])
            faults = ep._check(strict=False, limit=budget or 0)
            if any(fault.is_error for fault in faults):
                raise format_error([*faults])
            ep.faults.extend(faults)
        if extra_files is not None:
            extra_files.update((name, _text_of(name, data)) for name, data in ep.extra_files.items())
    return ep


def _check_options(verify: Any, model: Any, mmap: Any, extra_files: Any, limits: Any) -> None:
    """Raise for what can't be an option of `load`; the message names it."""
    for name, value, cls, wanted in (
        ("verify", verify, bool, "a bool"),
        ("model", model, str | None, "a str, the name of a model, or None"),
        ("mmap", mmap, bool, "a bool"),
        ("extra_files", extra_files, MutableMapping | None, "a dict to be filled, or None"),
        ("limits", limits, Mapping | None, "a dict of the names of limits and numbers, or None"),
    ):
        if not isinstance(value, cls):
            raise TypeError(f"load() takes as {name} {wanted}, not {type(value).__name__}")
    if model is not None and not _is_text(model):
        raise ValueError(f"no model is named {model!r}: it holds a lone surrogate")


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text_of(name: str, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        message = f"the extra file {name!r} is no text in UTF-8; the program's extra_files has its bytes"
        raise FormatError(message, entry=f"extra/{name}", kind="unsupported") from None


# The limits that a file must keep by default; 0 is no limit. See csrc/pt2/report.h.
LIMITS: Mapping[str, int] = _core.default_limits()


def load_if_file(g: Any) -> Any:
    """What is given; of a .pt2 file (its path, an open one, its bytes) the program, which is not verified.

    Raises:
        FormatError, OSError: it can't be read.
    """
    from fastexport import _remote

    is_data = isinstance(g, str | bytes | bytearray | memoryview) or hasattr(g, "__fspath__")
    is_file = is_data or (not hasattr(g, "graph") and (hasattr(g, "read") or _remote.is_open_file(g)))
    return load(g, verify=False) if is_file else g


def is_pt2(path_or_file: Any) -> bool:
    """Whether a file is an exported program, by a look at its archive only.

    Args:
        path_or_file: a path, an open binary file, or the bytes.

    Returns:
        False for anything else, and for a file that is not there.
    """
    try:
        archive = open_archive(path_or_file)
        names = {name for name, *_ in archive.entries()}
        if "serialized_exported_program.json" in names:
            return True
        return "archive_format" in names and archive.read("archive_format") == b"pt2"
    except (FormatError, OSError):
        return False
