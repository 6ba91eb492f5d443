"""What ./run bench programs times: each job by torch and by fastexport, on the same program.

A case is one job of torch's and the jobs of ours that it is the baseline of. Before anything is timed its check has
made sure that all of them come to the same result.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch
from torch.export.graph_signature import ExportGraphSignature

import fastexport
from exported import Kind, entries, our_facts, same, tensor_facts, texts
from measure import Job

aten = torch.ops.aten

LOAD = "load(path).to_torch()"
SAVE = "save(torch_program, path)"
VERIFY = "verify()"
VERIFY_AGAIN = "verify(), again"
CONVERT_VERIFY = "from_export + verify()"
EDIT = "from_export + edit + to_torch()"
ACCELERATED_LOAD = "torch.export.load, accelerate()"
ACCELERATED_SAVE = "torch.export.save, accelerate()"
REMOVE = "remove_unused_inputs()"

RENAMED = 10  # of so many calls one gets another name


@dataclass(frozen=True)
class Case:
    """A job of torch's and ours beside it, by the titles of their rows."""

    torch: Job
    ours: dict[str, Job]
    check: Callable[[], None]


class Source:
    """A program of torch's, and the file that it makes of it; both are made when first asked for."""

    def __init__(self, kind: Kind, folder: Path):
        self.kind = kind
        self.path, self.out = folder / "program.pt2", folder / "saved.pt2"

    @cached_property
    def program(self) -> torch.export.ExportedProgram:
        return self.kind.export()

    @cached_property
    def file(self) -> Path:
        torch.export.save(self.program, self.path)
        return self.path


def cases_of(source: Source) -> list[Case]:
    return [loading(source), saving(source), verifying(source), editing(source)]


# ---- equal results -------------------------------------------------------------------------------


def described(value: Any) -> Any:
    """A value of meta by what can be compared: fake tensors by their metadata, symbols by their texts."""
    if isinstance(value, torch.Tensor):
        facts = value.dtype, value.device, value.layout, value.requires_grad, type(value).__name__
        return str((*facts, tuple(value.shape), value.stride(), value.storage_offset()))
    if isinstance(value, list | tuple):
        return type(value).__name__, [described(item) for item in value]
    return str(value)


def meta_of(graph: torch.fx.Graph) -> list[tuple[str, list[tuple[str, Any]]]]:
    return [(node.name, [(str(key), described(value)) for key, value in node.meta.items()]) for node in graph.nodes]


def same_programs(theirs: torch.export.ExportedProgram, ours: torch.export.ExportedProgram) -> None:
    """Raise unless two programs of torch's are equal in all but identity."""
    same("graph", str(theirs.graph), str(ours.graph))
    same("program", str(theirs), str(ours))
    same("signature", str(theirs.graph_signature), str(ours.graph_signature))
    same("range constraints", texts(theirs.range_constraints), texts(ours.range_constraints))
    same("module call graph", str(theirs.module_call_graph), str(ours.module_call_graph))
    same("weights", tensor_facts(theirs.state_dict), tensor_facts(ours.state_dict))
    same("constants", tensor_facts(theirs.constants), tensor_facts(ours.constants))
    for a, b in zip(meta_of(theirs.graph), meta_of(ours.graph), strict=True):
        same(f"meta of {a[0]}", a, b)


def check_verdicts(program: torch.export.ExportedProgram) -> None:
    """Raise unless both find the program right, and wrong when the value of one node is missing."""
    torchs_verdict(program)
    same("faults", [], fastexport.from_export(program).verify())
    node = some_call(program.graph)
    value = node.meta.pop("val")
    try:
        if not refuses(torchs_verdict, program) or not refuses(convert_and_verify, program):
            raise RuntimeError(f"not timed, for {node.name} without a value is not refused")
    finally:
        node.meta = {"val": value, **node.meta}


def refuses(check: Callable[[Any], object], program: Any) -> bool:
    try:
        check(program)
    except (fastexport.VerifyError, torch._export.verifier.SpecViolationError):
        return True
    return False


# ---- jobs ----------------------------------------------------------------------------------------


def calls(graph: Any) -> list[Any]:
    return [node for node in graph.nodes if node.op == "call_function"]


def some_call(graph: Any) -> Any:
    """The operator call in the middle that has a value."""
    found = [node for node in calls(graph) if isinstance(node.meta.get("val"), torch.Tensor)]
    return found[len(found) // 2]


def accelerated(run: Callable[[], Any]) -> Any:
    with fastexport.accelerate():
        return run()


def loading(source: Source) -> Case:
    def theirs(_: Any = None) -> Any:
        return torch.export.load(source.file)

    def ours(_: Any = None) -> Any:
        return fastexport.load(source.file).to_torch()

    def check() -> None:
        expected = theirs()
        same_programs(expected, ours())
        same_programs(expected, accelerated(theirs))

    return Case(once(theirs), {LOAD: once(ours), ACCELERATED_LOAD: once(lambda _: accelerated(theirs))}, check)


def once(run: Callable[[Any], Any], prepare: Callable[[], Any] = lambda: None) -> Job:
    """A job that is run once for each input."""
    return Job(run, prepare, changes=True)


def saving(source: Source) -> Case:
    def theirs(_: Any = None) -> None:
        torch.export.save(source.program, source.out)

    def ours(_: Any = None) -> None:
        fastexport.save(source.program, source.out)

    def check() -> None:
        theirs()
        expected = entries(source.out)
        ours()
        same("the saved file", expected, entries(source.out))
        accelerated(theirs)
        same("the file saved under accelerate()", expected, entries(source.out))

    return Case(
        once(theirs, lambda: source.program),
        {
            SAVE: once(ours, lambda: source.program),
            ACCELERATED_SAVE: once(lambda _: accelerated(theirs), lambda: source.program),
        },
        check,
    )


def torchs_verdict(program: torch.export.ExportedProgram) -> None:
    for verifier in program.verifiers:
        verifier().check(program)


def convert_and_verify(program: torch.export.ExportedProgram) -> None:
    fastexport.from_export(program).verify()


def verified(program: torch.export.ExportedProgram) -> Any:
    converted = fastexport.from_export(program)
    converted.verify()
    return converted


def verifying(source: Source) -> Case:
    """Of a program that was just converted, with nothing there of an earlier check; and once more."""
    return Case(
        once(torchs_verdict, lambda: source.program),
        {
            CONVERT_VERIFY: once(convert_and_verify, lambda: source.program),
            VERIFY: once(lambda program: program.verify(), lambda: fastexport.from_export(source.program)),
            VERIFY_AGAIN: once(lambda program: program.verify(), lambda: verified(source.program)),
        },
        lambda: check_verdicts(source.program),
    )


def edit(graph: Any) -> None:
    """What a pass may do: calls that only assert something go, and of the others every tenth gets another name."""
    for node in calls(graph):
        if node.target is aten._assert_tensor_metadata.default:
            graph.erase_node(node)
    for i, node in enumerate(calls(graph)[:-1:RENAMED]):
        node.name = f"renamed_{i}"


def parts_of(program: torch.export.ExportedProgram) -> dict[str, Any]:
    """What stays when the graph of a program is another, as arguments of the class."""
    return {
        "range_constraints": program.range_constraints,
        "module_call_graph": program.module_call_graph,
        "example_inputs": program.example_inputs,
        "constants": program.constants,
        "verifiers": program.verifiers,
    }


def editing(source: Source) -> Case:
    def theirs(program: Any) -> torch.export.ExportedProgram:
        module = copy.deepcopy(program.graph_module)
        edit(module.graph)
        parts = parts_of(program)
        return torch.export.ExportedProgram(module, module.graph, program.graph_signature, program.state_dict, **parts)

    def ours(program: Any) -> torch.export.ExportedProgram:
        converted = fastexport.from_export(program)
        edit(converted.graph)
        return converted.to_torch()

    return Case(
        once(theirs, lambda: source.program),
        {EDIT: once(ours, lambda: source.program)},
        lambda: same_programs(theirs(source.program), ours(source.program)),
    )


# ---- unused parameters ---------------------------------------------------------------------------


class Unused(torch.nn.Module):
    """A linear layer, and parameters that nothing uses."""

    def __init__(self, count: int):
        super().__init__()
        self.unused = torch.nn.ParameterList(torch.zeros(2) for _ in range(count))
        self.used = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


@cache
def unused(count: int) -> torch.export.ExportedProgram:
    return torch.export.export(Unused(count), (torch.ones(2, 4),))


def erase_one_by_one(given: tuple[torch.export.ExportedProgram, torch.fx.GraphModule]) -> Any:
    """What has to be written with torch alone, given a program and a copy of its module that may be changed."""
    program, module = given
    signature = program.graph_signature
    unused = {node.name for node in module.graph.nodes if node.op == "placeholder" and not node.users}
    for node in module.graph.nodes:
        if node.name in unused:
            module.graph.erase_node(node)
    kept = [spec for spec in signature.input_specs if spec.arg.name not in unused]
    dropped = {spec.target for spec in signature.input_specs if spec.arg.name in unused}
    return torch.export.ExportedProgram(
        module,
        module.graph,
        ExportGraphSignature(kept, signature.output_specs),
        {name: weight for name, weight in program.state_dict.items() if name not in dropped},
        **parts_of(program),
    )


def removing_from_torch(count: int, path: Path) -> Case:
    program = unused(count)
    return removing(program, lambda: fastexport.from_export(program), tensor_facts)


def removing_from_file(count: int, path: Path) -> Case:
    program = unused(count)
    torch.export.save(program, path)
    return removing(program, lambda: fastexport.load(path), our_facts)


def removing(program: torch.export.ExportedProgram, make: Callable[[], Any], facts: Callable[[Any], Any]) -> Case:
    def copied() -> tuple[torch.export.ExportedProgram, torch.fx.GraphModule]:
        return program, copy.deepcopy(program.graph_module)

    def check() -> None:
        expected, ours = erase_one_by_one(copied()), make()
        ours.remove_unused_inputs()
        same("graph", str(expected.graph), str(ours.graph))
        same("signature", str(expected.graph_signature), str(ours.graph_signature))
        same("weights", tensor_facts(expected.state_dict), facts(ours.state_dict))
        same("graph, in torch", str(expected.graph), str(ours.to_torch().graph))

    return Case(once(erase_one_by_one, copied), {REMOVE: once(lambda ours: ours.remove_unused_inputs(), make)}, check)


REMOVING = {"from torch": removing_from_torch, "from a file": removing_from_file}
