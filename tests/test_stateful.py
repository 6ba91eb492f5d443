"""Random edits applied to a torch.fx.Graph and to ours: both must look the same after every step.

torch.fx is the model. What it allows and fastexport refuses on purpose (foreign and erased operands,
taken names, an erased insert point) is left out here and tested in test_bad_input.py.
"""

import collections
import copy
import math
import operator
import warnings

import hypothesis.strategies as st
import torch
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from torch.export.exported_program import _common_getitem_elimination_pass

import fastexport
from helpers import ORDER_FAULTS, names, plain, structure

Pair = collections.namedtuple("Pair", "first second")

FUNCTIONS = [
    operator.add,
    operator.getitem,
    operator.setitem,
    operator.neg,
    torch.add,
    torch.relu,
    torch._assert,
    torch.ops.aten.add_.Tensor,
    torch.ops.aten.rand.default,
    torch.ops.aten.sym_size.int,
    len,
    math.sqrt,
]
METHODS = ["relu", "mul_", "__add__", "toDense", "size"]
MODULES = ["linear", "deep.impure", "deep.relu"]
ATTRIBUTES = ["weight", "deep.bias", "linear.weight"]
NAMES = ["a", "b", "add", "add_1", "x_07", "relu_2", "f_", "_g", "H"]
TYPES = [None, int, torch.Tensor, list[int], "annotation"]
META_KEYS = ["val", "tag", "stack_trace"]


def root_module():
    root = torch.nn.Module()
    root.linear = torch.nn.Linear(1, 1)
    root.weight = torch.nn.Parameter(torch.zeros(1))
    root.deep = torch.nn.Module()
    root.deep.relu = torch.nn.ReLU()
    root.deep.impure = torch.nn.ReLU()
    root.deep.impure._is_impure = True
    root.deep.bias = torch.nn.Parameter(torch.zeros(1))
    return root


# ---- arguments: a tree whose Ref leaves become nodes of either graph

Ref = collections.namedtuple("Ref", "place")

constants = st.sampled_from(
    [None, True, False, 0, 1, -7, 2**62, -(2**63), 2**63, 1 << 80]
    + [0.0, -0.0, 1.5, 1e300, 5e-324, math.inf, 2 + 1j, -0.0 - 1j]
    + ["", "s", "it's", "\u00e9\n", b"b", ..., torch.float32, torch.strided, torch.device("cpu"), range(3)]
)
indexes = st.sampled_from([0, 1, -1, "0", "k", True, slice(None), slice(0, 2), (0, 1), None, 0.0])
leaves = st.one_of(constants, st.builds(Ref, st.integers(0, 10**6)), st.builds(Ref, st.integers(0, 10**6)))
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.sampled_from(["p", "q", "out"]), inner, max_size=2),
        st.builds(slice, leaves, leaves, leaves),
        st.builds(Pair, inner, inner),
        st.lists(st.integers(0, 5), max_size=3).map(torch.Size),
    ),
    max_leaves=6,
)
args_trees = st.lists(trees, max_size=3).map(tuple)
kwargs_trees = st.dictionaries(st.sampled_from(["p", "out", "alpha"]), trees, max_size=2)
places = st.integers(0, 10**6)


def grow(tree, nodes):
    """The tree with its Refs replaced by nodes; without any to choose from, by None."""
    if isinstance(tree, Ref):
        return nodes[tree.place % len(nodes)] if nodes else None
    if isinstance(tree, Pair):
        return Pair(grow(tree.first, nodes), grow(tree.second, nodes))
    if type(tree) in (tuple, list):
        return type(tree)(grow(item, nodes) for item in tree)
    if type(tree) is dict:
        return {key: grow(item, nodes) for key, item in tree.items()}
    if type(tree) is slice:
        return slice(*(grow(part, nodes) for part in (tree.start, tree.stop, tree.step)))
    return tree


class Edits(RuleBasedStateMachine):
    """The two graphs; a step picks nodes by their place in the list."""

    @initialize()
    def start(self):
        root = root_module()
        self.model = torch.fx.Graph(root)
        self.graph = fastexport.Graph(root)
        self.points = []  # (contexts in both graphs, name of the anchor)
        self.walks = []  # (iterators over both graphs, nodes left to compare)
        self.erased = []
        for graph in (self.model, self.graph):
            x, y = graph.placeholder("x"), graph.placeholder("y")
            add = graph.call_function(operator.add, (x, y))
            graph.call_function(operator.getitem, (add, 0))
            graph.call_function(operator.getitem, (graph.call_method("relu", (add,)), 0))

    # ---- both graphs at once

    def both(self, function):
        """Do the same to both graphs; both give the same, or both raise."""
        results = []
        for graph in (self.model, self.graph):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    results.append((True, function(graph)))
            except Exception as error:
                results.append((False, error))
        (model_done, model_result), (done, result) = results
        assert model_done == done, (model_result, result)
        if not done:
            return None
        assert plain(model_result) == plain(result)
        return result

    def before(self, graph, place):
        """The nodes that stand before a place, so that most operands are defined before their use."""
        nodes = list(graph.nodes)
        return nodes[:place] if place else nodes

    def insert_place(self):
        """How many nodes stand before the insert point."""
        if not self.points:
            return len(self.graph.nodes)
        anchor, after = self.points[-1][1:]
        return names(self.graph).index(anchor) + after

    def pick(self, graph, place):
        nodes = list(graph.nodes)
        return nodes[place % len(nodes)]

    def has_nodes(self):
        return len(self.graph.nodes) > 0

    def anchors(self):
        return {anchor for _, anchor, _ in self.points}

    def in_order(self):
        return not self.graph._lint(False, True)

    # ---- making nodes

    @rule(name=st.sampled_from([*NAMES, "input", "self", "1x", "a b", ""]), type_expr=st.sampled_from(TYPES))
    def placeholder(self, name, type_expr):
        self.both(lambda graph: graph.placeholder(name, type_expr))

    @rule(name=st.sampled_from(NAMES), default=constants)
    def placeholder_with_default(self, name, default):
        self.both(lambda graph: graph.placeholder(name, default_value=default))

    @rule(path=st.sampled_from(ATTRIBUTES), type_expr=st.sampled_from(TYPES))
    def get_attr(self, path, type_expr):
        self.both(lambda graph: graph.get_attr(path, type_expr))

    @rule(
        call=st.one_of(
            st.tuples(st.just("call_function"), st.sampled_from(FUNCTIONS)),
            st.tuples(st.just("call_method"), st.sampled_from(METHODS)),
            st.tuples(st.just("call_module"), st.sampled_from(MODULES)),
        ),
        args=args_trees,
        kwargs=kwargs_trees,
        name=st.sampled_from([None, None, None, *NAMES]),
        type_expr=st.sampled_from(TYPES),
        ordered=st.sampled_from([True, True, True, False]),
    )
    def call(self, call, args, kwargs, name, type_expr, ordered):
        place = self.insert_place() if ordered else 0
        self.both(
            lambda graph: graph.create_node(
                *call,
                grow(args, self.before(graph, place)),
                grow(kwargs, self.before(graph, place)),
                name=name,
                type_expr=type_expr,
            )
        )

    @rule(source=places, index=indexes)
    @precondition(has_nodes)
    def getitem(self, source, index):
        place = self.insert_place()
        self.both(
            lambda graph: graph.call_function(operator.getitem, grow((Ref(source), index), self.before(graph, place)))
        )

    @rule(result=trees, type_expr=st.sampled_from(TYPES))
    @precondition(lambda self: all(node.op != "output" for node in self.graph.nodes))
    def output(self, result, type_expr):
        self.both(lambda graph: graph.output(grow(result, list(graph.nodes)), type_expr))

    @rule(place=places, other=places)
    @precondition(has_nodes)
    def node_copy(self, place, other):
        if self.pick(self.graph, place).op != "output":
            self.both(lambda graph: graph.node_copy(self.pick(graph, place), lambda node: self.pick(graph, other)))

    # ---- changing arguments

    @rule(place=places, args=args_trees, ordered=st.sampled_from([True, True, False]))
    @precondition(has_nodes)
    def set_args(self, place, args, ordered):
        def change(graph):
            node = self.pick(graph, place)
            at = place % len(graph.nodes)
            node.args = grow(args, self.before(graph, at) if ordered else list(graph.nodes))

        self.unless_output(place, change)

    @rule(place=places, kwargs=kwargs_trees)
    @precondition(has_nodes)
    def set_kwargs(self, place, kwargs):
        def change(graph):
            self.pick(graph, place).kwargs = grow(kwargs, self.before(graph, place % len(graph.nodes)))

        self.unless_output(place, change)

    @rule(place=places, index=st.integers(-2, 3), value=trees)
    @precondition(has_nodes)
    def update_arg(self, place, index, value):
        self.unless_output(
            place,
            lambda graph: self.pick(graph, place).update_arg(
                index, grow(value, self.before(graph, place % len(graph.nodes)))
            ),
        )

    # torch.fx keeps plain lists and dicts that come in through insert_arg as they are; we don't.
    @rule(place=places, index=st.integers(-1, 3), value=st.one_of(leaves, st.lists(leaves, max_size=3).map(tuple)))
    @precondition(has_nodes)
    def insert_arg(self, place, index, value):
        self.unless_output(
            place,
            lambda graph: self.pick(graph, place).insert_arg(
                index, grow(value, self.before(graph, place % len(graph.nodes)))
            ),
        )

    @rule(place=places, key=st.sampled_from(["p", "z"]), value=trees)
    @precondition(has_nodes)
    def update_kwarg(self, place, key, value):
        self.unless_output(
            place,
            lambda graph: self.pick(graph, place).update_kwarg(
                key, grow(value, self.before(graph, place % len(graph.nodes)))
            ),
        )

    def unless_output(self, place, change):
        """An output without arguments, or with several, has no text in torch.fx."""
        if self.pick(self.graph, place).op != "output":
            self.both(change)

    @rule(place=places, old=places, new=places)
    @precondition(has_nodes)
    def replace_input(self, place, old, new):
        def change(graph):
            node = self.pick(graph, place)
            inputs = node.all_input_nodes or [node]
            node.replace_input_with(inputs[old % len(inputs)], self.pick(graph, new))

        self.both(change)

    @rule(place=places, new=places, which=st.sampled_from([None, 2, 3]), propagate=st.booleans())
    @precondition(has_nodes)
    def replace_all_uses(self, place, new, which, propagate):
        chosen = None if which is None else lambda user: len(user.name) % which == 0
        self.both(
            lambda graph: self.pick(graph, place).replace_all_uses_with(
                self.pick(graph, new), chosen, propagate_meta=propagate
            )
        )

    # ---- order

    @rule(place=places, anchor=places, after=st.booleans())
    @precondition(has_nodes)
    def move(self, place, anchor, after):
        def change(graph):
            node, stays = self.pick(graph, place), self.pick(graph, anchor)
            (stays.append if after else stays.prepend)(node)

        if place % len(self.graph.nodes) != anchor % len(self.graph.nodes):
            self.both(change)

    @rule(place=places)
    @precondition(has_nodes)
    def erase(self, place):
        node = self.pick(self.graph, place)
        if node.name in self.anchors():
            return
        pair = self.pick(self.model, place), node
        self.both(lambda graph: graph.erase_node(self.pick(graph, place)))
        if node._erased:
            self.erased.append(pair)

    @rule()
    @precondition(has_nodes)
    def erase_unused(self):
        keep = self.anchors()

        def change(graph):
            for node in reversed(graph.nodes):
                if not node.users and node.op not in ("placeholder", "output") and node.name not in keep:
                    graph.erase_node(node)

        self.both(change)

    @rule(place=places, after=st.booleans())
    @precondition(has_nodes)
    def enter(self, place, after):
        def point(graph):
            node = self.pick(graph, place)
            return (graph.inserting_after if after else graph.inserting_before)(node)

        contexts = [point(graph) for graph in (self.model, self.graph)]
        for context in contexts:
            context.__enter__()
        self.points.append((contexts, self.pick(self.graph, place).name, after))

    @rule()
    @precondition(lambda self: self.points)
    def leave(self):
        for context in self.points.pop()[0]:
            context.__exit__(None, None, None)

    # ---- other attributes

    @rule(place=places, name=st.sampled_from([*NAMES, "fresh", "with space", "class"]))
    @precondition(has_nodes)
    def rename(self, place, name):
        if self.pick(self.graph, place).name in self.anchors() or name in names(self.graph):
            return

        def change(graph):
            self.pick(graph, place).name = name

        self.both(change)
        # torch.fx would give a name taken so to the next node that asks for it.
        self.model._graph_namespace._used_names.add(name)

    @rule(place=places, function=st.sampled_from(FUNCTIONS), word=st.sampled_from([*METHODS, *MODULES]))
    @precondition(has_nodes)
    def retarget(self, place, function, word):
        def change(graph):
            node = self.pick(graph, place)
            node.target = function if node.op == "call_function" else word

        self.unless_output(place, change)

    @rule(place=places, type_expr=st.sampled_from(TYPES))
    @precondition(has_nodes)
    def set_type(self, place, type_expr):
        def change(graph):
            self.pick(graph, place).type = type_expr

        self.both(change)

    @rule(place=places, key=st.sampled_from(META_KEYS), value=constants)
    @precondition(has_nodes)
    def set_meta(self, place, key, value):
        def change(graph):
            self.pick(graph, place).meta[key] = value

        self.both(change)

    @rule(place=places, key=st.sampled_from(META_KEYS))
    @precondition(has_nodes)
    def pop_meta(self, place, key):
        self.both(lambda graph: self.pick(graph, place).meta.pop(key, "none"))

    @rule(place=places, items=st.dictionaries(st.sampled_from(META_KEYS), constants, max_size=3))
    @precondition(has_nodes)
    def assign_meta(self, place, items):
        def change(graph):
            self.pick(graph, place).meta = dict(items)

        self.both(change)

    # ---- iteration over a graph that changes

    @rule(backwards=st.booleans())
    def begin_walk(self, backwards):
        if len(self.walks) < 3:
            walk = reversed if backwards else iter
            self.walks.append([walk(self.model.nodes), walk(self.graph.nodes)])

    @rule(which=st.integers(0, 2))
    @precondition(lambda self: self.walks)
    def step_walk(self, which):
        walk = self.walks[which % len(self.walks)]
        model_node, node = (next(iterator, None) for iterator in walk)
        assert (model_node and model_node.name) == (node and node.name)
        if node is None:
            self.walks.remove(walk)

    # ---- whole graphs

    @rule()
    @precondition(lambda self: self.in_order() and not self.points)
    def dead_code(self):
        before = set(names(self.graph))
        result = self.graph.eliminate_dead_code(policy="torch")
        assert self.model.eliminate_dead_code() == result.modified
        assert set(result.removed) == before - set(names(self.model))

    @rule(letter=st.sampled_from("adr_"))
    @precondition(lambda self: not self.points)
    def dead_code_by_callback(self, letter):
        self.both(lambda graph: bool(graph.eliminate_dead_code(lambda node: letter in node.name)))

    @rule()
    @precondition(lambda self: self.in_order() and not self.points)
    def common_getitems(self):
        if any(
            node.op == "call_function"
            and node.target is operator.getitem
            and (len(node.args) != 2 or node.kwargs or type(node.args[0]) is not fastexport.Node)
            for node in self.graph.nodes
        ):
            return  # torch.export's pass can't unpack these
        module = torch.fx.GraphModule(torch.nn.Module(), torch.fx.Graph())
        module._graph = self.model
        before = set(names(self.graph))
        _common_getitem_elimination_pass(module, NoSignature, [])
        replaced = self.graph.eliminate_getitems(policy="torch").replaced
        assert set(replaced) == before - set(names(self.model))

    @rule()
    @precondition(lambda self: self.in_order())
    def copies(self):
        nodes = list(self.graph.nodes)
        if any(node.op == "output" for node in nodes[:-1]):
            return  # torch.fx copies nothing after an output
        model, graph = copy.deepcopy(self.model), copy.deepcopy(self.graph)
        assert graph == self.graph
        for ours, copied in zip(structure(self.graph), structure(graph), strict=True):
            # insert_arg can leave inputs in another order than that of their first use, which is a copy's.
            assert [sorted(copied[7]), *copied[:7], copied[8]] == [sorted(ours[7]), *ours[:7], ours[8]]
        if {"class", "with space", "input", "self"}.isdisjoint(names(graph)):
            # torch.fx names the nodes of a copy anew.
            assert str(model) == str(graph)
            for target in (operator.add, torch.relu):
                assert model.call_function(target).name == graph.call_function(target).name

    @rule(place=places, with_output=st.booleans())
    @precondition(has_nodes)
    def copy_into_new(self, place, with_output):
        def copy_of(graph):
            new = type(graph)()
            given = {self.pick(graph, place): new.placeholder("given")}
            result = new.graph_copy(graph, given, with_output)
            return str(new), plain(result), [(key.name, value.name) for key, value in given.items()]

        self.both(copy_of)

    # ---- what must hold after every step

    @invariant()
    def same(self):
        if not hasattr(self, "graph"):
            return
        assert structure(self.model) == structure(self.graph)
        assert str(self.model) == str(self.graph)
        assert len(self.model.nodes) == len(self.graph.nodes) == len(names(self.graph))
        assert names(reversed(self.graph.nodes)) == names(self.graph)[::-1]

    @invariant()
    def same_order(self):
        if not hasattr(self, "graph"):
            return
        nodes = list(self.graph.nodes)
        assert all(a < b and b > a and not b < a for a, b in zip(nodes, nodes[1:], strict=False))
        for node, model in zip(nodes, self.model.nodes, strict=True):
            assert (node.next.name, node.prev.name) == (model.next.name, model.prev.name)

    @invariant()
    def same_lint(self):
        if not hasattr(self, "graph"):
            return
        faults = [fault for fault in self.graph.lint(all=True) if fault.is_error]
        assert {fault.code for fault in faults} <= ORDER_FAULTS | {"TARGET_MISSING", "TARGET_NOT_MODULE"}
        try:
            self.model.lint()
        except RuntimeError:
            assert not self.in_order()
        else:
            assert self.in_order()

    @invariant()
    def same_finds(self):
        if not hasattr(self, "graph"):
            return
        for target in FUNCTIONS:
            assert self.found("call_function", target)
        for target in [None, *METHODS]:
            assert self.found("call_method", target)
        for op in ("placeholder", "get_attr", "call_module", "output"):
            assert self.found(op, None)

    def found(self, op, target):
        ours = self.graph.find_nodes(op=op, target=target)
        assert names(ours) == names(self.model.find_nodes(op=op, target=target))
        assert sorted(self.graph.find_nodes(op=op, target=target, sort=False)) == ours
        return True

    @invariant()
    def same_erased(self):
        if not hasattr(self, "graph"):
            return
        for model, node in self.erased[-5:]:
            assert node._erased and node.name == model.name
            assert plain(node.args) == plain(model.args)
            assert plain(node.kwargs) == plain(model.kwargs)
            assert dict(node.meta) == model.meta
            assert node.all_input_nodes == [] and len(node.users) == 0
            assert node not in self.graph.nodes


class NoSignature:
    """As much of an export signature as the getitem pass looks at."""

    @staticmethod
    def get_replace_hook():
        return lambda old, new, user: None


Edits.TestCase.settings = settings(max_examples=120, stateful_step_count=40)
TestEdits = Edits.TestCase
