"""From an eager model to int8 on the CPU and into a file, with and without `fastexport.accelerate()`.

Each stage of a PT2E pipeline runs twice on equal inputs, as torch and torchao do it and with the block around it, and
must come to the same graph, the same code and the same outputs, bit by bit: export, prepare, calibrate, convert,
decompose, save, load.
"""

import argparse
import copy
import importlib
import io
import logging
import sys
import textwrap
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import torch

import fastexport
import zoo
from progress import waiting

SMALL = {"bert": 6, "llama": 12, "vit": 12, "resnet": 32, "mobilenet": 17}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=textwrap.fill(__doc__.replace("\n", " "), 96),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Weights are random and widths tiny; nothing is downloaded. The exit status is 1 when results differ.",
    )
    parser.add_argument("model", nargs="?", default="resnet", choices=sorted(SMALL), help="(default: resnet)")
    parser.add_argument("--layers", type=int, metavar="N", help="blocks of the model (default: a few hundred nodes)")
    parser.add_argument("--quantizer", choices=["x86", "xnnpack"], default="x86")
    parser.add_argument("--qat", action="store_true", help="train-aware: fake quantizers; with the XNNPACK quantizer")
    parser.add_argument("--report", action="store_true", help="list what was quantized, and what not and why")
    args = parser.parse_args()
    if args.layers is not None and not 1 <= args.layers <= 1000:
        parser.error("--layers must be from 1 to 1000, such as 12")
    if args.qat:
        args.quantizer = "xnnpack"
    if args.quantizer == "xnnpack" and args.model in ("bert", "llama"):
        parser.error(f"the XNNPACK quantizer observes the integer sums in the mask of {args.model}; take x86")
    return args


def make_quantizer(name: str, is_qat: bool) -> Any:
    if name == "x86":
        module = importlib.import_module("torchao.quantization.pt2e.quantizer.x86_inductor_quantizer")
        return module.X86InductorQuantizer().set_global(module.get_default_x86_inductor_quantization_config())
    module = importlib.import_module("torchao.testing.pt2e._xnnpack_quantizer")
    config = module.get_symmetric_quantization_config(is_per_channel=True, is_qat=is_qat)
    return module.XNNPACKQuantizer().set_global(config)


class Pipeline:
    """The stages, one after the other; `results` keeps what each came to."""

    def __init__(self, args: argparse.Namespace, accelerated: bool):
        self.args, self.accelerated = args, accelerated
        self.seconds: dict[str, float] = {}
        self.results: dict[str, Any] = {}

    def stage(self, title: str, run: Callable[[], Any]) -> Any:
        with fastexport.accelerate() if self.accelerated else nullcontext():
            start = time.process_time()
            result = run()
            self.seconds[title] = time.process_time() - start
        self.results[title] = result
        return result

    def run(self) -> None:
        from torchao.quantization.pt2e import quantize_pt2e

        args = self.args
        eager, inputs = zoo.build(args.model, args.layers or SMALL[args.model])
        if args.qat:
            eager.train()
        prepare = quantize_pt2e.prepare_qat_pt2e if args.qat else quantize_pt2e.prepare_pt2e
        program = self.stage("export", lambda: torch.export.export(eager, inputs))
        module = self.stage("module", program.module)
        quantizer = make_quantizer(args.quantizer, args.qat)
        prepared = self.stage("prepare", lambda: prepare(copy.deepcopy(module), quantizer))
        torch.manual_seed(0)  # for dropout
        self.stage("calibrate", lambda: prepared(*inputs))
        converted = self.stage("convert", lambda: quantize_pt2e.convert_pt2e(prepared))
        if args.qat:
            importlib.import_module("torchao.quantization.pt2e").move_exported_model_to_eval(converted)
        torch.manual_seed(0)
        self.stage("run int8", lambda: converted(*inputs))
        exported = self.stage("export int8", lambda: torch.export.export(converted, inputs))
        self.stage("decompose", exported.run_decompositions)
        saved = self.stage("save", lambda: save(exported))
        self.stage("load", lambda: torch.export.load(io.BytesIO(saved)))


def save(program: torch.export.ExportedProgram) -> bytes:
    file = io.BytesIO()
    torch.export.save(program, file)
    return file.getvalue()


def differs(a: Any, b: Any) -> bool:
    """Whether two results of a stage are not the same."""
    if isinstance(a, torch.fx.GraphModule):
        return str(a.graph) != str(b.graph) or a.code != b.code
    if isinstance(a, torch.export.ExportedProgram):
        return str(a) != str(b)
    if isinstance(a, bytes):
        return len(a) != len(b)
    leaves = zip(torch.utils._pytree.tree_leaves(a), torch.utils._pytree.tree_leaves(b), strict=True)
    return not all(torch.equal(x.nan_to_num(), y.nan_to_num()) for x, y in leaves)


def main() -> int:
    args = arguments()
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    plain, fast = Pipeline(args, False), Pipeline(args, True)
    with waiting("torch's own pipeline first, once to warm up", 30):
        Pipeline(args, False).run()
        plain.run()
    with waiting("the same with accelerate()", 15):
        fast.run()
    wrong = [title for title in plain.results if differs(plain.results[title], fast.results[title])]
    print(f"{args.model}, {args.quantizer}{', QAT' if args.qat else ''}: ", end="")
    print(
        f"{len(plain.results['module'].graph.nodes)} nodes, {len(plain.results['convert'].graph.nodes)} when converted"
    )
    print(f"\n  {'stage':<12}{'torch':>12}{'accelerated':>14}{'faster':>9}   result")
    for title, seconds in plain.seconds.items():
        ours = fast.seconds[title]
        verdict = "DIFFERS" if title in wrong else "the same"
        print(f"  {title:<12}{seconds * 1e3:>9.0f} ms{ours * 1e3:>11.0f} ms{seconds / ours:>8.1f}x   {verdict}")
    total, ours = sum(plain.seconds.values()), sum(fast.seconds.values())
    print(f"  {'all':<12}{total * 1e3:>9.0f} ms{ours * 1e3:>11.0f} ms{total / ours:>8.1f}x")
    if args.report:
        print()
        print(fastexport.pt2e.quantization_report(fast.results["convert"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
