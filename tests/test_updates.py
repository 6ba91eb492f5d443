"""What becomes of a buffer and what else a program returns stay two: as one it would change with the buffer."""

import copy

import pytest
import torch

import fastexport

aten = torch.ops.aten


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count.add_(1)
        return self.count.clone(), x + 1


class Twice(Counter):
    def forward(self, x):
        new, told = self.count + 1, self.count + 1
        self.count.copy_(new)
        return told, x


class Aliased(Counter):
    def forward(self, x):
        first, second = torch.split(x + self.count, 1)
        self.count.copy_(first)
        return torch.ops.aten.alias(first), second


class Written(torch.nn.Module):
    """An input is what is updated."""

    def forward(self, x):
        told = x * 2
        x.mul_(2)
        return told


def exported(kind):
    return torch.export.export(kind(), (torch.ones(2),)).run_decompositions()


def answers(program):
    """What three calls in a row return, once all have been made; and whether it is memory of a buffer or an input."""
    module, x = program.module(), torch.full((2,), 3.0)
    results = [module(x) for _ in range(3)]
    results = [result if isinstance(result, tuple) else (result,) for result in results]
    owned = {tensor.data_ptr() for tensor in (*module.buffers(), x)}
    return [[(t.tolist(), t.data_ptr() in owned) for t in result] for result in results]


def in_c(program, name):
    ours = fastexport.from_export(program)
    return getattr(fastexport, name)(ours), ours.to_torch()


def in_place(program, name):
    return getattr(fastexport, name)(program), program


def in_a_chain(program, name):
    return fastexport.run_passes(program, [name])[0], program


def adapted(program, name):
    return fastexport.run_passes(program, [name], check=True)[0], program


def of_a_file(program, name, path):
    torch.export.save(program, path)
    ours = fastexport.load(path)
    result = getattr(fastexport, name)(ours)
    ours.save(path)
    return result, torch.export.load(path)


CASES = [
    pytest.param(lambda: exported(Counter), "remove_noops", id="clone"),
    pytest.param(lambda: exported(Aliased), "remove_noops", id="alias"),
    pytest.param(lambda: exported(Twice), "eliminate_common_subexpressions", id="equal"),
    pytest.param(lambda: exported(Written), "eliminate_common_subexpressions", id="input"),
]


@pytest.mark.parametrize(("make", "name"), CASES)
@pytest.mark.parametrize("door", [in_c, in_place, in_a_chain, adapted])
def test_they_stay_two(make, name, door):
    program = make()
    expected = answers(copy.deepcopy(program))
    result, program = door(program, name)
    assert answers(program) == expected
    assert not result.removed


@pytest.mark.parametrize(("make", "name"), CASES)
def test_they_stay_two_in_files(make, name, tmp_path):
    program = make()
    expected = answers(copy.deepcopy(program))
    result, program = of_a_file(program, name, tmp_path / "program.pt2")
    assert answers(program) == expected
    assert not result.removed


@pytest.mark.parametrize(("make", "name"), CASES)
def test_what_is_not_returned_is_merged(make, name):
    """The same calls, of which only that is returned which the buffer or input becomes."""
    ours = fastexport.from_export(make())
    output = ours.graph.output_node()
    updates = [spec.kind.name.endswith("_MUTATION") for spec in ours.graph_signature.output_specs]
    told = [node for node, is_update in zip(output.args[0], updates, strict=True) if not is_update]
    returned = [node for node, is_update in zip(output.args[0], updates, strict=True) if is_update]
    for node in told:
        with ours.graph.inserting_before(output):
            other = ours.graph.call_function(aten.neg.default, (node,))
        returned.append(other)
    output.args = (tuple(returned),)
    assert getattr(fastexport, name)(ours).removed


def test_reasons():
    ours = fastexport.from_export(exported(Twice))
    result = fastexport.eliminate_common_subexpressions(ours, explain=True)
    assert result.reasons == {
        "add_1": "kept: like 'add', but one is what a buffer or an input becomes, and both are returned"
    }
    ours = fastexport.from_export(exported(Counter))
    (why,) = fastexport.remove_noops(ours, explain=True).reasons.values()
    assert why.endswith("a copy is returned beside its original")


def test_policy_torch_merges_them():
    ours = fastexport.from_export(exported(Twice))
    assert fastexport.eliminate_common_subexpressions(ours, policy="torch").replaced == {"add_1": "add"}


def test_a_copy_returned_beside_its_original_stays():
    """With no buffer about: who writes to the one would write to the other."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    made = graph.call_function(aten.add.Tensor, (x, 1))
    view = graph.call_function(aten.view.default, (made, [2]))
    copies = [graph.call_function(aten.clone.default, (node,)) for node in (made, view, made)]
    graph.output((*copies[:2], graph.call_function(aten.neg.default, (copies[2],))))
    for node in (x, made, view, *copies):
        node.meta["val"] = torch.ones(2)
    result = fastexport.remove_noops(graph)
    # One of the two takes the place of its original; the other is a copy of it still.
    assert set(result.removed) == {"view_default", "clone_default", "clone_default_2"}
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    first, second, _ = module(torch.ones(2))
    first.zero_()
    assert second.tolist() == [2.0, 2.0]


class Branches(torch.nn.Module):
    def __init__(self, change):
        super().__init__()
        self.change = change

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: self.change(x), lambda x: (x - 1, x * 2), (x,))


CHANGES = {
    "equal": ("eliminate_common_subexpressions", lambda x: (x + 1, x + 1)),
    "views": ("eliminate_common_subexpressions", lambda x: ((x + 1).view(2), (x + 1).view(2))),
    "clone": ("remove_noops", lambda x: both(x + 1)),
}


def both(value):
    return value, value.clone()


@pytest.mark.parametrize(("name", "change"), CHANGES.values(), ids=list(CHANGES))
@pytest.mark.parametrize("door", [in_c, in_place, in_a_chain])
def test_results_of_branches_stay_two(name, change, door):
    """torch.cond lets results share no memory, and says so when it is decomposed or compiled."""
    program = torch.export.export(Branches(change), (torch.ones(2),))
    _, program = door(program, name)
    result = program.run_decompositions().module()(torch.ones(2))
    assert [tensor.tolist() for tensor in result] == [[2.0, 2.0], [2.0, 2.0]]
