"""Names of weights: what torch exports, loads and runs is taken, what could break out of torch's code is not."""

import io

import pytest

import fastexport

torch = pytest.importorskip("torch")

SIGNS = [
    "a-b",
    "a b",
    "a/b",
    "a:b",
    "1",
    "a(b)",
    "a[0]",
    "a{b}",
    "a<b>",
    "a,b",
    "a@b",
    "a=b",
    "a;b",
    "a#b",
    "日本",
]


def exported(name):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.d = torch.nn.ParameterDict({name: torch.nn.Parameter(torch.rand(2))})

        def forward(self, x):
            return x + self.d[name]

    return torch.export.export(Model(), (torch.ones(2),))


@pytest.mark.parametrize("name", SIGNS)
def test_names_that_torch_takes(name, tmp_path):
    ep, x = exported(name), torch.rand(2)
    file = io.BytesIO()
    torch.export.save(ep, file)
    assert torch.equal(torch.export.load(io.BytesIO(file.getvalue())).module()(x), ep.module()(x))
    program = fastexport.load(file.getvalue())
    assert not [fault for fault in program.verify(all=True) if fault.is_error] and list(program.state_dict) == [
        f"d.{name}"
    ]
    assert str(program) == str(ep)
    assert torch.equal(program.to_torch().module()(x), ep.module()(x))
    program.graph.node("add").name = "sum_1"  # so that it is written anew
    for written in (program, fastexport.from_export(ep)):
        written.save(tmp_path / "again.pt2")
        assert torch.equal(torch.export.load(tmp_path / "again.pt2").module()(x), ep.module()(x))


@pytest.mark.parametrize("name", ["a'b", 'a"b', "a`b", "a\\b", "a\nb", "a\tb", "a\x7fb"])
def test_names_that_could_break_out_of_code(name, tmp_path):
    ep = exported(name)
    file = io.BytesIO()
    torch.export.save(ep, file)
    with pytest.raises(fastexport.FormatError, match="FX401.*could break out of torch's code"):
        fastexport.load(file.getvalue())
    with pytest.raises(fastexport.FastExportError, match="break out"):
        fastexport.from_export(ep).save(tmp_path / "m.pt2")
    assert not list(tmp_path.iterdir())
