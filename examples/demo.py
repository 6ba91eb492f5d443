"""The main job on a real model: export it, run the passes in C, go back to torch, check everything.

Three doors lead to the same passes: a fastexport Graph (from_fx, passes, to_fx); the live torch
graph, changed in place; run_passes, which reads a torch graph once for a chain of passes. Each is
timed beside torch's own passes on an equal graph, and must come to the same graph, node by node,
and to the same outputs, bit by bit.
"""

import argparse
import gc
import logging
import sys
import textwrap
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from progress import Bar, waiting

CHAIN = ["eliminate_getitems", "eliminate_dead_code", "lint"]
WIDTH = 96


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./run demo",
        description=textwrap.fill(__doc__.split("\n\n")[0]) + "\n\n" + __doc__.split("\n\n")[1],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Weights are random and widths tiny; nothing is downloaded. The exit status is 1 when a check fails.",
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        default="llama",
        choices=["bert", "llama", "vit", "resnet", "mobilenet"],
        help="bert, llama, vit, resnet or mobilenet (default: llama)",
    )
    parser.add_argument(
        "--layers",
        type=int,
        metavar="N",
        help="blocks of the model (default: as many as make some 3,000 nodes)",
    )
    parser.add_argument("--rounds", type=int, metavar="N", default=7, help="runs of which the median is shown (7)")
    args = parser.parse_args()
    if (args.layers is not None and not 1 <= args.layers <= 1000) or args.rounds < 1:
        parser.error("--layers must be from 1 to 1000, such as 12, and --rounds at least 1")
    return args


# ---- what is shown -------------------------------------------------------------------------------


class Report:
    """Prints the tables and the checks, and remembers whether one failed."""

    def __init__(self) -> None:
        self.failed = 0
        self.passed = 0
        self.colors = sys.stdout.isatty()

    def heading(self, text: str) -> None:
        print(f"\n{self._colored(text, '1')}")

    def note(self, text: str) -> None:
        print(textwrap.fill(text, WIDTH - 2, initial_indent="  ", subsequent_indent="  "))

    def head(self) -> None:
        print(f"\n  {'job':<24}{'door':<18}{'nodes':>16}{'torch':>12}{'fastexport':>13}{'faster':>9}")

    def row(self, job: str, door: str, nodes: str, theirs: float, ours: float) -> None:
        times = f"{theirs * 1e3:>9.2f} ms{ours * 1e3:>10.3f} ms"
        print(f"  {job:<24}{door:<18}{nodes:>16}{times}{theirs / ours:>8.1f}x", flush=True)

    def check(self, text: str, holds: bool) -> None:
        self.passed += holds
        self.failed += not holds
        mark = self._colored("ok", "32") if holds else self._colored("FAILED", "1;31")
        print(f"  {mark:<4}  {text}", flush=True)

    def verdict(self, text: str) -> None:
        color = "1;31" if self.failed else "1;32"
        print(f"\n{self._colored(text, color)}")

    def _colored(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colors else text


# ---- the job -------------------------------------------------------------------------------------


class Demo:
    def __init__(self, args: argparse.Namespace):
        import torch

        import fastexport
        import measure
        import synthetic
        import torch_passes
        import zoo

        self.measure, self.synthetic, self.torch = measure, synthetic, torch
        self.torch_passes, self.zoo, self.fastexport = torch_passes, zoo, fastexport
        self.args, self.report = args, Report()
        self.jobs = [
            ("getitem elimination", torch_passes.eliminate_getitems, self.getitems),
            ("dead-code elimination", lambda m: m.graph.eliminate_dead_code(), self.dead_code),
            ("lint", lambda m: m.graph.lint(), fastexport.lint),
            ("all three", torch_passes.chain, self.one_by_one),
        ]
        self.gains: dict[str, float] = {}

    # What is compared with torch has to follow torch's rules: policy="torch".

    def getitems(self, graph: Any) -> object:
        return self.fastexport.eliminate_getitems(graph, policy="torch")

    def dead_code(self, graph: Any) -> object:
        return self.fastexport.eliminate_dead_code(graph, policy="torch")

    def chain(self, graph: Any) -> object:
        return self.fastexport.run_passes(graph, CHAIN, policy="torch")

    def one_by_one(self, graph: Any) -> None:
        self.getitems(graph)
        self.dead_code(graph)
        self.fastexport.lint(graph)

    def there_and_back(self, graph: Any) -> Any:
        native = self.fastexport.from_fx(graph)
        self.chain(native)
        return native.to_fx()

    def run(self) -> int:
        fastexport, torch, report = self.fastexport, self.torch, self.report
        machine = self.measure.machine()
        print(f"fastexport {fastexport.__version__} beside torch {torch.__version__}", end=", ")
        print(f"Python {machine['python']}, {machine['cpu']}")
        model, args = self.export()
        gc.freeze()  # the collector runs before each job: without all that torch has loaded
        self.compare("The graph as torch.export gives it", model)
        rewritten, repeated, dead = self.rewritten(model)
        self.compare("The same graph as rewriting passes leave it", rewritten)
        report.note(
            f"(A stand-in for such passes made {repeated:,} getitems that repeat another, and left "
            f"{dead:,} calls that nobody uses, as observers that are no longer read.)"
        )
        report.heading("Checks")
        with torch.no_grad():
            for what, module in (("as exported", model), ("rewritten", rewritten)):
                self.check_equal(what, module, model, args)
        self.explain(rewritten)
        return self.conclude()

    def export(self) -> tuple[Any, tuple[Any, ...]]:
        known = self.zoo.MODELS[self.args.model]
        layers = known.layers if self.args.layers is None else self.args.layers
        title = f"{known.title}, {layers} layers"
        start = time.monotonic()
        with waiting(f"exporting {title}", 2 + 6 * layers / known.layers):
            module, example = self.zoo.build(self.args.model, layers)
            with self.torch.no_grad():
                exported = self.torch.export.export(module, example).module()
        ops = Counter(node.op for node in exported.graph.nodes)
        counts = ", ".join(f"{count:,} {op}" for op, count in ops.most_common(3))
        self.report.heading(f"{title}: exported in {time.monotonic() - start:.1f} s")
        self.report.note(f"{len(exported.graph.nodes):,} nodes: {counts}, ...")
        return exported, example

    def rewritten(self, model: Any) -> tuple[Any, int, int]:
        module = self.copy(model)
        repeated = self.synthetic.plant_getitems(module.graph, 0.05)
        dead = self.synthetic.plant_dead(module.graph, 0.1)
        module.recompile()
        return module, repeated, dead

    def copy(self, module: Any) -> Any:
        import copy

        return copy.deepcopy(module)

    # ---- timing

    def compare(self, title: str, module: Any) -> None:
        """Time each pass through each door; what a job changes is a fresh copy."""
        import copy

        report, torch_passes, Job = self.report, self.torch_passes, self.measure.Job
        graph, native = module.graph, self.fastexport.from_fx(module)
        report.heading(title)
        report.head()

        def fresh() -> Any:
            new = copy.deepcopy(graph)
            new.owning_module = module
            return new

        def fresh_native() -> Any:
            new = copy.copy(native)
            new.owning_module = module
            return new

        def held() -> Any:
            return torch_passes.bare_module(fresh())

        for job, theirs, ours in self.jobs:
            doors = {"native": Job(ours, fresh_native, True), "in place": Job(ours, fresh, True)}
            if job == "all three":
                doors["run_passes"] = Job(self.chain, fresh, True)
                doors["from_fx ... to_fx"] = Job(self.there_and_back, fresh, True)
            times = self.timed(f"{title}: {job}", {"torch": Job(theirs, held, True)} | doors)
            after = self.after(ours, fresh_native())
            for door in doors:
                slow, fast = (self.measure.Spread.of(times[k].first).median for k in ("torch", door))
                report.row(job, door, f"{len(graph.nodes):,} > {after:,}", slow, fast)
                if len(doors) > 2:  # the chain; that of the last graph stays
                    self.gains[door] = slow / fast
                job = ""
        times = self.timed(
            f"{title}: deepcopy",
            {
                "torch": Job(copy.deepcopy, lambda: graph),
                "ours": Job(lambda graph: self.fastexport.from_fx(graph).to_fx(), lambda: graph),
            },
        )
        slow, fast = (self.measure.Spread.of(times[k].first).median for k in ("torch", "ours"))
        count = f"{len(graph.nodes):,}"
        report.row("copy: from_fx, to_fx", "beside deepcopy", count, slow, fast)

    def timed(self, title: str, jobs: dict[str, Any]) -> dict[str, Any]:
        rounds, done = self.args.rounds, 0
        with Bar() as bar:

            def tick() -> None:
                nonlocal done
                done += 1
                bar.update(done / ((rounds + 1) * len(jobs)), title)

            return self.measure.interleaved(jobs, budget=0, at_least=rounds, at_most=rounds, tick=tick)

    def after(self, job: Callable[[Any], object], graph: Any) -> int:
        job(graph)
        return len(graph.nodes)

    # ---- checking

    def check_equal(self, what: str, module: Any, model: Any, args: tuple[Any, ...]) -> None:
        """Each door against torch's own passes, and against the model before any pass."""
        expected = self.copy(module)
        self.torch_passes.chain(self.torch_passes.bare_module(expected.graph))
        expected.recompile()
        in_place, chained = self.copy(module), self.copy(module)
        self.one_by_one(in_place)
        self.chain(chained)
        identity = self.fastexport.from_fx(module).to_fx(module)
        native = self.fastexport.from_fx(self.copy(module))
        self.chain(native)
        doors = {"native": native.to_fx(module), "in place": in_place, "run_passes": chained}

        report, describe = self.report, self.synthetic.describe
        report.check(
            f"{what}: from_fx and to_fx give an equal graph, its meta the same objects",
            describe(module.graph) == describe(identity.graph) and same_meta(module.graph, identity.graph),
        )
        for door, result in doors.items():
            report.check(
                f"{what}, {door}: text and nodes equal to those after torch's passes",
                str(result.graph) == str(expected.graph) and describe(result.graph) == describe(expected.graph),
            )
        before = model(*args)
        report.check(
            f"{what}: outputs bit-equal to the model's, after torch's passes and through each door",
            all(self.bit_equal(before, m(*args)) for m in (module, expected, *doors.values())),
        )

    def bit_equal(self, a: Any, b: Any) -> bool:
        leaves = [self.torch.utils._pytree.tree_leaves(value) for value in (a, b)]

        def bits(x: Any) -> Any:
            return x.contiguous().reshape(-1).view(self.torch.uint8)

        return len(leaves[0]) == len(leaves[1]) and all(
            x.dtype == y.dtype and x.shape == y.shape and self.torch.equal(bits(x), bits(y))
            for x, y in zip(*leaves, strict=True)
        )

    def explain(self, module: Any) -> None:
        result = self.fastexport.from_fx(module).eliminate_dead_code(explain=True)
        self.report.heading("Why nodes stay or go, by the default policy (explain=True)")
        for reason, count in Counter((result.reasons or {}).values()).most_common():
            print(f"  {count:>7,}  {reason}")

    def conclude(self) -> int:
        report = self.report
        checks = report.passed + report.failed
        if report.failed:
            report.verdict(f"{report.failed} of {checks} checks FAILED")
            return 1
        report.verdict(f"All {checks} checks hold.")
        gains = ", ".join(f"{door} {gain:.1f}x" for door, gain in self.gains.items())
        print(textwrap.fill(f"The three passes on the rewritten graph, in times torch's speed: {gains}.", WIDTH))
        return 0


def same_meta(a: Any, b: Any) -> bool:
    """Whether the nodes of two graphs carry the very same objects as meta."""
    return all(
        list(x.meta) == list(y.meta) and all(x.meta[key] is y.meta[key] for key in x.meta)
        for x, y in zip(a.nodes, b.nodes, strict=True)
    )


def main() -> int:
    args = arguments()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    with waiting("importing torch and transformers", 6):
        demo = Demo(args)
        demo.torch.set_num_threads(1)
        import transformers  # noqa: F401
    return demo.run()


if __name__ == "__main__":
    sys.exit(main())
