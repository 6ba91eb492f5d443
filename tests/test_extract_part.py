"""`fastexport extract --inputs --outputs`: a part computes what the whole does there, and holds nothing else."""

from collections import namedtuple
from dataclasses import dataclass

import pytest

import fastexport
from commands import run
from fastexport._command.part import cut
from fastexport._interface import flatten

torch = pytest.importorskip("torch")


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.attention = torch.nn.MultiheadAttention(width, 2, dropout=0.1, batch_first=True)
        self.up, self.down = torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width)
        self.dropout = torch.nn.Dropout(0.1)

    def forward(self, x, mask):
        y = self.norm(x)
        x = x + self.dropout(self.attention(y, y, y, attn_mask=mask, need_weights=False)[0])
        y = self.down(torch.nn.functional.gelu(self.up(x)))
        torch._assert(y.shape[0] == x.shape[0], "sizes differ")
        return x + self.dropout(y.to(torch.float32))


class Transformer(torch.nn.Module):
    """As bert and llama are: blocks with dropout and checks, a mask that all of them take."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(10, 8)
        self.blocks = torch.nn.ModuleList(Block(8) for _ in range(3))
        self.head = torch.nn.Linear(8, 10)

    def forward(self, ids):
        mask = torch.ones(ids.shape[1], ids.shape[1]).tril().log()
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x)


class Vision(torch.nn.Module):
    """As vit is: patches, a token before them, blocks."""

    def __init__(self):
        super().__init__()
        self.patches = torch.nn.Conv2d(3, 8, 4, 4)
        self.first = torch.nn.Parameter(torch.randn(1, 1, 8))
        self.blocks = torch.nn.ModuleList(Block(8) for _ in range(2))

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1)
        for block in self.blocks:
            x = block(x, None)
        return x[:, 0]


def conv():
    layers = []
    for _ in range(3):
        layers += [torch.nn.Conv2d(3, 3, 3, padding=1), torch.nn.BatchNorm2d(3), torch.nn.ReLU(inplace=True)]
    return torch.nn.Sequential(*layers, torch.nn.Dropout(0.2), torch.nn.Flatten())


def exported(module, *args):
    torch.manual_seed(0)
    return torch.export.export(module, args)


def values_of(program, *args):
    """The value of each node when it was computed."""
    values = {}

    class Capture(torch.fx.Interpreter):
        def run_node(self, node):
            result = super().run_node(node)
            values[node.name] = result.clone() if isinstance(result, torch.Tensor) else result
            return result

    Capture(program.graph_module).run(*program._graph_module_flat_inputs(args, {}))
    return values


def part_of(program, inputs, outputs, path):
    ours = fastexport.from_export(program)
    return ours, cut_to(ours, inputs, outputs, path)


def cut_to(ours, inputs, outputs, path):
    """The part as torch loads it."""
    cut(ours, [ours.graph.node(name) for name in inputs], [ours.graph.node(name) for name in outputs])
    ours.save(path)
    return torch.export.load(path)


MODELS = {
    "transformer": (lambda: Transformer().eval(), torch.arange(6).reshape(2, 3)),
    "vision": (lambda: Vision().eval(), torch.randn(2, 3, 8, 8)),
    "conv": (lambda: conv().eval(), torch.randn(2, 3, 4, 4)),
}


@pytest.mark.parametrize("name", MODELS)
def test_parts_compute_what_the_whole_does(name, tmp_path):
    make, x = MODELS[name]
    program = exported(make(), x)
    values = values_of(program, x)
    nodes = list(program.graph.nodes)
    users = set(program.graph_signature.user_inputs)
    points = [
        node
        for node in nodes
        if node.op == "call_function" and isinstance(values[node.name], torch.Tensor) and values[node.name].ndim > 1
    ]
    for first, last in [(0, len(points) // 2), (len(points) // 3, 2 * len(points) // 3), (len(points) // 2, -1)]:
        given, asked = points[first], points[last]
        ours, theirs = part_of(program, [given.name], [asked.name], tmp_path / "part.pt2")
        names = ours.graph_signature.user_inputs
        expected, left = set(), [asked]
        while left:
            node = left.pop()
            if node is not given and node not in expected:
                expected.add(node)
                left += node.all_input_nodes
        checks = {n for n in nodes if n.name in {m.name for m in ours.graph.nodes} and "assert" in str(n.target)}
        assert all(set(check.all_input_nodes) <= expected | {given} for check in checks)
        needed = {node.name for node in expected | checks if node.name not in users}
        kept = {node.name for node in ours.graph.nodes if node.op != "output"}
        assert kept - set(names) == needed and given.name in names
        x_given = [x if name in users else values[name] for name in names]
        torch.testing.assert_close(theirs.module()(*x_given)[0], values[asked.name])


def test_layers_behind_the_output_go(tmp_path):
    program = exported(Transformer().eval(), torch.arange(6).reshape(2, 3))
    _, first, second = [node.args[0].name for node in program.graph.nodes if "layer_norm" in str(node.target)]
    ours, _ = part_of(program, [first], [second], tmp_path / "part.pt2")
    weights = set(ours.state_dict)
    assert weights and not any(name.startswith(("embed", "head", "blocks.0.", "blocks.2.")) for name in weights)


class Writes(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(2, 3))
        self.register_buffer("other", torch.zeros(2, 3))

    def forward(self, x):
        y = x * 2
        self.other.add_(x)
        self.cache[0].copy_(y[0])
        z = y + self.cache
        z[:, 0].mul_(3)
        w = z.relu()
        w.neg_()
        return w + self.other


def test_writes_to_what_the_part_reads_stay(tmp_path):
    x = torch.randn(2, 3)
    program = exported(Writes(), x)
    values = values_of(program, x)
    ours, theirs = part_of(program, ["mul"], ["relu"], tmp_path / "part.pt2")
    targets = [str(node.target) for node in ours.graph.nodes]
    assert [name for name in targets if "_." in name] == ["aten.copy_.default", "aten.mul_.Tensor"]
    module = theirs.module()
    torch.testing.assert_close(module(values["mul"])[0], values["relu"])
    torch.testing.assert_close(module.cache[0], values["mul"][0])
    assert list(ours.graph_signature.buffers) == ["cache"] and "other" not in ours.state_dict


def test_updates_stay_for_what_the_part_reads(tmp_path):
    program = exported(conv().train(), torch.randn(2, 3, 4, 4)).run_decompositions()
    norms = [node for node in program.graph.nodes if "batch_norm" in str(node.target)]
    given = norms[1].args[0]
    picked = next(user for user in norms[1].users if user.args[1] == 0)
    ours, theirs = part_of(program, [given.name], [picked.name], tmp_path / "part.pt2")
    assert set(ours.graph_signature.buffers_to_mutate.values()) == {"4.running_mean", "4.running_var"}
    x = torch.randn(2, 3, 4, 4)
    module = theirs.module()
    whole = torch.nn.BatchNorm2d(3).train()
    whole.load_state_dict({name: program.state_dict[f"4.{name}"].clone() for name in whole.state_dict()})
    torch.testing.assert_close(module(x)[0], whole(x))
    torch.testing.assert_close(dict(module.named_buffers())["4.running_mean"], whole.running_mean)


def test_an_effect_that_nothing_here_reads_goes(tmp_path):
    class Prints(torch.nn.Module):
        def forward(self, x):
            torch.ops.aten._print("before")
            y = x.sin()
            torch._check(y.shape[0] == 2)
            torch.ops.aten._assert_async(y.sum() < 100)
            return y.cos().tan()

    ours, _ = part_of(exported(Prints(), torch.randn(2)), ["sin"], ["cos"], tmp_path / "part.pt2")
    assert [node.name for node in ours.graph.nodes] == ["sin", "cos", "output"]


def test_subgraphs_that_nothing_calls_go(tmp_path):
    class Chooses(torch.nn.Module):
        def forward(self, x):
            y = torch.cond(x.sum() > 0, lambda x: x.sin() @ x, lambda x: x.cos() @ x, (x,))
            return y.tan() + 1

    program = exported(Chooses(), torch.randn(2, 2))
    ours, _ = part_of(program, ["tan"], ["add"], tmp_path / "part.pt2")
    assert [node.name for node in ours.graph.nodes] == ["tan", "add", "output"] and not ours.graph.subgraphs
    ours, theirs = part_of(program, [], ["tan"], tmp_path / "part.pt2")
    assert len(ours.graph.subgraphs) == 2
    x = torch.randn(2, 2)
    torch.testing.assert_close(theirs.module()(x)[0], program.module()(x) - 1)


def test_a_write_is_not_taken_for_one_to_what_was_given(tmp_path):
    """A view of memory that is written later, given as an input, is memory of its own."""

    class Views(torch.nn.Module):
        def forward(self, x):
            y = x * 2
            z = y.view(-1)
            y.add_(1)
            return z.sin()

    ours, theirs = part_of(exported(Views(), torch.randn(2, 2)), ["view"], ["sin"], tmp_path / "part.pt2")
    assert [node.name for node in ours.graph.nodes] == ["view", "sin", "output"]
    whole, _ = part_of(exported(Views(), torch.randn(2, 2)), [], ["sin"], tmp_path / "part.pt2")
    assert [node.name for node in whole.graph.nodes] == ["x", "mul", "view", "add_", "sin", "output"]
    assert ours.graph.subgraphs == fastexport.from_export(exported(Views(), torch.randn(2, 2))).graph.subgraphs


def test_checks_of_what_is_there_stay(tmp_path):
    class Sizes(torch.nn.Module):
        def forward(self, x):
            n = x.max().item()
            torch._check(n >= 1)
            torch._check(n < 9)
            return torch.ones(n).cumsum(0)

    program = exported(Sizes(), torch.tensor([3, 4]))
    ours, theirs = part_of(program, [], ["ones"], tmp_path / "part.pt2")
    targets = [str(node.target) for node in ours.graph.nodes]
    assert not any("cumsum" in name for name in targets)
    torch.testing.assert_close(theirs.module()(torch.tensor([3, 4]))[0], torch.ones(4))


def test_sizes_that_are_symbols(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(), torch.nn.Linear(3, 3)).eval()
    x = torch.randn(4, 3)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    ours, theirs = part_of(program, ["linear"], ["linear_1"], tmp_path / "part.pt2")
    assert ours.graph_signature.user_inputs == ("linear",)
    y = torch.randn(7, 3)
    torch.testing.assert_close(theirs.module()(y)[0], model[2](y))


class OfData(torch.nn.Module):
    def forward(self, x, y):
        n = x.item()
        torch._check(n >= 0)
        return torch.zeros(n) + 1, torch.nonzero(y)


def test_ranges_of_symbols_that_are_gone_go(tmp_path):
    whole, part = tmp_path / "whole.pt2", tmp_path / "part.pt2"
    torch.export.save(torch.export.export(OfData(), (torch.tensor(4), torch.ones(3))), whole)
    kept = {}
    for name in ("zeros", "nonzero", "zeros,nonzero"):
        run("extract", whole, "--outputs", name, "-o", part)
        run("check", "--strict", "--fail-on", "warning", part)
        kept[name] = {str(symbol) for symbol in fastexport.load(part).range_constraints}
        assert {str(symbol) for symbol in torch.export.load(part).range_constraints} == kept[name]
    assert kept["zeros"] and kept["nonzero"] and not kept["zeros"] & kept["nonzero"]
    assert kept["zeros,nonzero"] == kept["zeros"] | kept["nonzero"]
    assert kept["zeros,nonzero"] == {str(symbol) for symbol in fastexport.load(whole).range_constraints}


@dataclass
class Result:
    logits: torch.Tensor
    more: dict


class Nests(torch.nn.Module):
    """Its arguments and results nest, and results come in a class of its own, as those of transformers do."""

    def forward(self, pair, *rest, scale, names):
        x, y = pair["x"], pair["y"][0]
        torch._check(x.shape[0] == rest[0].shape[0])
        z = (x * y).relu() + rest[0]
        return Result(z.sin(), {"w": [z.cos() * scale, names.last]})


Names = namedtuple("Names", ["first", "last"])


def nested():
    if Result not in torch.utils._pytree.SUPPORTED_NODES:
        torch.export.register_dataclass(Result, serialized_type_name="mine.Result")
        torch.utils._pytree._register_namedtuple(Names, serialized_type_name="mine.Names")
    x, y, z, s, a, b = (torch.randn(4, 3) for _ in range(6))
    batch = torch.export.Dim.DYNAMIC
    shapes = {0: batch}
    program = torch.export.export(
        Nests(),
        ({"x": x, "y": [y]}, z),
        {"scale": s, "names": Names(a, b)},
        dynamic_shapes={
            "pair": {"x": shapes, "y": [shapes]},
            "rest": (shapes,),
            "scale": shapes,
            "names": Names(None, shapes),
        },
    )
    relu = (x * y).relu()
    values = {"relu": relu, "add": relu + z, "sin": (relu + z).sin(), "cos": (relu + z).cos()}
    values["mul_1"] = values["cos"] * s
    return program, values | {"pair_x": x, "pair_y_0": y, "rest_0": z, "scale": s}


def loaded(program, folder):
    torch.export.save(program, folder / "whole.pt2")
    return fastexport.load(folder / "whole.pt2")


def test_a_part_takes_its_inputs_one_by_one_and_returns_a_tuple(tmp_path):
    program, values = nested()
    for inputs, outputs, needed in (
        ([], ["relu"], ["pair_x", "pair_y_0"]),
        ([], ["relu", "add"], ["pair_x", "pair_y_0", "rest_0"]),
        (["add"], ["sin", "mul_1"], ["scale", "add"]),
        (["relu", "rest_0"], ["cos"], ["rest_0", "relu"]),
    ):
        ours = loaded(program, tmp_path)
        theirs = cut_to(ours, inputs, outputs, tmp_path / "part.pt2")
        call = theirs.module_call_graph[0].signature
        assert call.forward_arg_names == needed == list(ours.graph_signature.user_inputs)
        args = torch.utils._pytree.tree_structure((tuple(needed), {}))
        assert call.in_spec == args and call.out_spec == torch.utils._pytree.tree_structure(tuple(outputs))
        results = theirs.module()(*(values[name] for name in needed))
        assert type(results) is tuple
        torch.testing.assert_close(results, tuple(values[name] for name in outputs))
        x = torch.randn(7, 3)
        assert theirs.module()(*[x] * len(needed))[0].shape == (7, 3)


def test_guards_name_the_inputs_of_the_part(tmp_path):
    program, _ = nested()
    whole = loaded(program, tmp_path)
    guards = ["L['pair']['x'].size()[0] == L['pair']['y'][0].size()[0]", "L['rest'][0].size()[0] <= 9"]
    guards += [
        "len(L['pair']) == 2",
        "L['names'].last.size()[0] <= 9",
        "L['flat_args'][1].size()[0] <= L['flat_args'][5].size()[0]",
    ]
    whole._set_guards(guards)
    flatten(whole)
    assert whole.guards == [
        "L['pair_x'].size()[0] == L['pair_y_0'].size()[0]",
        "L['rest_0'].size()[0] <= 9",
        "L['names_last'].size()[0] <= 9",
        "L['flat_args'][1].size()[0] <= L['flat_args'][5].size()[0]",
    ]
    cut(whole, [], [whole.graph.node("relu")])
    assert whole.guards == ["L['pair_x'].size()[0] == L['pair_y_0'].size()[0]"]


def test_an_input_that_is_not_needed_is_refused(tmp_path):
    program = exported(Transformer().eval(), torch.arange(6).reshape(2, 3))
    nodes = [node.name for node in program.graph.nodes if "layer_norm" in str(node.target)]
    for inputs, output, message in (
        ([nodes[1]], nodes[0], f"the outputs don't come from {nodes[1]}: they need ids"),
        (["tril", "embedding"], "log", "don't come from embedding: they need tril, of"),
        (["ids"], "log", "don't come from ids: they need no input"),
    ):
        ours = fastexport.from_export(program)
        with pytest.raises(ValueError, match=message):
            cut(ours, [ours.graph.node(name) for name in inputs], [ours.graph.node(output)])


def test_nodes_that_have_not_one_value_are_refused(tmp_path):
    class Splits(torch.nn.Module):
        def forward(self, x, relu_input):
            y = torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
            return y.split(1)[0], relu_input.relu() + 1

    torch.export.save(exported(Splits(), torch.ones(2, 2), torch.ones(2)), tmp_path / "whole.pt2")
    for options, message in (
        (("--outputs", "split"), "split has several values: name a node that takes one (getitem_1"),
        (("--inputs", "split", "--outputs", "getitem_1"), "split has several values"),
        (("--outputs", "true_graph_0"), "true_graph_0 is no value, but what another node calls"),
    ):
        error = run("extract", tmp_path / "whole.pt2", *options, "-o", tmp_path / "part.pt2", code=2)[1]
        assert message in error
    assert not (tmp_path / "part.pt2").exists()
    run("extract", tmp_path / "whole.pt2", "--inputs", "relu", "--outputs", "add", "-o", tmp_path / "part.pt2")
    theirs = torch.export.load(tmp_path / "part.pt2")
    assert theirs.graph_signature.user_inputs == ("relu",)
    torch.testing.assert_close(theirs.module()(torch.ones(2)), (torch.full((2,), 2.0),))


def test_inputs_that_the_program_has_may_be_named(tmp_path):
    class Scales(torch.nn.Module):
        def forward(self, x, scale: float):
            return (x + scale).sin() * scale

    ours = loaded(exported(Scales(), torch.ones(2), 2.0), tmp_path)
    theirs = cut_to(ours, ["x"], ["add"], tmp_path / "part.pt2")
    torch.testing.assert_close(theirs.module()(torch.ones(2)), (torch.full((2,), 3.0),))
    ours = fastexport.load(tmp_path / "whole.pt2")  # where the number is written out at each use
    with pytest.raises(ValueError, match="don't come from scale: they need x"):
        cut(ours, [ours.graph.node("x"), ours.graph.node("scale")], [ours.graph.node("add")])
