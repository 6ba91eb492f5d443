"""The stages of a pipeline that `accelerate()` makes faster, on the models of the zoo.

A stage has a `prepare`, which makes what one run needs, a `run`, which is timed, and a `check`, which raises unless
two results are the same. The model is exported once for all its stages.
"""

import copy
import importlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.fx.passes.utils.matcher_utils import SubgraphMatcher
from torch.fx.subgraph_rewriter import replace_pattern

import zoo

aten = torch.ops.aten


@dataclass(frozen=True)
class Stage:
    """Something a pipeline does with a model: `run` gets what `prepare` makes.

    With `cold`, what accelerate() keeps from one call to another is forgotten before each run.
    """

    title: str
    prepare: Callable[[], Any]
    run: Callable[[Any], Any]
    check: Callable[[Any, Any], None]
    cold: bool = False


class Model:
    """A model of the zoo at one depth; what stages begin with is made when first asked for."""

    def __init__(self, name: str, layers: int):
        self.name, self.layers = name, layers

    @property
    def title(self) -> str:
        return f"{self.name}, {self.layers} blocks"

    @cached_property
    def source(self) -> tuple[torch.nn.Module, zoo.Args]:
        return zoo.build(self.name, self.layers)

    @property
    def args(self) -> zoo.Args:
        return self.source[1]

    @cached_property
    def program(self) -> torch.export.ExportedProgram:
        return self.export()

    def export(self) -> torch.export.ExportedProgram:
        with torch.no_grad():
            return torch.export.export(*self.source)

    @cached_property
    def module(self) -> torch.fx.GraphModule:
        return self.program.module()

    @cached_property
    def training_module(self) -> torch.fx.GraphModule:
        return torch.export.export(copy.deepcopy(self.source[0]).train(), self.args).module()

    @cached_property
    def saved(self) -> bytes:
        return save(self.program)

    def prepared(self, quantizer: Callable[[], Any]) -> Callable[[], torch.fx.GraphModule]:
        """Makes copies of the model as prepare_pt2e leaves it, calibrated."""
        first: list[torch.fx.GraphModule] = []

        def make() -> torch.fx.GraphModule:
            if not first:
                first.append(prepare(copy.deepcopy(self.module), quantizer()))
                first[0](*self.args)
            return copy.deepcopy(first[0])

        return make


# ---- what the stages do --------------------------------------------------------------------------


def x86() -> Any:
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86_quantizer

    config = x86_quantizer.get_default_x86_inductor_quantization_config()
    return x86_quantizer.X86InductorQuantizer().set_global(config)


def xnnpack(is_qat: bool = False) -> Any:
    from torchao.testing.pt2e import _xnnpack_quantizer as xnnpack_quantizer

    config = xnnpack_quantizer.get_symmetric_quantization_config(is_per_channel=True, is_qat=is_qat)
    return xnnpack_quantizer.XNNPACKQuantizer().set_global(config)


def prepare(module: torch.fx.GraphModule, quantizer: Any) -> torch.fx.GraphModule:
    from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

    return prepare_pt2e(module, quantizer)


def prepare_qat(module: torch.fx.GraphModule, quantizer: Any) -> torch.fx.GraphModule:
    from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e

    return prepare_qat_pt2e(module, quantizer)


def convert(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

    return convert_pt2e(module)


def quantize(module: torch.fx.GraphModule, quantizer: Any, args: zoo.Args) -> torch.fx.GraphModule:
    """The whole of it. The first call of a module has its code made, which accelerate() puts off until then."""
    prepared = prepare(module, quantizer)
    prepared(*args)
    converted = convert(prepared)
    converted(*args)
    return converted


def use_plain_range() -> None:
    """Let histogram observers take the range they saw: their search is tensor maths, and the same for both."""
    observer = importlib.import_module("torchao.quantization.pt2e.observer")
    observer.HistogramObserver.calculate_qparams = lambda self: self._calculate_qparams(self.min_val, self.max_val)


def save(program: torch.export.ExportedProgram) -> bytes:
    file = io.BytesIO()
    torch.export.save(program, file)
    return file.getvalue()


def rebuild(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Make a program anew of its parts, as each pass of a lowering does."""
    return torch.export.ExportedProgram(
        root=program.graph_module,
        graph=program.graph,
        graph_signature=program.graph_signature,
        state_dict=program.state_dict,
        range_constraints=program.range_constraints,
        module_call_graph=program.module_call_graph,
        example_inputs=program.example_inputs,
        constants=program.constants,
        verifiers=program.verifiers,
    )


def _binary(target: Any) -> torch.fx.Graph:
    graph = torch.fx.Graph()
    a, b = graph.placeholder("a"), graph.placeholder("b")
    graph.output(graph.call_function(target, (a, b)))
    return graph


def match(module: torch.fx.GraphModule) -> list[Any]:
    return SubgraphMatcher(_binary(aten.add.Tensor)).match(module.graph)


def replace(module: torch.fx.GraphModule) -> list[Any]:
    return replace_pattern(module, _binary(aten.add.Tensor), _binary(aten.sub.Tensor))


# ---- when two results are the same ---------------------------------------------------------------


def same_text(a: str, b: str, what: str) -> None:
    if a != b:
        lines = zip(a.splitlines(), b.splitlines(), strict=False)
        where = next((f"{x!r} / {y!r}" for x, y in lines if x != y), "one is longer")
        raise AssertionError(f"{what}: {where}")


def same_module(args: zoo.Args) -> Callable[[Any, Any], None]:
    def check(a: torch.fx.GraphModule, b: torch.fx.GraphModule) -> None:
        same_text(str(a.graph), str(b.graph), "graphs")
        same_text(a.code, b.code, "code")
        if not args:
            return
        torch.manual_seed(0)
        first = a(*args)
        torch.manual_seed(0)
        second = b(*args)
        for x, y in zip(torch.utils._pytree.tree_leaves(first), torch.utils._pytree.tree_leaves(second), strict=True):
            if not torch.equal(x, y) and not (x.isnan() == y.isnan()).all():
                raise AssertionError("outputs differ")

    return check


def same_program(a: torch.export.ExportedProgram, b: torch.export.ExportedProgram) -> None:
    same_text(str(a), str(b), "programs")
    same_text(str(a.graph_signature), str(b.graph_signature), "signatures")


def same_bytes(a: bytes, b: bytes) -> None:
    if a != b:
        raise AssertionError("the saved files differ")


# ---- the stages ----------------------------------------------------------------------------------


def stages(model: Model) -> dict[str, Stage]:
    """Every stage, by name, of a model."""
    args = model.args

    def changed(title: str, run: Callable[[Any], Any], source: Callable[[], Any], ran: zoo.Args = args) -> Stage:
        def on_itself(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
            run(module)
            return module

        return Stage(title, source, on_itself, same_module(ran))

    def quantized(title: str, quantizer: Callable[[], Any]) -> list[Stage]:
        made = model.prepared(quantizer)
        return [
            Stage(
                f"prepare_pt2e, {title}",
                lambda: copy.deepcopy(model.module),
                lambda module: prepare(module, quantizer()),
                same_module(args),
            ),
            Stage(f"convert_pt2e, {title}", made, convert, same_module(args)),
            Stage(
                f"prepare, call, convert, call, {title}",
                lambda: copy.deepcopy(model.module),
                lambda module: quantize(module, quantizer(), args),
                same_module(args),
            ),
        ]

    def trained() -> torch.fx.GraphModule:
        return copy.deepcopy(model.training_module)

    def prepare_for_training(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
        return prepare_qat(module, xnnpack(True))

    def fake_quantized() -> torch.fx.GraphModule:
        module = prepare_for_training(trained())
        torch.manual_seed(0)  # for the dropout
        module(*args)
        return module

    found = [
        Stage("export", lambda: None, lambda _: model.export(), same_program),
        Stage("ep.module()", lambda: model.program, lambda ep: ep.module(), same_module(args)),
        Stage("ExportedProgram(...)", lambda: model.program, rebuild, same_program),
        Stage("run_decompositions", lambda: model.program, lambda ep: ep.run_decompositions(), same_program),
        Stage("torch.export.save", lambda: model.program, save, same_bytes),
        Stage("torch.export.load", lambda: model.saved, lambda data: torch.export.load(io.BytesIO(data)), same_program),
        *quantized("X86", x86),
        *quantized("XNNPACK", xnnpack),
        *(
            stage
            for cold, cache in ((True, "cold cache"), (False, "warm cache"))
            for stage in (
                Stage(f"prepare_qat_pt2e, {cache}", trained, prepare_for_training, same_module(()), cold),
                Stage(f"convert_pt2e after QAT, {cache}", fake_quantized, convert, same_module(()), cold),
            )
        ),
        Stage("SubgraphMatcher.match", lambda: copy.deepcopy(model.module), match, lambda a, b: None),
        changed("replace_pattern", replace, lambda: copy.deepcopy(model.module)),
        Stage("deepcopy(module)", lambda: model.module, copy.deepcopy, same_module(args)),
        changed("eliminate_dead_code", lambda gm: gm.graph.eliminate_dead_code(), lambda: copy.deepcopy(model.module)),
    ]
    return {stage.title: stage for stage in found}
