"""Annotating by pattern: which operators get which specs, said in one table instead of a quantizer class.

A rule is a pattern and what is to be observed there. The first rule that matches a node holds, and nodes that have an
annotation already are left alone, as quantizers do among each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from fastexport._errors import FastExportError
from fastexport.pt2e._graphs import ANNOTATION, dtype_name, flat_nodes, is_float_dtype, op_name, parts


class Observed(NamedTuple):
    """What is observed where a pattern matches.

    Attributes:
        inputs: a torchao QuantizationSpec for every floating-point tensor that goes in; or a mapping from names of
            arguments (those of the operator's schema, or of the pattern function) or positions to specs, others not
            being observed.
        output: a spec for the result, or None.
    """

    inputs: Any = None
    output: Any = None


class _Match(NamedTuple):
    """A place where a pattern matches.

    Attributes:
        nodes: the nodes, in the order of the graph; the last gives the result.
        inputs: for each input the names and the position that a mapping may know it by, the node it comes from, and
            the matched node that uses it.
    """

    nodes: list[Any]
    inputs: list[tuple[tuple[Any, ...], Any, Any]]


Rules = Mapping[Any, Any] | Iterable[tuple[Any, Any]]


def annotate(gm: Any, rules: Rules) -> dict[str, Any]:
    """Annotate nodes by pattern, ready for prepare_pt2e's part that inserts observers.

    Args:
        gm: a torch.fx.GraphModule or Graph as torch.export gives it, or a fastexport Graph; its nodes' meta is changed.
        rules: pattern -> `Observed`, or a spec that stands for ``Observed(inputs=spec, output=spec)``; a mapping or
            pairs. A pattern is

            - an operator: ``torch.ops.aten.linear.default``, or ``torch.ops.aten.add`` for all overloads;
            - a tuple of operators, each used by the next alone: ``(torch.ops.aten.conv2d.default,
              torch.ops.aten.relu.default)``. Inside nothing is observed; the inputs are those of the first;
            - a small function of tensors that calls operators of ``torch.ops``: inputs are known by its parameters.

    Returns:
        Name of each annotated node -> the pattern that it matched.

    Raises:
        FastExportError: a mapping of inputs has a name or position that the pattern hasn't.
        TypeError: gm is no graph, or a pattern is none of these, or is a function and gm is no torch graph.

    Integer and boolean tensors are never observed.

    Example::

        aten = torch.ops.aten
        annotate(gm, {
            (aten.conv2d.default, aten.relu.default): Observed({"input": act, "weight": weight}, act),
            aten.linear.default: Observed({"input": act, "weight": weight}),
            aten.add: act,
        })
    """
    graph, module, _ = parts(gm)
    done: dict[str, Any] = {}
    for pattern, observed in _pairs(rules):
        wanted = observed if isinstance(observed, Observed) else Observed(observed, observed)
        for match in _matches(graph, pattern):
            if not any(_is_taken(node) for node in match.nodes):
                _annotate(match, wanted, pattern)
                done.update((node.name, pattern) for node in match.nodes)
    return done


def insert_observers(gm: Any, rules: Rules, *, is_qat: bool = False) -> Any:
    """Annotate by pattern and insert the observers, or with ``is_qat`` the fake quantizers.

    What prepare_pt2e does after folding: call `fold_conv_bn` before, run the result on example inputs, and give it to
    convert_pt2e.

    Args:
        gm: a torch.fx.GraphModule as ``torch.export.export(...).module()`` gives it.
        rules: as for `annotate`.
        is_qat: insert fake quantizers, for training.

    Returns:
        The prepared GraphModule.

    Raises:
        AnnotationError: the annotations (of others, too) can't be used; see `check_annotations`.
        FastExportError, TypeError: as for `annotate`.
    """
    from torchao.quantization.pt2e.prepare import prepare
    from torchao.quantization.pt2e.utils import _disallow_eval_train, _get_node_name_to_scope

    from fastexport.pt2e._checks import check_annotations

    _, module, _ = parts(gm)
    if module is not gm:
        raise TypeError(f"insert_observers takes a torch.fx.GraphModule, not {type(gm).__name__}; see annotate")
    meta = gm.meta
    scopes = _get_node_name_to_scope(gm)
    annotate(gm, rules)
    check_annotations(gm, raise_on_error=True)
    prepared = prepare(gm, scopes, is_qat=is_qat)
    prepared.meta.update(meta)
    return _disallow_eval_train(prepared)


def pattern_quantizer(rules: Rules) -> Any:
    """A torchao Quantizer that annotates by pattern, for prepare_pt2e, prepare_qat_pt2e and ComposableQuantizer.

    Args:
        rules: as for `annotate`.

    Example::

        prepared = prepare_pt2e(gm, pattern_quantizer({torch.ops.aten.linear.default: spec}))
    """
    from torchao.quantization.pt2e.quantizer import Quantizer

    kept = _pairs(rules)

    class PatternQuantizer(Quantizer):
        def annotate(self, model: Any) -> Any:
            annotate(model, kept)
            return model

        def validate(self, model: Any) -> None:
            from fastexport.pt2e._checks import check_annotations

            check_annotations(model, raise_on_error=True)

    return PatternQuantizer()


# ---- annotations


def _pairs(rules: Any) -> list[tuple[Any, Any]]:
    try:
        pairs = [(pattern, observed) for pattern, observed in (rules.items() if isinstance(rules, Mapping) else rules)]
    except (TypeError, ValueError):
        raise TypeError(f"rules are a mapping from pattern to Observed, or pairs of these, not {rules!r}") from None
    for pattern, observed in pairs:
        if observed is None or isinstance(observed, (str, int, float)):
            raise TypeError(f"the rule for {_told(pattern)} has {observed!r} where an Observed or a spec belongs")
    return pairs


def _is_taken(node: Any) -> bool:
    annotation = node.meta.get(ANNOTATION)
    return annotation is not None and annotation._annotated


def _annotate(match: _Match, wanted: Observed, pattern: Any) -> None:
    from torchao.quantization.pt2e.quantizer import QuantizationAnnotation

    specs: dict[Any, dict[Any, Any]] = {node: {} for node in match.nodes}
    if isinstance(wanted.inputs, Mapping):
        known = {key for keys, _, _ in match.inputs for key in keys}
        unknown = [key for key in wanted.inputs if key not in known and not _is_optional(key, match)]
        if unknown:
            names = [keys[0] for keys, _, _ in match.inputs]
            raise FastExportError(
                f"the pattern {_told(pattern)} has no input {unknown[0]!r} at {match.nodes[-1].name}; its inputs are "
                f"{names}"
            )
    for keys, source, user in match.inputs:
        if isinstance(wanted.inputs, Mapping):
            spec = next((wanted.inputs[key] for key in keys if key in wanted.inputs), None)
        else:
            spec = wanted.inputs
        if spec is not None and _is_float(source):
            specs[user][source] = spec
    for node, inputs in specs.items():
        output = wanted.output if node is match.nodes[-1] and _is_float(node) else None
        node.meta[ANNOTATION] = QuantizationAnnotation(input_qspec_map=inputs, output_qspec=output, _annotated=True)


def _is_optional(key: Any, match: _Match) -> bool:
    """Whether a name is that of an argument which is no tensor at this place, such as a bias that is None."""
    arguments = [a.name for a in getattr(getattr(match.nodes[0].target, "_schema", None), "arguments", ())]
    return key in arguments or (isinstance(key, int) and 0 <= key < len(arguments))


def _is_float(node: Any) -> bool:
    dtype = dtype_name(node)
    if dtype is None:  # without a value nothing is known; what is no tensor has one that is none
        return "val" not in node.meta
    return is_float_dtype(dtype)


def _told(pattern: Any) -> str:
    if isinstance(pattern, tuple):
        return " -> ".join(map(_told, pattern))
    return str(getattr(pattern, "__name__", pattern) if not hasattr(pattern, "_schema") else pattern)


# ---- matching


def _matches(graph: Any, pattern: Any) -> list[_Match]:
    """Where a pattern matches, in the order of the graph; found before anything is annotated."""
    if _is_operator(pattern):
        return [_Match([node], _inputs(node)) for node in graph.nodes if _calls(node, pattern)]
    if isinstance(pattern, tuple) and pattern and all(map(_is_operator, pattern)):
        return list(_chains(graph, pattern))
    if callable(pattern):
        return list(_subgraphs(graph, pattern))
    raise TypeError(f"a pattern is an operator, a tuple of operators or a function, not {pattern!r}")


def _is_operator(pattern: Any) -> bool:
    """Whether a pattern is a target: an operator of torch, or a function in C or of torch that a graph may call."""
    if hasattr(pattern, "_schema") or hasattr(pattern, "_qualified_op_name"):
        return True
    module = getattr(pattern, "__module__", None) or ""
    return callable(pattern) and (not hasattr(pattern, "__code__") or module.partition(".")[0] == "torch")


def _calls(node: Any, pattern: Any) -> bool:
    if node.op != "call_function":
        return False
    return node.target is pattern or getattr(node.target, "overloadpacket", None) is pattern


def _inputs(node: Any) -> list[tuple[tuple[Any, ...], Any, Any]]:
    names = [argument.name for argument in getattr(getattr(node.target, "_schema", None), "arguments", ())]
    found = []
    for place, arg in enumerate(node.args):
        keys = (names[place], place) if place < len(names) else (place,)
        found += [(keys, source, node) for source in flat_nodes(arg)]
    for name, arg in node.kwargs.items():
        found += [((name,), source, node) for source in flat_nodes(arg)]
    return found


def _chains(graph: Any, pattern: tuple[Any, ...]) -> Iterator[_Match]:
    for node in graph.nodes:
        chain = [node]
        for step in pattern[1:]:
            users = list(chain[-1].users)
            if len(users) == 1 and _calls(users[0], step):
                chain.append(users[0])
        if len(chain) == len(pattern) and _calls(node, pattern[0]):
            yield _Match(chain, _inputs(node))


def _subgraphs(graph: Any, pattern: Callable[..., Any]) -> Iterator[_Match]:
    import torch.fx
    from torch.fx.passes.utils.matcher_utils import SubgraphMatcher

    if not isinstance(graph, torch.fx.Graph):
        raise TypeError(f"the pattern {_told(pattern)} is a function, which is looked for in torch graphs only")
    traced = torch.fx.symbolic_trace(pattern).graph
    traced.eliminate_dead_code()
    places = {node: place for place, node in enumerate(graph.nodes)}
    if not any(node.op == "call_function" and op_name(node) for node in traced.nodes):
        raise TypeError(f"the pattern function {_told(pattern)} calls no operator")
    for match in SubgraphMatcher(traced, ignore_literals=True).match(graph):
        inner = [node for node in traced.nodes if node.op not in ("placeholder", "output")]
        nodes = sorted((match.nodes_map[node] for node in inner), key=places.__getitem__)
        inputs = []
        for place, outer in enumerate(traced.find_nodes(op="placeholder")):
            source = match.nodes_map.get(outer)
            if isinstance(source, torch.fx.Node):
                inputs += [((outer.name, place), source, match.nodes_map[user]) for user in outer.users]
        yield _Match(nodes, inputs)
