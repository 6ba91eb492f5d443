"""torch.export.save and load as a whole, with and without acceleration: the same files, programs and errors."""

import copy
import functools
import io
import logging
import math
import os
import random
import re
import unittest.mock
import warnings

import pytest
import torch
from torch import nn
from torch._export import verifier
from torch._export.serde import serialize
from torch._subclasses import fake_tensor
from torch.export.pt2_archive import _package
from torch.fx.experimental import symbolic_shapes

import fastexport
import pt2_torch  # noqa: F401 (it registers the operators and classes of the samples)
from fastexport.acceleration import _archives
from fastexport.acceleration._equal import find_difference
from pt2_files import CURRENT, HOSTILE, MIDDLE, NEGATIVE, OLD, SAMPLES, label, sample, with_document
from saved_programs import (
    PROGRAMS,
    accelerated,
    dynamic,
    hits,
    layers,
    load,
    module,
    only_hits,
    outcome,
    program,
    save,
    shared_weights,
)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    """torch's own warning about objects among the example inputs can't be formatted, which pytest makes an error."""
    monkeypatch.setattr(serialize.log, "disabled", True)


# ---- whole files


def messages_of(function):
    """What came of a call, its warnings, and what torch's loggers were told."""
    logged = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: logged.append(record.getMessage())
    loggers = [logging.getLogger(name) for name in (serialize.__name__, "torch.export", _package.__name__)]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            found = outcome(function)
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
    return found, [(item.category, str(item.message)) for item in given], logged


def stable(text):
    """The text of an exception without what differs from call to call: torch's own stack."""
    return re.sub(r"0x[0-9a-f]+", "", text.partition("Exception raised from")[0])


def assert_loaded_alike(path_or_data, folder=None):
    """Loading gives the same with and without acceleration, and leaves the same in a folder; tells if ours did it."""

    def attempt():
        is_path = isinstance(path_or_data, str | os.PathLike)
        try:
            return torch.export.load(path_or_data if is_path else io.BytesIO(path_or_data))
        finally:
            if folder is not None:
                left.append(sorted(os.listdir(folder)))
                for name in left[-1]:
                    (folder / name).rmdir()

    left = []

    expected, *told = messages_of(attempt)
    before = hits("load_program")
    with fastexport.accelerate():
        found, *told_again = messages_of(attempt)
    is_ours = hits("load_program") > before
    if isinstance(expected, tuple):
        assert not is_ours and isinstance(found, tuple)
        assert (found[0], stable(found[1])) == (expected[0], stable(expected[1]))
    else:
        assert find_difference(expected, found) is None
    assert told_again == told
    assert left[1:] == left[:1]
    return is_ours


OURS = [path for path in CURRENT if path.stem != "hand_custom_obj"]


@pytest.mark.parametrize("path", OURS, ids=label)
def test_loads_the_program_of_a_file(path):
    assert assert_loaded_alike(path)


def test_what_is_left_to_torch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the samples hold code that makes a folder here
    for path in [*OLD, *MIDDLE, *NEGATIVE, SAMPLES / "current" / "hand_custom_obj.pt2"]:
        assert not assert_loaded_alike(path, tmp_path), path


# What torch makes of it is not always the same.
VARYING = {"Z82_deflate_bad", "Z83_deflate_short"}


@pytest.mark.parametrize("part", range(4))
def test_hostile_files_give_what_they_give_with_torch(part, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = [path for path in sorted(HOSTILE.glob("[EGJTZ]*.pt2")) if path.stem not in VARYING]
    assert len(paths) > 300
    for path in paths[part * 3 :: 12]:
        assert_loaded_alike(path, tmp_path)


def test_a_pickle_runs_as_often_as_with_torch(tmp_path, monkeypatch):
    """Weights of a class of their own are pickled; the class tells how often it is made."""
    made = []

    class Mine(torch.Tensor):
        @staticmethod
        def __new__(cls, data):
            made.append(1)
            return torch.Tensor._make_subclass(cls, data)

    monkeypatch.setitem(globals(), "Mine", Mine)
    Mine.__qualname__ = "Mine"
    Mine.__reduce_ex__ = lambda self, protocol: (Mine, (torch.zeros(2),))
    chosen = torch.export.export(nn.ReLU(), (torch.randn(2),))
    chosen.constants["mine"] = Mine(torch.ones(2))
    data = save(chosen)
    assert b"use_pickle" in data
    made.clear()
    load(data)
    once = len(made)
    accelerated(load, data)
    assert len(made) == 2 * once > 0


DOCUMENTS = {
    "an argument that the operator does not have": lambda node: node["inputs"].append(
        {"name": "w", "arg": {"as_ints": [1]}, "kind": 2}
    ),
    "arguments in another order": lambda node: node["inputs"].reverse(),
    "an argument without a name": lambda node: node["inputs"][1].update(name=""),
    "an argument under the name of another": lambda node: node["inputs"][1].update(name="bias"),
    "no name": lambda node: node.pop("name"),
    "another name": lambda node: node.update(name="input"),
    "an unknown key": lambda node: node.update(more=1),
    "no kind": lambda node: [given.pop("kind") for given in node["inputs"]],
    "a missing argument": lambda node: node["inputs"].pop(),
    "a missing required argument": lambda node: node["inputs"].pop(0),
}


@pytest.mark.parametrize("change", DOCUMENTS, ids=str)
@pytest.mark.parametrize("name", ["linear", "custom_op"])
def test_documents_that_torch_would_not_have_written(name, change):
    def edit(document):
        graph = document["graph_module"]["graph"]
        DOCUMENTS[change](next(node for node in graph["nodes"] if len(node["inputs"]) > 1))

    assert_loaded_alike(with_document(sample(name), edit))


def test_random_changes_of_documents():
    rng = random.Random(7)
    done = 0
    for turn in range(120):
        path = sample(rng.choice(["linear", "dynamic", "cond_", "multi_out", "scalars", "module_signature"]))
        done += assert_loaded_alike(with_document(path, lambda document: scramble(document, rng)))
        assert turn or done >= 0
    assert 10 < done < 110


def scramble(document, rng):
    """Change one thing."""
    holders = []

    def walk(value):
        if isinstance(value, (dict, list)) and value:
            holders.append(value)
            for item in list(value.values() if isinstance(value, dict) else value):
                walk(item)

    walk(document)
    holder = rng.choice(holders)
    key = rng.choice(list(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
    other = rng.choice(holders)
    what = rng.randrange(6)
    if what == 0:
        del holder[key]
    elif what == 1:
        holder[key] = rng.choice([None, 0, -1, True, "", "x", "input", [], {}, 10**12])
    elif what == 2 and isinstance(holder, list):
        rng.shuffle(holder)
    elif what == 3 and isinstance(holder, list):
        holder.append(copy.deepcopy(holder[key]))
    elif what == 4 and isinstance(holder, dict):
        items = list(holder.items())
        holder.clear()
        holder.update(reversed(items))
    elif type(other) is type(holder):
        holder[key] = copy.deepcopy(rng.choice(list(other.values() if isinstance(other, dict) else other)))


class Folder:
    """A path of a class of its own."""

    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        return self.path


def test_every_way_to_name_a_file(tmp_path):
    path = tmp_path / "given.pt2"
    data = save(program(layers), extra_files={"a.txt": "é", "b/c": "two"})
    path.write_bytes(data)
    other = tmp_path / "other.zip"
    other.write_bytes(data)

    def opened(mode="rb"):
        file = open(path, mode)
        files.append(file)
        return file

    def moved():
        file = io.BytesIO(b"before" + data)
        file.seek(6)
        return file

    files = []
    mine = type("Mine", (io.BytesIO,), {})
    ways = [
        (lambda: str(path), True),
        (lambda: path, True),
        (lambda: Folder(str(path)), True),  # torch.export.load makes it a path
        (opened, True),
        (lambda: io.BytesIO(data), True),
        (lambda: opened("r+b"), False),
        (lambda: mine(data), False),
        (moved, False),
        (lambda: str(other), False),
        (lambda: str(tmp_path / "nowhere.pt2"), False),
        (lambda: str(tmp_path), False),
        (lambda: io.BytesIO(data[:-30]), False),
        (lambda: 5, False),
        (lambda: None, False),
    ]
    for make, is_ours in ways:

        def attempt(make=make):
            file, extra = make(), {"a.txt": ""}
            try:
                return torch.export.load(file, extra_files=extra), extra, file.tell() if hasattr(file, "tell") else 0
            except Exception as error:
                return type(error), stable(str(error)), file.tell() if hasattr(file, "tell") else 0

        expected, *told = messages_of(attempt)
        before = hits("load_program")
        with fastexport.accelerate():
            found, *told_again = messages_of(attempt)
        assert (hits("load_program") > before) is is_ours
        assert find_difference(expected, found) is None
        assert told[0] == told_again[0]
        assert len(told[1]) == len(told_again[1])
    for file in files:
        file.close()


@pytest.mark.parametrize("versions", [None, {}, {"aten": 3}, {"aten": "x", 5: None}, 5, [("aten", 1)], "aten"])
def test_versions_that_are_expected(versions):
    data = save(program(layers))

    def attempt():
        return torch.export.load(io.BytesIO(data), expected_opset_version=versions)

    expected, found = outcome(attempt), accelerated(outcome, attempt)
    assert find_difference(expected, found) is None


def test_weights_of_a_loaded_program_can_be_written_to():
    found = accelerated(load, save(program(shared_weights)))
    first, second = found.state_dict["0.weight"], found.state_dict["1.weight"]
    with torch.no_grad():
        first.add_(1)
    assert torch.equal(first, second) and first.requires_grad and first.is_leaf
    first.sum().backward()
    assert first.grad is not None


def test_names_that_a_graph_has_taken_are_those_of_torch():
    def named(self, input, x, max):
        return input + x + max

    data = save(torch.export.export(module(named), (torch.ones(1), torch.ones(1), torch.ones(1))))
    for found in (load(data), accelerated(load, data)):
        with found.graph.inserting_before(found.graph.output_node()):
            made = [found.graph.create_node("call_function", torch.relu, (), {}, name).name for name in ("input", "x")]
        assert made == ["input_2", "x_1"]


PATCHED = [
    (_package, "_load_state_dict"),
    (_package, "_load_exported_programs"),
    (_package, "_package_constants"),
    (_package.PT2ArchiveReader, "read_bytes"),
    (_package.PT2ArchiveWriter, "write_bytes"),
    (verifier.Verifier, "check"),
    (fake_tensor.FakeTensor, "__new__"),
    (symbolic_shapes.ShapeEnv, "create_symintnode"),
    (torch.fx.Graph, "create_node"),
    (torch.export.ExportedProgram, "__init__"),
]


@pytest.mark.parametrize("owner, name", PATCHED)
def test_patched_functions_of_the_whole_are_called(monkeypatch, owner, name):
    chosen, data = program(dynamic), save(program(dynamic))
    calls = []
    patched = vars(owner)[name]
    function = getattr(patched, "__func__", patched)

    @functools.wraps(function)
    def note(*args, **kwargs):
        calls.append(args)
        return function(*args, **kwargs)

    with fastexport.accelerate():
        monkeypatch.setattr(owner, name, staticmethod(note) if isinstance(patched, staticmethod) else note)
        assert save(chosen) == data
        found = load(data)
        monkeypatch.undo()
    assert calls
    assert find_difference(load(data), found) is None


def test_a_mock_in_the_place_of_a_function_is_called(monkeypatch):
    data = save(program(layers))
    mock = unittest.mock.Mock(side_effect=_package._load_constants)
    with fastexport.accelerate():
        monkeypatch.setattr(_package, "_load_constants", mock)
        load(data)
        monkeypatch.undo()
    assert mock.call_count == 1


@pytest.mark.parametrize("scope", [torch.inference_mode, fake_tensor.FakeTensorMode, lambda: torch.device("meta")])
def test_modes_that_torch_would_see(scope):
    data = save(program(layers))
    with scope():
        expected = outcome(load, data)
        found = accelerated(outcome, load, data)
    assert find_difference(expected, found) is None


def test_who_reads_the_log_sees_what_torch_says(monkeypatch, caplog):
    data = save(program(layers))
    monkeypatch.setattr(serialize.log, "disabled", False)
    with caplog.at_level(logging.DEBUG, logger=serialize.__name__):
        load(data)
        expected = [record.getMessage() for record in caplog.records]
        caplog.clear()
        accelerated(load, data)
    assert expected and [record.getMessage() for record in caplog.records] == expected


# ---- whole programs, saved


@pytest.mark.parametrize("make", PROGRAMS)
def test_writes_the_bytes_that_torch_writes(make, tmp_path):
    expected = save(program(make))
    with only_hits("save_program"):
        assert accelerated(save, program(make)) == expected
    first, second = tmp_path / "a" / "name.pt2", tmp_path / "b" / "name.pt2"
    for path, how in ((first, outcome), (second, functools.partial(accelerated, outcome))):
        path.parent.mkdir()
        how(torch.export.save, program(make), path, extra_files={"note": "é"}, pickle_protocol=4)
    assert first.read_bytes() == second.read_bytes()


def test_a_kept_version_does_not_change_what_torch_ignores():
    assert accelerated(save, program(layers), opset_version={"aten": 1}) == save(
        program(layers), opset_version={"aten": 1}
    )


def unnamed(change):
    """A program, changed."""

    def make():
        made = layers()
        change(made)
        return made

    return make


def first_call(made):
    return next(node for node in made.graph.nodes if node.op == "call_function")


def without_results(made):
    made.graph_signature.output_specs.clear()
    made.graph.output_node().args = ((),)


FAULTY = {
    "no value": lambda made: first_call(made).meta.pop("val"),
    "a value of another kind": lambda made: first_call(made).meta.update(val=object()),
    "an unknown function": lambda made: setattr(first_call(made), "target", math.ceil),
    "a weight that is none": lambda made: made.state_dict.update(more=5),
    "a constant that is none": lambda made: made.constants.update(more=object()),
    "a trace that is no text": lambda made: first_call(made).meta.update(stack_trace=5),
    "a note that has no JSON": lambda made: first_call(made).meta.update(custom={"a": object()}),
    "a stack that is no dict": lambda made: first_call(made).meta.update(nn_module_stack=[1]),
    "names that are none": lambda made: first_call(made).meta.update(torch_fn=5),
    "a missing weight": lambda made: made.state_dict.pop("0.weight"),
    "an argument that no file can hold": lambda made: setattr(
        first_call(made), "args", (*first_call(made).args, slice(1, 2))
    ),
    "an argument given twice": lambda made: setattr(first_call(made), "kwargs", {"input": None}),
    "a list where a tensor belongs": lambda made: setattr(
        first_call(made), "args", ([[1]], *first_call(made).args[1:])
    ),
    "a note that is no dict": lambda made: first_call(made).meta.update(custom="x"),
    "more than one result": lambda made: setattr(made.graph.output_node(), "args", (*made.graph.output_node().args, 1)),
    "a module without a name": lambda made: setattr(made.module_call_graph[-1], "fqn", None),
    "the value of another operator": lambda made: first_call(made).meta.update(val=3),
    "an object as a constant": lambda made: setattr(
        made.graph_signature.output_specs[0], "arg", torch.export.graph_signature.ConstantArgument("x", object())
    ),
    "no results": lambda made: (
        made.graph_signature.output_specs.clear(),
        setattr(made.graph.output_node(), "args", ((),)),
    ),
    "a flag that is none": lambda made: setattr(made.graph_signature.input_specs[2], "persistent", {"a": 1}),
    "guards of another kind": lambda made: setattr(made, "_guards_code", [object()]),
    "example inputs that can't be pickled": lambda made: setattr(made, "_example_inputs", ((lambda: 1,), {})),
}


@pytest.mark.parametrize("change", FAULTY, ids=str)
def test_faulty_programs_are_refused_as_by_torch(change):
    def attempt():
        file = io.BytesIO()
        found = outcome(torch.export.save, unnamed(FAULTY[change])(), file)
        assert found is None or isinstance(found, tuple)
        return found and (found[0], stable(found[1]).partition("Original exception")[0]), len(file.getvalue())

    expected = attempt()
    assert accelerated(attempt) == expected


def test_what_fails_leaves_nothing_of_ours_in_the_file(monkeypatch):
    from fastexport import _torch_save

    expected = save(program(layers))
    for error in (ValueError("no"), MemoryError(), fastexport.FormatError("no", kind="value")):
        monkeypatch.setattr(_torch_save, "records", unittest.mock.Mock(side_effect=error))
        assert accelerated(save, program(layers)) == expected


def test_a_program_of_a_class_of_its_own_is_left_to_torch():
    class Mine(torch.export.ExportedProgram):
        pass

    mine = copy.copy(program(layers))
    mine.__class__ = Mine
    before = hits("save_program")
    assert accelerated(save, mine) == save(mine)
    assert hits("save_program") == before


# ---- comparing


def test_verify_compares_whole_programs(monkeypatch, tmp_path):
    data = save(program(layers))
    path = tmp_path / "given.pt2"
    path.write_bytes(data)
    with fastexport.accelerate(only=["load_program", "save_program"], verify=True), only_hits("load_program"):
        assert find_difference(load(data), torch.export.load(path)) is None
        assert save(program(layers)) == data
    with fastexport.accelerate(verify=True), pytest.raises(Exception, match="zip"):
        load(data[:100])

    made = _archives._program
    monkeypatch.setattr(_archives, "_program", lambda *args: [made(*args)])
    with fastexport.accelerate(verify=True), pytest.raises(fastexport.acceleration.AccelerationError, match="load_pt2"):
        load(data)
    records = _archives._records
    monkeypatch.setattr(_archives, "_records", lambda *args: records(*args)[1:])
    with fastexport.accelerate(verify=True), pytest.raises(fastexport.acceleration.AccelerationError, match="package"):
        save(program(layers))
