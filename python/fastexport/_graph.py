"""fastexport.Graph: the C graph with what is better written in Python."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from fastexport import _core, _pickle
from fastexport._display import Displayed
from fastexport._errors import Faults, LintFault, lint_error
from fastexport._facts import remembering
from fastexport._loaded import loaded
from fastexport._results import PassResult

if TYPE_CHECKING:
    from fastexport._codegen import PythonCode, TransformCode
    from fastexport._core import Node
    from fastexport._notebook import View
    from fastexport._rewriting import Replacements
    from fastexport._splitting import Split
    from fastexport._stats import Summary
    from fastexport._tables import Table

Policy = Literal["safe", "torch"]


class Graph(_core.Graph, Displayed):
    """An ordered list of nodes, held in C, with the API of torch.fx.Graph.

    Two graphs are equal when they do the same: the same opcodes, targets and arguments, node by node. Names, types and
    meta don't count.

    >>> import operator
    >>> g = Graph()
    >>> x = g.placeholder("x")
    >>> y = g.call_function(operator.add, (x, 1))
    >>> unused = g.call_function(operator.neg, (x,))
    >>> out = g.output(y)
    >>> g.eliminate_dead_code().removed
    ['neg']
    >>> print(g)
    graph():
        %x : [num_users=1] = placeholder[target=x]
        %add : [num_users=1] = call_function[target=operator.add](args = (%x, 1), kwargs = {})
        return add
    """

    # ---- passes

    def eliminate_dead_code(
        self,
        is_impure_node: Callable[[Node], bool] | None = None,
        *,
        keep_random: bool = True,
        recurse: bool = True,
        policy: Policy = "safe",
        explain: bool = False,
    ) -> PassResult:
        """Remove every node that has neither users nor an effect.

        Args:
            is_impure_node: tells, for a node, whether it has an effect, in place of fastexport's own judgement.
            keep_random: drawing random numbers counts as an effect.
            recurse: go into the subgraphs too.
            policy: "safe" keeps whatever may have an effect; "torch" removes exactly what torch.fx 2.13 removes.
            explain: give the reason why each node was kept or removed.

        Returns:
            A `PassResult`; ``removed`` is in the order of removal, last node first.

        Raises:
            LintError: the graph, or a subgraph, is not in order. Nothing is changed then; with the policy "torch", as
                in torch, the graphs above the one at fault are.
        """
        check_policy(policy)
        start = time.perf_counter()
        self._raise_faults(fx_only=True)
        recurse = recurse and (bool(self.subgraphs) or self.owning_module is not None)
        if recurse and policy == "safe":
            self._raise_faults_below()
        version = self._version
        if is_impure_node is None:
            ids, reasons = self._eliminate_dead_code(policy == "torch", keep_random, explain)
        else:
            ids, reasons = self._eliminate_by_callback(is_impure_node, explain)
        inner = self._eliminate_below(keep_random, policy, explain) if recurse else []
        if reasons is not None:
            reasons.update(_under_paths((path, (result.reasons or {}).items()) for path, result in inner))
        return PassResult(
            "eliminate_dead_code",
            # What the callback does to the graph counts, too.
            self._version != version or any(result.modified for _, result in inner),
            removed=partial(_removed_names, self, ids, inner),
            reasons=reasons,
            seconds=time.perf_counter() - start,
        )

    def _raise_faults_below(self) -> None:
        with self._judged_below() as below:
            for _, graph in below:
                graph._raise_faults(fx_only=True)

    def _eliminate_below(self, keep_random: bool, policy: Policy, explain: bool) -> list[tuple[str, PassResult]]:
        inner = []
        with self._judged_below(policy) as below:
            for path, graph in below:
                result = graph.eliminate_dead_code(
                    keep_random=keep_random, recurse=False, policy=policy, explain=explain
                )
                if result or explain:
                    inner.append((path, result))
        return inner

    def _eliminate_by_callback(
        self, is_impure_node: Callable[[Node], bool], explain: bool
    ) -> tuple[bytes, dict[str, str] | None]:
        ids: list[bytes] = []
        reasons: dict[str, str] | None = {} if explain else None
        before = list(reversed(self.nodes))
        # Every node is asked about before any goes, so that a callback that raises leaves the graph as it was.
        verdicts = {node: bool(is_impure_node(node)) for node in reversed(self.nodes)}
        for node in before:
            if node._erased:
                ids.append(node._id)
                if reasons is not None:
                    reasons[node.name] = "removed: by is_impure_node"
        for node, impure in verdicts.items():
            if node._erased:
                continue
            if not impure and not node.users:
                self.erase_node(node)
                ids.append(node._id)
                why = "removed: no users and no effect"
            else:
                why = "kept: is_impure_node says it has an effect" if impure else "kept: it has users"
            if reasons is not None:
                reasons[node.name] = why
        return b"".join(ids), reasons

    def eliminate_getitems(
        self, *, recurse: bool = True, policy: Policy = "safe", provenance: bool | None = None
    ) -> PassResult:
        """Keep one ``operator.getitem`` for each source and index, the first.

        Args:
            recurse: go into the subgraphs too.
            policy: "safe" compares indexes by type and value and merges nothing across a write; "torch" compares their
                text, as torch.export 2.13 does, and takes no notice of writes.
            provenance: note at each kept node, in ``meta["from_node"]``, which ones it stands for; None: with the
                policy "safe" only, as torch notes nothing, and wherever the graph is recorded (see `recording`).

        Returns:
            A `PassResult`; ``replaced`` tells the node in the place of each removed one.
        """
        check_policy(policy)
        start = time.perf_counter()
        if provenance is None:
            provenance = policy == "safe" or (self._observer is not None and self._observer.recorder is not None)
        notes = None
        if provenance:
            from fastexport import _provenance

            notes = partial(_provenance.sources_of_replaced, self, "eliminate_getitems")
        removed, kept = self._eliminate_getitems(policy == "torch", notes)
        inner = []
        for path, graph in self._graphs_below() if recurse else ():
            result = graph.eliminate_getitems(recurse=False, policy=policy, provenance=provenance)
            if result:
                inner.append((path, result))
        return PassResult(
            "eliminate_getitems",
            bool(removed) or any(result.modified for _, result in inner),
            removed=partial(_removed_names, self, removed, inner),
            replaced=partial(_replaced_names, self, removed, kept, inner),
            seconds=time.perf_counter() - start,
        )

    def eliminate_common_subexpressions(self, **options: Any) -> PassResult:
        """Let the first of equal calls stand for all; see `fastexport.eliminate_common_subexpressions`."""
        from fastexport import _cse

        return _cse.eliminate_common_subexpressions(self, **options)

    def remove_noops(self, **options: Any) -> PassResult:
        """Take out calls that give an operand back; see `fastexport.remove_noops`."""
        from fastexport import _noops

        return _noops.remove_noops(self, **options)

    def fold_constants(self, **options: Any) -> PassResult:
        """Compute what is the same at each run, with torch; see `fastexport.fold_constants`."""
        from fastexport import _constant_folding

        return _constant_folding.fold_constants(self, **options)

    def propagate_shapes(self, *args: Any, **options: Any) -> Any:
        """Run the graph with torch and note what each node gives; see `fastexport.propagate_shapes`."""
        from fastexport import _propagation

        return _propagation.propagate_shapes(self, *args, **options)

    def refresh_fake_tensors(self, *args: Any, **options: Any) -> Any:
        """Compute the fake tensors of all nodes anew, with torch; see `fastexport.refresh_fake_tensors`."""
        from fastexport import _propagation

        return _propagation.refresh_fake_tensors(self, *args, **options)

    def sort_topologically(self, *, stable: bool = True, recurse: bool = True, policy: Policy = "safe") -> PassResult:
        """Put the nodes into an order in which each stands behind what it uses; see `fastexport.sort_topologically`."""
        from fastexport import _sorting

        return _sorting.sort_topologically(self, stable=stable, recurse=recurse, policy=policy)

    def replace_pattern(self, pattern: Any, replacement: Any, **options: Any) -> Replacements:
        """Put a replacement in the place of each match of a pattern; see `fastexport.replace_pattern`."""
        from fastexport import _rewriting

        return _rewriting.replace_pattern(self, pattern, replacement, **options)

    def replace_pattern_with_filters(self, pattern: Any, *args: Any, **options: Any) -> Replacements:
        """The same for matches that pass filters; see `fastexport.replace_pattern_with_filters`."""
        from fastexport import _rewriting

        return _rewriting.replace_pattern_with_filters(self, pattern, *args, **options)

    def outline(self, nodes: Iterable[Node], name: str = "outlined", **options: Any) -> PassResult:
        """Put some nodes into a subgraph, and one call of it in their place; see `fastexport.outline`."""
        from fastexport import _splitting

        return _splitting.outline(self, nodes, name, **options)

    def fuse(self, partitions: Iterable[Iterable[Node]], prefix: str = "fused_", **options: Any) -> PassResult:
        """Outline each of some groups of nodes; see `fastexport.fuse`."""
        from fastexport import _splitting

        return _splitting.fuse(self, partitions, prefix, **options)

    def split(self, callback: Callable[[Node], Any], **options: Any) -> Split:
        """Split a copy of the graph into subgraphs; see `fastexport.split`."""
        from fastexport import _splitting

        return _splitting.split(self, callback, **options)

    def inline(self, which: Callable[[str], bool] | None = None, *, recurse: bool = True) -> PassResult:
        """Put the nodes of subgraphs in the place of calls of them; see `fastexport.inline`."""
        from fastexport import _splitting

        return _splitting.inline(self, which, recurse=recurse)

    def trim_interfaces(self, *, inputs: bool = False) -> PassResult:
        """Take unused results and inputs out of subgraphs, and of the graph; see `fastexport.trim_interfaces`."""
        from fastexport import _trimming

        return _trimming.trim_interfaces(self, inputs=inputs)

    def lint(self, *, all: bool = False) -> Faults[LintFault]:
        """Check that the graph is well formed.

        What torch.fx's lint checks (order, ownership, names, targets), and: uses and arguments agree, placeholders come
        first, there is one output at most, and it is last.

        Args:
            all: return every fault instead of raising for the first.

        Returns:
            The faults; an empty list when there are none.

        Raises:
            LintError: there is a fault and ``all`` is false. It is a RuntimeError, and for a target of the wrong type a
                ValueError, as in torch.fx.
        """
        if not all:
            self._raise_faults()
            return Faults()
        return Faults(LintFault(*fault) for fault in self._lint(True, False))

    def _raise_faults(self, *, fx_only: bool = False) -> None:
        faults = self._lint(False, fx_only)
        if faults:
            raise lint_error([LintFault(*fault) for fault in faults])

    def _reached_subgraphs(self, policy: Policy) -> Iterator[tuple[str, Graph]]:
        """The subgraphs a pass goes into: all; for torch.fx those that a get_attr node names and that are children."""
        inside = self._graphs_inside()
        if not inside:
            return
        attributes = {node.target for node in self.find_nodes(op="get_attr")} if policy == "torch" else set()
        for path, graph in inside.items():
            if policy == "safe" or (path in attributes and "." not in path):
                yield path, graph

    def _graphs_inside(self) -> dict[str, Graph]:
        """The subgraphs by path, and the graphs of GraphModules that nodes name and a GraphModule of ours holds."""
        found = dict(self.subgraphs or {})
        module = loaded("fastexport._graph_module")  # while that is not imported, nothing is such a module
        owner = self.owning_module
        if module is None or not isinstance(owner, module.GraphModule):
            return found
        if not _holds_graph_modules(owner, module.GraphModule):
            return found
        for node in [*self.find_nodes(op="call_module"), *self.find_nodes(op="get_attr")]:
            held = module.attribute(owner, node.target, None) if node.target not in found else None
            if isinstance(held, module.GraphModule):
                found[node.target] = held.graph
        return found

    def _graphs_below(self, policy: Policy = "safe", between: str = "/") -> Iterator[tuple[str, Graph]]:
        """All that a pass goes into, each once, by the first path to it; they may nest deeper than calls may.

        What is in a graph is looked up when whoever asked is done with it.
        """
        seen: set[int] = set()  # by id: equal graphs are two
        left = [("", self)]
        while left:
            path, graph = left.pop()
            if id(graph) in seen:
                continue
            seen.add(id(graph))
            if graph is not self:
                yield path, graph
            for name, inner in reversed(list(graph._reached_subgraphs(policy))):
                left.append((path + between + name if path else name, inner))

    @contextmanager
    def _judged_below(self, policy: Policy = "safe", recurse: bool = True) -> Iterator[Iterator[tuple[str, Graph]]]:
        """`_graphs_below`, for passes that judge calls: what each graph leads to is looked at once in the block."""
        if not recurse:
            yield iter(())
            return
        with remembering(graph for _, graph in self._graphs_below(policy)):
            yield self._graphs_below(policy)

    # ---- where nodes come from

    def recording(self, pass_name: str) -> AbstractContextManager[None]:
        """Note where nodes come from, in ``meta["from_node"]``, for the length of a ``with`` block.

        A node that is made gets a `NodeSource` of the action "create"; one that takes the place of another, by
        `Node.replace_all_uses_with` or `Node.replace_input_with`, gets that one as a source, with "replace", or with
        "replace+create" if it was made in the block. Meta that is something else than a list of sources stays as it is.
        Subgraphs are graphs of their own. Source: GraphTransformObserver of torch 2.13, which notes the same.

        Args:
            pass_name: what the block is called in the notes.

        Raises:
            TypeError: it is no str.

        >>> import operator
        >>> g = Graph()
        >>> x = g.placeholder("x")
        >>> old = g.call_function(operator.neg, (x,))
        >>> out = g.output(old)
        >>> with g.recording("my_pass"), g.inserting_before(out):
        ...     new = g.call_function(operator.pos, (x,))
        ...     _ = old.replace_all_uses_with(new)
        >>> new.meta["from_node"]
        [NodeSource('neg', pass_name='my_pass', action='replace+create')]
        """
        from fastexport import _provenance

        return _provenance.recording(self, pass_name)

    def inherit_meta(self, node: Node, pass_name: str | None = None) -> AbstractContextManager[None]:
        """Give the nodes made in a ``with`` block what another node's meta says of its origin.

        They get its stack_trace, nn_module_stack, source_fn_stack, torch_fn, custom and the like, with containers
        copied, and it as their source in ``from_node``. Nothing about values is passed on. Source: set_current_meta in
        torch/fx/traceback.py of torch 2.13, and the keys that torch.fx's tracer then copies.

        Args:
            node: the node they are made for; of any graph, of fastexport or torch.
            pass_name: named in the source; None: that of the recording in force, if there is one.

        Raises:
            TypeError: it is no node, or pass_name no str.

        >>> import operator
        >>> g = Graph()
        >>> x = g.placeholder("x")
        >>> x.meta.update(val=1, custom={"tag": 1})
        >>> with g.inherit_meta(x, "decompose"):
        ...     g.call_function(operator.neg, (x,)).meta
        {'from_node': [NodeSource('x', pass_name='decompose', action='create')], 'custom': {'tag': 1}}
        """
        from fastexport import _provenance

        return _provenance.inheriting(self, node, pass_name)

    # ---- sizes

    def create_size_node(self, tensor_node: Node, dim: int) -> Node:
        """Make a node that asks another for its size, which its meta has if the other's has a tensor. Needs torch.

        Args:
            tensor_node: gives a tensor.
            dim: the dimension.
        """
        from fastexport import _torch_symints

        return _torch_symints.create_size_node(self, tensor_node, dim)

    def create_stride_node(self, tensor_node: Node, dim: int) -> Node:
        """Make a node that asks another for a stride; see `create_size_node`."""
        from fastexport import _torch_symints

        return _torch_symints.create_stride_node(self, tensor_node, dim)

    def create_storage_offset_node(self, tensor_node: Node) -> Node:
        """Make a node that asks another where in its storage it begins; see `create_size_node`."""
        from fastexport import _torch_symints

        return _torch_symints.create_storage_offset_node(self, tensor_node)

    def materialize_symints(self, values: Sequence[Any]) -> list[Any]:
        """Make nodes that compute sizes from the graph's inputs. Needs torch.

        They are what the sizes are when the graph runs, whatever a later pass does to the layout of tensors. Nodes go
        to the insert point; sizes of one call share them.

        Args:
            values: SymInts of torch, or ints, which stay as they are.

        Returns:
            A node or an int for each.

        Raises:
            TypeError: something else is among the values.
            ValueError: a symbol comes from no input and no node.
        """
        from fastexport import _torch_symints

        return _torch_symints.materialize_symints(self, values)

    def materialize_symint(self, value: Any) -> Any:
        """The same for one size."""
        return self.materialize_symints([value])[0]

    # ---- code

    def python_code(
        self,
        root_module: str,
        *,
        verbose: bool = False,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        expanded_def: bool = False,
        record_func: bool = False,
        additional_meta: list[str] | None = None,
        policy: Policy = "safe",
    ) -> PythonCode:
        """The graph as Python code, that of torch.fx.

        Args:
            root_module: the name that modules and attributes are looked up in, mostly "self".
            verbose: with types of values and places of origin.
            include_stride: with strides, if verbose.
            include_device: with devices, if verbose.
            colored: with colours for terminals.
            expanded_def: each parameter on a line.
            record_func: with calls that tell torch's profiler where it is.
            additional_meta: keys of meta to be shown, if verbose.
            policy: "safe" is code that runs, also where a name is a keyword or an object has no text; "torch" is
                torch's own, which is asked for it.

        Example:
            >>> g = Graph()
            >>> out = g.output(g.call_method("add", (g.placeholder("x"), 1), {"from": 2}))
            >>> print(g.python_code("self").src)
            <BLANKLINE>
            <BLANKLINE>
            <BLANKLINE>
            def forward(self, x):
                add = x.add(1, **{'from': 2});  x = None
                return add
            <BLANKLINE>
        """
        check_policy(policy)
        from fastexport import _codegen

        return _codegen.python_code(
            self,
            root_module,
            verbose=verbose,
            include_stride=include_stride,
            include_device=include_device,
            colored=colored,
            expanded_def=expanded_def,
            record_func=record_func,
            additional_meta=additional_meta,
            policy=policy,
        )

    @property
    def _codegen(self) -> Any:
        from fastexport import _codegen

        return _codegen.codegen_of(self)

    def set_codegen(self, codegen: Any) -> None:
        """Let code be generated by a `CodeGen`, or by one of torch.fx."""
        self.extras = {**(self.extras or {}), "_codegen": codegen}

    def on_generate_code(
        self, make_transformer: Callable[[TransformCode | None], TransformCode]
    ) -> AbstractContextManager[None]:
        """Have the lines of code changed by a function before they become code.

        Args:
            make_transformer: is given the function that does so now, or None, and gives the one that is to do so.

        Returns:
            What puts the former one back at the end of a ``with`` block.

        Example:
            >>> g = Graph()
            >>> out = g.output(g.placeholder("x"))
            >>> with g.on_generate_code(lambda _: lambda lines: ["print('called')\\n", *lines]):
            ...     print(g.python_code("self").src.strip())
            def forward(self, x):
                print('called')
                return x
        """
        from fastexport import _codegen

        return _codegen.on_generate_code(self, make_transformer)

    def process_inputs(self, *args: Any) -> Any:
        """What the graph gets of the arguments of its function."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """What its function returns of the graph's result."""
        return self._codegen.process_outputs(out)

    # ---- torch

    @classmethod
    def from_fx(cls, graph_or_module: Any) -> Graph:
        """The same as `fastexport.from_fx`."""
        from fastexport import _torch

        return _torch.from_fx(graph_or_module)

    def to_fx(self, root: Any = None) -> Any:
        """Build the torch.fx form of this graph.

        Args:
            root: a torch.nn.Module (or dict) that holds what the nodes refer to.

        Returns:
            A torch.fx.Graph; with a root, a torch.fx.GraphModule.
        """
        from fastexport import _torch

        return _torch.to_fx(self, root)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """Make a get_attr node; warns when the owning module has no such attribute. See `create_node`."""
        self._warn_missing(qualified_name, is_module=False)
        return super().get_attr(qualified_name, type_expr)

    def call_module(
        self,
        module_name: str,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Make a call_module node; warns when the owning module has no such submodule. See `create_node`."""
        self._warn_missing(module_name, is_module=True)
        return super().call_module(module_name, args, kwargs, type_expr)

    def _warn_missing(self, path: str, *, is_module: bool) -> None:
        if self.owning_module is not None and isinstance(path, str):
            if not _core.resolves(self.owning_module, path, is_module):
                warnings.warn(
                    f"the owning module has no {'submodule' if is_module else 'attribute'} {path!r}; add it before the "
                    "graph is run",
                    stacklevel=3,
                )

    # ---- copies and text

    def __copy__(self) -> Graph:
        twins = {id(self): self._copy_alone()}
        found = [self]
        for source in found:  # it grows; graphs may nest deeper than calls may
            inside: dict[str, Graph] = {}
            for path, sub in list((source.subgraphs or {}).items()):
                if id(sub) not in twins:
                    twins[id(sub)] = sub._copy_alone()
                    found.append(sub)
                inside[path] = twins[id(sub)]
            twins[id(source)].subgraphs = inside or None
        return twins[id(self)]

    def _copy_alone(self) -> Graph:
        graph = self._copy(False)
        graph.__dict__.update(self.__dict__)
        graph.extras = dict(self.extras) if self.extras else None
        return graph

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        memo = {} if memo is None else memo
        found = [self]
        seen = {id(self)}
        for graph in found:  # it grows
            if graph.subgraphs:
                for inner in graph.subgraphs.values():
                    if id(inner) not in seen:
                        seen.add(id(inner))
                        found.append(inner)
        while found:  # the innermost first: they may nest deeper than calls may
            graph = found.pop()
            if id(graph) not in memo:
                graph._deepcopy_alone(memo)
        copied: Graph = memo[id(self)]
        return copied

    def _deepcopy_alone(self, memo: dict[int, Any]) -> Graph:
        """A copy with the copies of its subgraphs, which the memo has."""
        graph = self._copy(True)
        memo[id(self)] = graph
        graph.__dict__.update(copy.deepcopy(self.__dict__, memo))
        graph.extras = copy.deepcopy(self.extras, memo)
        graph.subgraphs = copy.deepcopy(self.subgraphs, memo)
        return graph

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _pickle.reduce(self)

    def draw(self, path: Any = None, **options: Any) -> str:
        """A picture of the graph, as SVG or for Graphviz; see `fastexport.draw`."""
        from fastexport._draw import draw

        return draw(self, path, **options)

    def print_tabular(self, file: Any = None) -> None:
        """Print the nodes as a table of opcode, name, target, args and kwargs; what does not show as an escape.

        Args:
            file: where to print to; sys.stdout when None.
        """
        from fastexport._terminal import one_line

        head: tuple[str, ...] = ("opcode", "name", "target", "args", "kwargs")
        nodes = ((n.op, n.name, str(n.target), str(n.args), str(n.kwargs)) for n in self.nodes)
        rows = [head, *(tuple(map(one_line, texts)) for texts in nodes)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
        rows.insert(1, tuple("-" * width for width in widths))
        for row in rows:
            print("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip(), file=file)

    def table(self) -> Table:
        """The nodes as a table: name, op, target, arguments, value, module and users.

        Example:
            >>> import operator
            >>> g = Graph()
            >>> out = g.output(g.call_function(operator.neg, (g.placeholder("x"),)))
            >>> g.table()
            name    op             target        arguments  value  module  users
            x       placeholder    x                                       [neg]
            neg     call_function  operator.neg  x                         [output]
            output  output         output        neg                       []
        """
        from fastexport import _views

        return _views.node_table(self)

    def summary(self, *, depth: int | None = 3) -> Summary:
        """The modules of the graph, by its nodes' nn_module_stack; see `fastexport.summary`."""
        from fastexport import _stats

        return _stats.summary(self, depth=depth)

    def view(self, *, height: int | str = 600, width: int | str = "100%") -> View:
        """The report page of the graph, for a notebook: a page of its own in the cell.

        Args:
            height, width: of the frame: pixels, or a length of CSS such as ``"80vh"``.
        """
        from fastexport._notebook import View

        return View(self, height, width)


def _holds_graph_modules(owner: Any, kind: type) -> bool:
    return any(inner is not owner and isinstance(inner, kind) for inner in owner.modules())


def _removed_names(graph: Graph, ids: bytes, inner: list[tuple[str, PassResult]]) -> list[str]:
    """Names of the nodes that a pass removed; of those in subgraphs, as ``path/name``."""
    return graph._names(ids) + [f"{path}/{name}" for path, result in inner for name in result.removed]


def _replaced_names(graph: Graph, removed: bytes, kept: bytes, inner: list[tuple[str, PassResult]]) -> dict[str, str]:
    """Names of the nodes that a pass replaced, with those in their places."""
    pairs = dict(zip(graph._names(removed), graph._names(kept), strict=True))
    for path, result in inner:
        pairs.update((f"{path}/{old}", f"{path}/{new}") for old, new in result.replaced.items())
    return pairs


def _under_paths(groups: Iterable[tuple[str, Iterable[tuple[str, str]]]]) -> dict[str, str]:
    """Reasons of subgraphs, with ``path/name`` for names."""
    return {f"{path}/{name}": why for path, reasons in groups for name, why in reasons}


def check_policy(policy: str) -> None:
    """Raise ValueError unless policy is a known one."""
    if policy not in ("safe", "torch"):
        raise ValueError(f"policy must be 'safe' or 'torch', not {policy!r}")
