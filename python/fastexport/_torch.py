"""The bridge to torch.fx and torch.export: converting graphs, and passes on live torch graphs.

This is the one module that relies on how torch.fx keeps its graphs. What it relies on is checked when it is imported;
on a torch where that differs, and for graphs that are out of the ordinary (hooks, subclasses with methods of their own,
a damaged list of nodes), the work is done through torch's public API instead (see `_torch_public`), with the same
result.
"""

from __future__ import annotations

import copy
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

import torch
import torch.fx
from torch.fx import graph as fx_graph_module
from torch.fx.immutable_collections import immutable_dict, immutable_list
from torch.fx.traceback import NodeSource, NodeSourceAction

from fastexport import _core, _torch_public
from fastexport._codegen import CodeGen, PyTreeCodeGen
from fastexport._edits import Insertion
from fastexport._errors import LintFault, lint_error
from fastexport._graph import Graph
from fastexport._meta_json import NodeSource as OurSource
from fastexport._provenance import with_sources
from fastexport._treespec import TreeSpec

# What torch.fx.Graph.__init__ sets: nodes and tables, which are built, not carried over.
_OWN_ATTRIBUTES = frozenset(torch.fx.Graph().__dict__)
_CARRIED = ("_codegen", "_tracer_cls", "_tracer_extras", "_co_fields")
_METHODS = ("create_node", "erase_node", "lint", "eliminate_dead_code", "nodes", "find_nodes")
_IS_IMPURE = torch.fx.Node.is_impure
_HOOK_LISTS = ("_replace_hooks", "_create_node_hooks", "_erase_node_hooks", "_deepcopy_hooks")
_HOOK_TABLES = ("_state_dict_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")


def _configure() -> bool:
    """Whether this torch keeps its graphs the way the C code knows."""
    graph = torch.fx.Graph()
    try:
        names, table = graph._graph_namespace, graph._find_nodes_lookup_table.table
        shaped = (
            type(table) is defaultdict
            and type(names._used_names) is set
            and type(names._base_count) is dict
            and type(names._obj_to_name) is dict
            and type(graph._len) is int
            and _OWN_ATTRIBUTES.issuperset(_CARRIED)
        )
        symbols = (torch.SymInt, torch.SymFloat, torch.SymBool)
        return shaped and _core.fx_configure(
            torch.fx.Node, fx_graph_module._illegal_names, symbols, torch._ops.OpOverload
        )
    except AttributeError:
        return False


_core.use_containers(immutable_list, immutable_dict)
_FAST = _configure()


def _is_ordinary(graph: torch.fx.Graph) -> bool:
    """Whether the C functions may stand in for the methods of a graph: they are torch's own."""
    kind = type(graph)
    return kind is torch.fx.Graph or all(getattr(kind, name) is getattr(torch.fx.Graph, name) for name in _METHODS)


_Kind = TypeVar("_Kind", bound=Graph)


class _Parts(NamedTuple):
    graph: torch.fx.Graph
    module: torch.fx.GraphModule | None  # to be recompiled when its graph changed
    program: torch.export.ExportedProgram | None


def _parts(obj: Any) -> _Parts:
    if isinstance(obj, torch.fx.Graph):
        return _Parts(obj, None, None)
    if isinstance(obj, torch.fx.GraphModule):
        return _Parts(obj.graph, obj, None)
    if isinstance(obj, torch.export.ExportedProgram):
        return _Parts(obj.graph_module.graph, obj.graph_module, obj)
    raise TypeError(
        f"expected a torch.fx.Graph, a torch.fx.GraphModule or a torch.export.ExportedProgram, not {type(obj).__name__}"
    )


def renew_code(module: torch.fx.GraphModule) -> None:
    """Recompile a module whose graph a pass has changed; its code is made when somebody looks at it."""
    from fastexport.acceleration import _recompile  # which imports this module

    _recompile.renew_code(module)


# ---- conversion


def from_fx(obj: Any) -> Graph:
    """See `fastexport.from_fx`."""
    if isinstance(obj, torch.export.ExportedProgram):
        raise TypeError("from_fx takes a graph or a module; of an ExportedProgram give its graph_module")
    if not isinstance(obj, (torch.fx.Graph, torch.fx.GraphModule)):
        raise TypeError(f"from_fx() takes a torch.fx.Graph or GraphModule, not {type(obj).__name__}")
    parts = _parts(obj)
    return _read(parts.graph, parts.module if parts.module is not None else parts.graph.owning_module, Graph)


def _read(source: torch.fx.Graph, module: Any, kind: type[_Kind]) -> _Kind:
    """A graph and those below it; one that stands in several places is one graph, as it is known by its id."""
    top, targets = _read_alone(source, module, kind)
    known = {id(source): top}
    left = [(top, module, targets)]
    while left:  # modules may nest deeper than calls may
        graph, module, targets = left.pop()
        subgraphs: dict[str, Graph] = {}
        for path, child in _graph_modules(module, targets):
            inner = known.get(id(child.graph))
            if inner is None:
                inner, below = _read_alone(child.graph, child, kind)
                known[id(child.graph)] = inner
                left.append((inner, child, below))
            subgraphs[path] = inner
        graph.subgraphs = subgraphs or None
    return top


def _read_alone(source: torch.fx.Graph, module: Any, kind: type[_Kind]) -> tuple[_Kind, list[str]]:
    """A graph without those below it, and what its nodes name in the module."""
    graph = kind()
    targets = _core.fx_read(source, graph) if _FAST else _torch_public.read(source, graph)
    graph.owning_module = module
    state = source.__dict__
    extras = {name: value for name, value in state.items() if name not in _OWN_ATTRIBUTES}
    extras.update((name, state[name]) for name in _CARRIED if name in state)
    codegen = state.get("_codegen")
    if type(codegen) is not fx_graph_module.CodeGen or vars(codegen) != vars(fx_graph_module.CodeGen()):
        codegen = copy.deepcopy(codegen)
        extras["_codegen"] = codegen.ours if isinstance(codegen, _CodeGenForTorch) else codegen
    else:
        del extras["_codegen"]
    graph.extras = extras
    return graph, targets


def _graph_modules(module: Any, paths: list[str]) -> list[tuple[str, torch.fx.GraphModule]]:
    """The GraphModules among what some paths lead to, each path once."""
    return _core.find_modules(module, list(dict.fromkeys(paths)), torch.fx.GraphModule)


# By the ids of a graph and of what its module takes from, that module; with the latter, which so keeps its id.
_Made = dict[tuple[int, int], tuple[torch.fx.GraphModule, Any]]


def to_fx(graph: Graph, root: Any = None) -> Any:
    """See `fastexport.Graph.to_fx`."""
    return _built(graph) if root is None else _module_of(graph, root, {})


def _built(graph: Graph) -> torch.fx.Graph:
    """The graph of torch's without those below it."""
    extras = graph.extras or {}
    built = torch.fx.Graph(tracer_cls=extras.get("_tracer_cls"), tracer_extras=extras.get("_tracer_extras"))
    (_core.fx_build if _FAST else _torch_public.build)(graph, built)
    _convert_sources(graph, built)
    for name, value in extras.items():
        if name == "_codegen":
            built.set_codegen(_codegen_for_torch(copy.deepcopy(value)))
        elif name not in ("_tracer_cls", "_tracer_extras"):
            built.__dict__[name] = copy.deepcopy(value) if name == "_co_fields" else value
    return built


def _module_of(graph: Graph, root: Any, made: _Made) -> torch.fx.GraphModule:
    """A GraphModule of a graph and those below it; one in several places that takes from one root is one module."""
    key = id(graph), id(root)
    if key not in made:
        made[key] = _module(graph, root, made), root
    return made[key][0]


def _module(graph: Graph, root: Any, made: _Made) -> torch.fx.GraphModule:
    built, subgraphs = _built(graph), graph.subgraphs or {}
    if isinstance(root, dict):
        below = {path: _module_of(sub, root.get(path, root), made) for path, sub in subgraphs.items()}
        return torch.fx.GraphModule({**root, **below}, built)
    is_graph_module = isinstance(root, torch.fx.GraphModule)
    new = {path for path in subgraphs if not _core.resolves(root, path, False)}
    plain = root if type(root) is torch.nn.Module else _holder(root, {})
    holder = _holder(root, {path: _module_of(subgraphs[path], plain, made) for path in new}) if new else root
    module = torch.fx.GraphModule(holder, built, type(root).__name__ if is_graph_module else "GraphModule")
    for path, subgraph in subgraphs.items():
        if path not in new:
            _replace_module(module, root, path, _module_of(subgraph, root.get_submodule(path), made))
    if is_graph_module:
        _carry_over(root, module)
    return module


def _holder(root: torch.nn.Module, modules: dict[str, Any]) -> torch.nn.Module:
    """A module with what root holds, and more modules: subgraphs that a pass has made are new to it."""
    holder = torch.nn.Module()
    holder.__dict__.update(root.__dict__)
    holder._modules = {**root._modules, **modules}
    return holder


def _replace_module(module: Any, root: Any, path: str, new: Any) -> None:
    """Put a module at a path; modules on the way that are root's too are copied, so that root stays as it is."""
    *prefix, name = path.split(".")
    for part in prefix:
        child, module_of_root = module._modules[part], getattr(root, part)
        if child is module_of_root:
            child = copy.copy(child)
            child._modules = dict(child._modules)
            module._modules[part] = child
        module, root = child, module_of_root
    module._modules[name] = new


def _carry_over(source: torch.fx.GraphModule, module: torch.fx.GraphModule) -> None:
    """What copy.deepcopy of a GraphModule keeps beyond the graph and what it refers to: hooks and meta."""
    for name in _HOOK_LISTS:
        setattr(module, name, list(getattr(source, name, ())))
    for name in _HOOK_TABLES:
        if name in source.__dict__:
            setattr(module, name, copy.copy(source.__dict__[name]))
    module.meta = dict(getattr(source, "meta", {}))
    key = getattr(torch.fx.graph_module, "_USER_PRESERVED_ATTRIBUTES_KEY", None)
    for name, value in module.meta.get(key, {}).items():
        setattr(module, name, value)


def normalized_arguments(
    node: Any,
    root: Any,
    arg_types: tuple[Any, ...] | None = None,
    kwarg_types: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> Any:
    """`torch.fx.Node.normalized_arguments` for a fastexport Node."""
    return torch.fx.Node.normalized_arguments(node, root, arg_types, kwarg_types, normalize_to_only_use_kwargs)


def _convert_sources(graph: Graph, built: torch.fx.Graph) -> None:
    """Where meta has a NodeSource of ours, as a pass of ours notes it, the built graph gets one of torch."""
    found = graph._nodes_holding("from_node", OurSource)
    nodes = {node.name: node for node in built.nodes} if found else {}
    for node in found:
        sources = node.meta["from_node"]
        if isinstance(sources, list | tuple):
            nodes[node.name].meta["from_node"] = [
                NodeSource._from_dict(source.to_dict()) if type(source) is OurSource else source for source in sources
            ]


# ---- code


def custom_builtins() -> dict[str, Any]:
    """The globals that each generated code has."""
    return {name: builtin.obj for name, builtin in fx_graph_module._custom_builtins.items()}


class _CodeGenForTorch(fx_graph_module.CodeGen):
    """A code generator of fastexport, as torch.fx takes it."""

    def __init__(self, ours: CodeGen) -> None:
        super().__init__()
        self.ours = ours
        self._body_transformer = ours._body_transformer
        self._func_name = ours._func_name

    def gen_fn_def(self, *args: Any, **kwargs: Any) -> str:
        return self.ours.gen_fn_def(*args, **kwargs)

    def generate_output(self, *args: Any, **kwargs: Any) -> str:
        return self.ours.generate_output(*args, **kwargs)

    def process_inputs(self, *args: Any) -> Any:
        return self.ours.process_inputs(*args)

    def process_outputs(self, outputs: Any) -> Any:
        return self.ours.process_outputs(outputs)

    def additional_globals(self) -> list[tuple[str, Any]]:
        return self.ours.additional_globals()


def _codegen_for_torch(codegen: Any) -> fx_graph_module.CodeGen:
    """A graph's code generator as torch.fx takes it: its own kind where there is one that does the same."""
    if not isinstance(codegen, CodeGen):
        return codegen
    if type(codegen) is CodeGen:
        plain = fx_graph_module.CodeGen()
    elif type(codegen) is PyTreeCodeGen:
        names, *specs = codegen.pytree_info
        theirs = (spec.to_torch() if isinstance(spec, TreeSpec) else spec for spec in specs)
        plain = fx_graph_module._PyTreeCodeGen(fx_graph_module._PyTreeInfo(names, *theirs))
    else:
        return _CodeGenForTorch(codegen)
    plain._body_transformer, plain._func_name = codegen._body_transformer, codegen._func_name
    return plain


def is_ordinary(kind: type) -> bool:
    """Whether a class is that of tensors of which an annotation tells nothing but sizes, dtype and device."""
    return kind is torch.Tensor or issubclass(kind, torch._subclasses.FakeTensor)


def tensor_kind(tensor: torch.Tensor) -> tuple[str | None, str | None]:
    """What an annotation says of a tensor's class, None of ordinary ones; and of how it is spread over devices."""
    kind = type(tensor)
    if is_ordinary(kind):
        return None, None
    spec: Any = getattr(tensor, "_spec", None)
    if kind.__name__ != "DTensor" or not hasattr(spec, "format_shard_order_str"):
        return kind.__name__, None
    return kind.__name__, type(spec).format_shard_order_str(spec.placements, spec.shard_order)


def is_tensor_metadata(value: Any) -> bool:
    """Whether it is what torch.fx's shape propagation notes of a tensor."""
    return type(value).__name__ == "TensorMetadata" and type(value).__module__ == "torch.fx.passes.shape_prop"


# ---- dead code


def dtype_abbreviation(dtype: torch.dtype) -> str:
    """How torch.fx writes a dtype in the text of a node, such as "f32"."""
    from torch.utils._dtype_abbrs import dtype_abbrs

    return dtype_abbrs[dtype]


def _impure_random() -> bool:
    """What torch.fx's dead-code elimination passes to is_impure."""
    if torch._guards.TracingContext.try_get():
        return bool(torch._inductor.config.fallback_random)
    return True


class _DeadCode(NamedTuple):
    """The options of one run, and what it finds out."""

    keep_random: bool
    fx_policy: bool
    recurse: bool
    removed: list[str]
    reasons: dict[str, str] | None

    def check(self, graph: torch.fx.Graph) -> None:
        """Raise for a subgraph, however deep, that is not in order: before anything is changed."""
        for _, child in self._children(graph):
            _raise_faults(child.graph, fx_only=True)
            self.check(child.graph)

    def run(self, graph: torch.fx.Graph, is_impure_node: Callable[[Any], bool] | None, prefix: str) -> bool:
        removed, reasons = self._one(graph, is_impure_node)
        self.removed.extend(prefix + name for name in removed)
        if self.reasons is not None and reasons is not None:
            self.reasons.update((prefix + name, why) for name, why in reasons.items())
        modified = bool(removed)
        for path, child in self._children(graph):
            changed = self.run(child.graph, None, f"{prefix}{path}/")
            if changed or self.fx_policy:
                renew_code(child)
            modified |= changed
        return modified

    def _one(
        self, graph: torch.fx.Graph, is_impure_node: Callable[[Any], bool] | None
    ) -> tuple[list[str], dict[str, str] | None]:
        keep_random = self.keep_random and (not self.fx_policy or _impure_random())
        explain = self.reasons is not None
        usual = not self.fx_policy or torch.fx.Node.is_impure is _IS_IMPURE
        if _FAST and is_impure_node is None and usual and _is_ordinary(graph):
            outcome = _core.fx_eliminate_dead_code(graph, self.fx_policy, keep_random, explain)
            if outcome is not None:
                removed, reasons, fault = outcome
                if fault is not None:
                    raise lint_error([LintFault(*fault)])
                return removed, reasons
        _raise_faults(graph, fx_only=True)
        return _torch_public.eliminate_dead_code(graph, is_impure_node, keep_random, self.fx_policy, explain)

    def _children(self, graph: torch.fx.Graph) -> Iterator[tuple[str, torch.fx.GraphModule]]:
        """The subgraphs gone into: for torch.fx those that are children and are named by a get_attr node."""
        owner = graph.owning_module
        if not self.recurse or owner is None:
            return
        if not self.fx_policy:
            yield from _graph_modules(owner, _attribute_targets(graph))
            return
        names: set[Any] | None = None
        for name, child in owner.named_children():
            if isinstance(child, torch.fx.GraphModule):
                if names is None:
                    names = {node.target for node in graph.find_nodes(op="get_attr")}
                if name in names:
                    yield name, child


def _attribute_targets(graph: torch.fx.Graph) -> list[str]:
    nodes = [node for op in ("get_attr", "call_module") for node in graph.find_nodes(op=op, sort=False)]
    return [node.target for node in nodes if isinstance(node.target, str)]


def eliminate_dead_code_inplace(
    obj: Any,
    is_impure_node: Callable[[Any], bool] | None = None,
    *,
    keep_random: bool = True,
    recurse: bool = True,
    policy: str = "safe",
    explain: bool = False,
) -> dict[str, Any]:
    """`fastexport.eliminate_dead_code` on a torch object; gives what makes a `PassResult`."""
    parts = _parts(obj)
    job = _DeadCode(keep_random, policy == "torch", recurse, [], {} if explain else None)
    if not job.fx_policy:
        job.check(parts.graph)
    modified = job.run(parts.graph, is_impure_node, "")
    if modified and parts.module is not None:
        renew_code(parts.module)
    return {"modified": modified, "removed": job.removed, "reasons": job.reasons}


# ---- lint


def _faults(graph: torch.fx.Graph, *, all: bool, fx_only: bool) -> list[LintFault]:
    if not _FAST:
        return _torch_public.lint(graph, all=all, fx_only=fx_only)
    return [LintFault(*fault) for fault in _core.fx_lint(graph, all, fx_only)]


def _raise_faults(graph: torch.fx.Graph, *, fx_only: bool) -> None:
    faults = _faults(graph, all=False, fx_only=fx_only)
    if faults:
        raise lint_error(faults)


def lint_inplace(obj: Any, *, all: bool = False) -> list[LintFault]:
    """`fastexport.lint` on a torch object."""
    graph = _parts(obj).graph
    if not all:
        _raise_faults(graph, fx_only=False)
        return []
    return _faults(graph, all=True, fx_only=False)


# ---- nodes that take the place of others


def _replace_nodes(
    graph: torch.fx.Graph,
    pairs: list[tuple[Any, Any]],
    program: torch.export.ExportedProgram | None,
    pass_name: str | None,
) -> None:
    """Put each kept node in the place of the removed one; hooks are called, and what they note is not noted again.

    With a pass_name the removed ones are noted at the kept ones.
    """
    sources: dict[Any, list[NodeSource]] = {}
    for old, new in pairs if pass_name is not None else ():
        source = NodeSource(old, pass_name, NodeSourceAction.REPLACE)
        sources.setdefault(new, []).append(source)
    _merge_nodes(graph, pairs, program)
    for new, added in sources.items():
        noted = with_sources(new.meta.get("from_node"), added)
        if noted is not None:
            new.meta["from_node"] = noted


def _merge_nodes(
    graph: torch.fx.Graph, pairs: list[tuple[Any, Any]], program: torch.export.ExportedProgram | None
) -> None:
    if _FAST and program is None and _is_ordinary(graph):
        _core.fx_replace_all_uses(graph, pairs)
        _core.fx_erase(graph, [old for old, _ in pairs])
        return
    for old, new in pairs:
        old.replace_all_uses_with(new)
        for entry in program.module_call_graph if program is not None else ():
            if entry.signature is not None:
                entry.signature.replace_all_uses_with(old, new)
        graph.erase_node(old)


def _eliminate_getitems(
    graph: torch.fx.Graph, fx_policy: bool, program: torch.export.ExportedProgram | None, provenance: bool
) -> list[tuple[Any, Any]]:
    pairs = None
    if _FAST and _is_ordinary(graph):
        if program is None and not provenance:
            pairs = _core.fx_eliminate_getitems(graph, fx_policy, True)
            if pairs is not None:
                return pairs
        pairs = _core.fx_eliminate_getitems(graph, fx_policy, False)
    if pairs is None:
        pairs = _torch_public.repeated_getitems(graph, fx_policy)
    _replace_nodes(graph, pairs, program, "eliminate_getitems" if provenance else None)
    return pairs


def _modules_with_graphs(parts: _Parts, recurse: bool) -> Iterator[tuple[str, torch.fx.Graph]]:
    """The graph itself, and the subgraphs below it with the prefix of their names."""
    yield "", parts.graph
    if not recurse:
        return
    if parts.module is None:
        if parts.graph.owning_module is not None:
            for path, child in _graph_modules(parts.graph.owning_module, _attribute_targets(parts.graph)):
                for inner, graph in _modules_with_graphs(_parts(child), True):
                    yield f"{path}/{inner}", graph
        return
    for path, module in parts.module.named_modules():
        if module is not parts.module and isinstance(module, torch.fx.GraphModule):
            yield path + "/", module.graph


def eliminate_getitems_inplace(
    obj: Any, *, recurse: bool = True, policy: str = "safe", provenance: bool = False
) -> dict[str, Any]:
    """`fastexport.eliminate_getitems` on a torch object; gives what makes a `PassResult`.

    Of an ExportedProgram the graph signature and the module call graph follow.
    """
    parts = _parts(obj)
    replaced: dict[str, str] = {}
    with _following_signature(parts):
        for prefix, graph in _modules_with_graphs(parts, recurse):
            for old, new in _eliminate_getitems(graph, policy == "torch", parts.program, provenance):
                replaced[prefix + old.name] = prefix + new.name
    if replaced and parts.module is not None:
        renew_code(parts.module)
    return {"modified": bool(replaced), "removed": list(replaced), "replaced": replaced}


@contextmanager
def _following_signature(parts: _Parts) -> Iterator[None]:
    if parts.program is None or parts.module is None:
        yield
        return
    with parts.module._set_replace_hook(parts.program.graph_signature.get_replace_hook()):
        yield


# ---- chains of passes


class _Twin(Graph):
    """A native graph that remembers what passes did to it, by node ids, so that the same can be done to its source."""

    def __init__(self) -> None:
        self.source: torch.fx.Graph | None = None
        self.source_nodes: list[Any] = []  # that of id i + 1 is the i-th
        self.record: list[tuple[array[int], array[int] | None, str | None]] = []

    def _twins(self) -> list[_Twin]:
        return list(dict.fromkeys((self.subgraphs or {}).values()))  # type: ignore[arg-type]

    def bind(self, source: torch.fx.Graph) -> None:
        """Note the torch nodes of the graph and its subgraphs."""
        self.source, self.source_nodes = source, list(source.nodes)
        for subgraph in self._twins():
            subgraph.bind(subgraph.owning_module.graph)

    def _eliminate_dead_code(self, *args: Any) -> tuple[bytes, Any]:
        ids, reasons = super()._eliminate_dead_code(*args)
        self.record.append((array("I", ids), None, None))
        return ids, reasons

    def _eliminate_getitems(self, fx_policy: bool, notes: Any = None) -> tuple[bytes, bytes]:
        """Notes are made when the same is done to the source."""
        removed, kept = super()._eliminate_getitems(fx_policy)
        self._note_replaced("eliminate_getitems", removed, kept, notes)
        return removed, kept

    def _eliminate_common_subexpressions(
        self, judge: Any, types: Any, fx_policy: bool, is_inner: bool, explain: bool, notes: Any, /
    ) -> tuple[bytes, bytes, Any]:
        find = super()._eliminate_common_subexpressions
        removed, kept, reasons = find(judge, types, fx_policy, is_inner, explain, None)
        self._note_replaced("eliminate_common_subexpressions", removed, kept, notes)
        return removed, kept, reasons

    def _remove_noops(self, judge: Any, agree: Any, explain: bool, notes: Any, /) -> tuple[bytes, bytes]:
        removed, kept = super()._remove_noops(judge, agree, explain, None)
        self._note_replaced("remove_noops", removed, kept, notes)
        return removed, kept

    def _note_replaced(self, pass_name: str, removed: bytes, kept: bytes, notes: Any) -> None:
        self.record.append((array("I", removed), array("I", kept), None if notes is None else pass_name))

    def apply(self, program: torch.export.ExportedProgram | None) -> bool:
        """Do to the source what was done here."""
        modified = False
        record, self.record = self.record, []  # one graph may be come to by several ways
        for removed, kept, pass_name in record:
            nodes = [self.source_nodes[id - 1] for id in removed]
            if kept is None:
                _erase(self.source, nodes)
            else:
                pairs = list(zip(nodes, (self.source_nodes[id - 1] for id in kept), strict=True))
                _replace_nodes(self.source, pairs, program, pass_name)
            modified |= bool(nodes)
        for subgraph in self._twins():
            if subgraph.apply(program):
                renew_code(subgraph.owning_module)
                modified = True
        return modified


def _erase(graph: torch.fx.Graph, nodes: list[Any]) -> None:
    if _FAST and _is_ordinary(graph):
        _core.fx_erase(graph, nodes)
    else:
        for node in nodes:
            graph.erase_node(node)


@contextmanager
def native_twin(obj: Any) -> Iterator[Graph]:
    """A native graph of a torch object; what named passes did to it is done to the object when the block ends well."""
    parts = _parts(obj)
    twin = _read(parts.graph, parts.module if parts.module is not None else parts.graph.owning_module, _Twin)
    twin.bind(parts.graph)
    if _has_updates(parts.program):
        _tell_signature(twin, parts.program)
    yield twin
    with _following_signature(parts):
        modified = twin.apply(parts.program)
    if modified and parts.module is not None:
        renew_code(parts.module)


def _has_updates(program: torch.export.ExportedProgram | None) -> bool:
    """Whether buffers, parameters or inputs become something that the graph returns; passes keep that apart."""
    if program is None:
        return False
    return any(spec.kind.name.endswith("_MUTATION") for spec in program.graph_signature.output_specs)


def _tell_signature(graph: Graph, program: Any) -> None:
    from fastexport._torch_signature import core_inputs, core_outputs

    specs = program.graph_signature
    with suppress(ValueError):  # a signature that names nodes which are not there; the verifier's affair
        graph._set_signature(core_inputs(list(specs.input_specs)), core_outputs(list(specs.output_specs)))


# ---- many edits at once


def erase_nodes(graph: torch.fx.Graph, nodes: list[Any]) -> None:
    """See `fastexport.erase_nodes`."""
    _erase(_parts(graph).graph, nodes)


def replace_all_uses(graph: torch.fx.Graph, pairs: list[tuple[Any, Any]]) -> None:
    """See `fastexport.replace_all_uses`."""
    source = _parts(graph).graph
    if _FAST and _is_ordinary(source):
        _core.fx_replace_all_uses(source, pairs)
        return
    for old, new in pairs:
        old.replace_all_uses_with(new)


def insert_nodes(graph: torch.fx.Graph, insertions: list[Insertion]) -> list[Any]:
    """See `fastexport.insert_nodes`."""
    source = _parts(graph).graph
    if _FAST and _is_ordinary(source):
        return _core.fx_insert(
            source,
            [(i.anchor, i.before, i.op, i.target, i.args, i.kwargs, i.name, i.meta) for i in insertions],
        )
    made = []
    for item in insertions:
        with source.inserting_before(item.anchor) if item.before else source.inserting_after(item.anchor):
            node = source.create_node(item.op, item.target, item.args, dict(item.kwargs or {}), item.name)
        node.meta = dict(item.meta or {})
        made.append(node)
    return made


# ---- pickled meta


def dump_meta(graph: Graph, meta: list[dict[str, Any]]) -> bytes:
    """Pickle meta that holds fake tensors or symbolic numbers; nodes of the graph in it go by their place.

    Raises:
        TypeError: this torch has no pickler for them.
    """
    places = {node: place for place, node in enumerate(graph.nodes)}

    class Pickler(_graph_pickler().GraphPickler):  # type: ignore[misc]
        def reducer_override(self, obj: object) -> Any:
            if isinstance(obj, _core.Node) and obj in places:
                return _node_at, (self._unpickle_state, places[obj])
            return super().reducer_override(obj)

    options = _graph_pickler().Options(ops_filter=None, node_metadata_key_filter=None)
    return Pickler.dumps(meta, options)


def load_meta(graph: Graph, pickled: bytes) -> Any:
    """Read what `dump_meta` wrote, for the same graph rebuilt."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    mode = FakeTensorMode(shape_env=ShapeEnv())
    mode.fastexport_nodes = list(graph.nodes)
    try:
        return _graph_pickler().GraphPickler.loads(bytes(pickled), mode)
    finally:
        del mode.fastexport_nodes


def _node_at(state: Any, place: int) -> Any:
    return state.fake_mode.fastexport_nodes[place]


def _graph_pickler() -> Any:
    try:
        from torch.fx import _graph_pickler
    except ImportError:
        raise TypeError("meta holds fake tensors, which this torch can't pickle; delete them from node.meta") from None
    return _graph_pickler
