"""fastexport.load against what torch 2.13 says of the same files."""

import io
import subprocess
import sys
import threading
import zipfile

import pytest

import fastexport
from fastexport import FormatError
from pt2_files import ALL, CURRENT, HOSTILE, NEGATIVE, OLD, SAMPLES, expected, label, sample, subgraph_texts

every_sample = pytest.mark.parametrize("path", ALL, ids=label)


@every_sample
def test_texts(path):
    ep, want = fastexport.load(path), expected(path)
    assert str(ep.graph) == want["graph"]
    assert subgraph_texts(ep.graph) == want["subgraphs"]
    assert str(ep.graph_signature) == want["graph_signature"]
    assert str(ep.range_constraints) == want["range_constraints"]


@every_sample
def test_facts(path):
    ep, want = fastexport.load(path), expected(path)
    signature = ep.graph_signature
    assert [node.name for node in ep.graph.nodes] == want["node_names"]
    for name in ("parameters", "buffers", "non_persistent_buffers", "lifted_tensor_constants"):
        assert list(getattr(signature, name)) == want[name], name
    for name in ("inputs_to_parameters", "inputs_to_buffers", "buffers_to_mutate", "user_inputs_to_mutate"):
        assert dict(getattr(signature, name)) == want[name], name
    assert str(signature.user_inputs) == want["user_inputs"]
    assert str(signature.user_outputs) == want["user_outputs"]
    assert ep.dialect == want["dialect"]
    assert ep.guards == want["guards_code"]
    if not path.stem.endswith("__stripped"):  # those were cut down from files of 2.13 by hand
        assert ep.torch_version == want["torch_version"]
    assert str(ep.call_spec.in_spec) == want["in_spec"]
    assert str(ep.call_spec.out_spec) == want["out_spec"]


@every_sample
def test_weights(path):
    ep, want = fastexport.load(path), expected(path)
    for state, told in ((ep.state_dict, want["state_dict"]), (ep.constants, want["constants"])):
        assert list(state) == list(told)
        for name, facts in told.items():
            if not isinstance(facts, list):
                continue
            value = state[name]
            kind = "Parameter" if value.is_param else "Tensor"
            found = [str(value.dtype), list(value.shape), list(value.strides), value.storage_offset, kind]
            assert [*found, value.requires_grad][: len(facts)] == facts, name


@every_sample
def test_verifies_strictly(path):
    errors = [fault for fault in fastexport.load(path).verify(all=True, level="strict") if fault.is_error]
    assert errors == []


@every_sample
def test_nothing_is_noted_but_what_torch_has_to_be_told(path):
    """Custom operators and classes of users, which torch knows only where they are registered."""
    for fault in fastexport.load(path).faults:
        assert "fxsample" in fault.message or "gen_samples" in fault.message, fault


@pytest.mark.parametrize("path", NEGATIVE, ids=label)
def test_files_that_torch_writes_and_cannot_load(path):
    try:
        ep = fastexport.load(path)
    except FormatError as error:
        assert error.entry is not None
        assert error.json_path is not None or error.kind == "missing_entry"
    else:
        assert str(ep.graph).startswith("graph():")


def test_ways_to_open():
    path = sample("linear")
    want = str(fastexport.load(path).graph)
    data = path.read_bytes()
    for source in (str(path), data, bytearray(data), memoryview(data), io.BytesIO(data)):
        assert str(fastexport.load(source).graph) == want
    with open(path, "rb") as file:
        ep = fastexport.load(file)
    assert str(ep.graph) == want
    assert bytes(memoryview(ep.state_dict["fc.bias"])) == bytes(memoryview(fastexport.load(data).state_dict["fc.bias"]))


def test_what_cannot_be_opened(tmp_path):
    with pytest.raises(FileNotFoundError):
        fastexport.load(tmp_path / "none.pt2")
    with pytest.raises((FormatError, OSError)):
        fastexport.load(tmp_path)
    with pytest.raises(TypeError):
        fastexport.load(42)
    with pytest.raises(TypeError):
        fastexport.load(io.StringIO("text"))
    with pytest.raises(TypeError, match="not NoneType"):
        fastexport.load(None)
    with pytest.raises(ValueError, match="no limit"):
        fastexport.load(sample("linear"), limits={"nodes": 1})
    for bad in (-1, 2**64, "many"):
        with pytest.raises(ValueError, match="'entries' must be a number"):
            fastexport.load(sample("linear"), limits={"entries": bad})


def test_is_pt2(tmp_path):
    assert all(fastexport.is_pt2(path) for path in ALL)
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("a/b", "c")
    text = tmp_path / "text.pt2"
    text.write_text("no archive")
    assert not any(map(fastexport.is_pt2, (other, text, tmp_path, tmp_path / "none")))


def test_the_attributes_are_read_only():
    ep = fastexport.load(sample("linear"))
    for name in ("graph", "graph_module", "graph_signature", "state_dict", "range_constraints", "dialect", "new"):
        with pytest.raises(RuntimeError, match=name):
            setattr(ep, name, None)
    with pytest.raises(RuntimeError):
        del ep.graph


def test_meta_is_that_of_torch():
    ep = fastexport.load(sample("dynamic"))
    for node in ep.graph.nodes:
        if node.op == "call_function":
            assert {"val", "stack_trace", "nn_module_stack", "torch_fn"} <= set(node.meta), node
            assert isinstance(node.stack_trace, str)
    x = ep.graph.node("x")
    assert str(x.meta["val"].shape[0]) in map(str, ep.range_constraints)


@every_sample
def test_stack_traces_are_read_where_they_stand(path):
    """They are that of meta, and the rest of meta stays in the file."""
    graph = fastexport.load(path).graph
    before = graph._file_meta()
    traces = [node.stack_trace for node in graph.nodes]
    assert graph._file_meta() == before
    assert traces == [node.meta.get("stack_trace") for node in graph.nodes]
    assert traces == [node.stack_trace for node in graph.nodes]


def test_stack_trace_after_meta_is_changed():
    graph = fastexport.load(sample("linear")).graph
    linear, relu = graph.node("linear"), graph.node("relu")
    trace = linear.stack_trace
    assert "forward" in trace
    linear.meta = {"stack_trace": "another"}
    relu.stack_trace = "mine"
    assert (linear.stack_trace, relu.stack_trace) == ("another", "mine")
    del linear.meta["stack_trace"]
    relu.meta.clear()
    assert linear.stack_trace is relu.stack_trace is None
    assert fastexport.load(sample("linear")).graph.node("linear").stack_trace == trace


def test_meta_is_asked_for_once_and_may_be_changed():
    ep = fastexport.load(sample("linear"))
    node = ep.graph.node("linear")
    assert node.meta["val"] is node.meta["val"]
    node.meta["mine"] = 1
    assert node.meta["mine"] == 1
    assert "val" in node.meta
    other = fastexport.load(sample("linear")).graph.node("relu")
    other.meta = {"only": 2}
    assert dict(other.meta) == {"only": 2}


def test_meta_of_several_results():
    ep = fastexport.load(sample("multi_out"))
    lists = [n for n in ep.graph.nodes if isinstance(n.meta.get("val"), tuple)]
    assert lists
    for node in lists:
        for user in node.users:
            if user.target.__name__ == "getitem" and not isinstance(user.meta.get("val"), tuple):
                assert user.meta["val"] == node.meta["val"][user.args[1]]


def test_ties_and_views_share_memory():
    state = fastexport.load(sample("shared_weights")).state_dict
    assert state["emb.weight"].storage is state["out.weight"].storage
    assert state["v1"].storage is state["v2"].storage


def test_extra_files(tmp_path):
    ep = fastexport.load(sample("linear"))
    path = tmp_path / "m.pt2"
    fastexport.save(ep, path, extra_files={"notes/a.txt": "ä"})
    filled = {}
    assert fastexport.load(path, extra_files=filled).extra_files == {"notes/a.txt": "ä".encode()}
    assert filled == {"notes/a.txt": "ä"}
    fastexport.save(ep, path, extra_files={"b.bin": b"\xff"})
    assert fastexport.load(path).extra_files == {"b.bin": b"\xff"}
    with pytest.raises(FormatError, match=r"b\.bin") as caught:
        fastexport.load(path, extra_files={})
    assert caught.value.entry == "extra/b.bin"


def test_several_models(tmp_path):
    torch_like = tmp_path / "two.pt2"
    with zipfile.ZipFile(sample("linear")) as old, zipfile.ZipFile(torch_like, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, data)
            for part in ("/model.json", "/model.pt", "/model_weights_config", "/model_constants_config"):
                if part in name:
                    new.writestr(name.replace(part, part.replace("model", "second", 1)), data)
    assert str(fastexport.load(torch_like).graph) == str(fastexport.load(torch_like, model="second").graph)
    with pytest.raises(FormatError, match="third"):
        fastexport.load(torch_like, model="third")


def test_a_weight_is_checked_when_it_is_touched():
    path = HOSTILE / "Z23_weight_bit.pt2"
    ep = fastexport.load(path, verify=False)
    with pytest.raises(FormatError, match="weight_0") as caught:
        memoryview(ep.state_dict["fc.weight"])
    assert caught.value.kind == "crc"
    with pytest.raises(fastexport.VerifyError, match="weight_0"):
        ep.verify()


def test_old_layouts_are_unpickled_only_on_touch():
    ep = fastexport.load(HOSTILE / "E22_layoutC_code.pt2")
    assert str(ep.graph).startswith("graph():")
    with pytest.raises(FormatError, match="mkdir"):
        list(ep.state_dict)


def test_copies_are_independent():
    import copy
    import pickle

    ep = fastexport.load(sample("cond_"))
    want = str(ep)
    for twin in (copy.deepcopy(ep), copy.copy(ep), pickle.loads(pickle.dumps(ep))):
        assert str(twin) == want
        twin.graph.erase_node(twin.graph.output_node())
        assert str(ep) == want


def test_meta_of_a_copy_waits_too():
    import copy

    twin = copy.deepcopy(fastexport.load(sample("linear")).graph)
    original = fastexport.load(sample("linear")).graph
    for a, b in zip(original.nodes, twin.nodes, strict=True):
        assert {k: str(v) for k, v in a.meta.items()} == {k: str(v) for k, v in b.meta.items()}


def test_many_threads_load_and_read():
    faults = []

    def work(path):
        try:
            for _ in range(5):
                ep = fastexport.load(path)
                str(ep.graph)
                [bytes(memoryview(t)) for t in ep.state_dict.values() if isinstance(t, fastexport.Tensor)]
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(path,)) for path in CURRENT[:8]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


def test_threads_share_one_program():
    ep = fastexport.load(sample("shared_weights"))
    seen = []
    threads = [threading.Thread(target=lambda: seen.append(ep.state_dict["v1"].tobytes())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == 1


def test_neither_torch_nor_numpy_is_imported():
    code = f"""
import sys, pathlib
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "numpy", "sympy", "ml_dtypes"):
            raise AssertionError("imported " + name)
sys.meta_path.insert(0, Refuse())
import fastexport, io
for path in sorted(pathlib.Path({str(SAMPLES)!r}).rglob("*.pt2")):
    try:
        ep = fastexport.load(path)
    except fastexport.FormatError:
        continue
    repr(ep), str(ep), ep.verify(all=True), [dict(n.meta) for n in ep.graph.nodes], ep.module_call_graph
    for state in (ep.state_dict, ep.constants):
        for tensor in state.values():
            tensor.tobytes()
    ep.eliminate_dead_code()
    fastexport.save(ep, io.BytesIO())
assert not {{"torch", "numpy"}} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", OLD, ids=label)
def test_layout_c_is_told(path):
    assert fastexport.load(path)._program.layout == "C"
