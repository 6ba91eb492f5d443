"""The classes of exceptions, how they show, and what messages say of arguments that can't be right."""

import copy
import errno
import importlib
import io
import os
import pathlib
import pickle
import subprocess
import sys
import types

import pytest
import torch

import fastexport
from fastexport import _errors
from fastexport._command.main import main
from fastexport._save import _write_all, write_parts

PT2 = pathlib.Path(__file__).parent / "data/pt2"
LINEAR = PT2 / "samples/current/linear.pt2"
LONE = "a\ud800b"


@pytest.fixture
def loaded():
    return fastexport.load(LINEAR)


@pytest.fixture
def exported():
    return torch.export.export(torch.nn.Linear(4, 4), (torch.ones(3, 4),))


# ---- classes


def all_errors():
    for name in ("_torch_verifier", "pt2e", "acceleration", "_pass_log", "_proxy", "_wrapping"):
        importlib.import_module(f"fastexport.{name}")
    found = [_errors.FastExportError]
    for cls in found:
        found += [sub for sub in cls.__subclasses__() if sub not in found and "tests" not in sub.__module__]
    return [cls for cls in found if cls.__module__.split(".")[0] == "fastexport"]


def errors_to_pickle():
    fault = _errors.Fault("FX301", "graph", True, None, None, "a", "wrong")
    lint = _errors.LintFault("UNDEFINED_OPERAND", "a", "b", "'a' is wrong")
    for cls in all_errors():
        if issubclass(cls, _errors.LintError):
            yield cls([lint])
        elif issubclass(cls, _errors.VerifyError):
            yield cls([fault])
            yield cls("a text of one's own")
        elif issubclass(cls, _errors.FormatError):
            yield cls("damaged", entry="a", json_path="$.b", kind="crc", faults=[fault])
        elif cls.__name__ == "PassError":
            yield cls("a", 0, 1, "inner", [lint], None, fastexport.PassLog())
        elif cls.__name__ == "AnnotationError":
            yield cls([])
        else:
            yield cls("a text")


def test_every_error_is_found():
    names = {"FileError", "FormatError", "LintError", "VerifyError", "AccelerationError", "AnnotationError"}
    assert names | {"PassError", "TraceError"} <= {cls.__name__ for cls in all_errors()}
    assert len(all_errors()) > 16


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
def test_copies_are_equal(again):
    for error in errors_to_pickle():
        error.add_note("noted")
        twin = again(error)
        assert type(twin) is type(error)
        assert (str(twin), twin.args, vars(twin)) == (str(error), error.args, vars(error))


def test_text_of_a_verify_error_stays():
    twin = pickle.loads(pickle.dumps(fastexport.VerifyError("text")))
    assert str(twin) == "text" and twin.args == ("text",)
    assert [fault.code for fault in twin.faults] == ["FX311"]


class Own(fastexport.VerifyError):
    def __init__(self, one, two):
        super().__init__(f"{one} {two}")
        self.two = two


def test_subclass_of_a_user():
    twin = pickle.loads(pickle.dumps(Own(1, 2)))
    assert type(twin) is Own and str(twin) == "1 2" and twin.two == 2


def test_errors_show_the_names_that_users_write():
    for cls in all_errors():
        module = importlib.import_module(cls.__module__)
        public = getattr(module, cls.__qualname__)
        assert issubclass(cls, public) and cls.__name__ in module.__all__, cls


def test_faults_of_torch_programs_are_verify_errors(exported):
    ep = fastexport.from_export(exported)
    ep.unlift_constants()
    with pytest.raises(fastexport.VerifyError) as caught:
        ep.verify()
    assert type(caught.value).__name__ == "VerifyError" and type(caught.value).__module__ == "fastexport"
    assert isinstance(caught.value, RuntimeError)
    twin = pickle.loads(pickle.dumps(caught.value))
    assert type(twin) is type(caught.value) and twin.faults == caught.value.faults


# ---- public names


@pytest.mark.parametrize("name", ["fastexport", "fastexport.acceleration", "fastexport.pt2e"])
def test_dir_has_public_names_only(name):
    module = importlib.import_module(name)
    shown = [each for each in dir(module) if not each.startswith("__")]
    submodules = [
        each for each in vars(module) if isinstance(vars(module)[each], types.ModuleType) and not each.startswith("_")
    ]
    assert set(module.__all__) <= set(shown)
    public = {each for each in submodules if vars(module)[each].__name__ == f"{name}.{each}"}
    assert set(shown) - set(module.__all__) <= public | {"acceleration"}
    assert not {"Any", "Mapping", "MutableMapping", "TYPE_CHECKING", "annotations", "sys"} & set(shown)
    for each in shown:
        assert hasattr(module, each)


def test_dir_imports_nothing():
    code = "import fastexport, sys; dir(fastexport); assert 'torch' not in sys.modules; print('fine')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "fine\n"


# ---- files


def assert_file_error(error, cls, number, path):
    assert isinstance(error, cls) and isinstance(error, OSError)
    assert error.errno == number
    assert error.strerror == os.strerror(number)
    assert os.fsdecode(error.filename) == os.fsdecode(path)


def bad_targets(tmp_path):
    (tmp_path / "file").write_text("text")
    (tmp_path / "folder").mkdir()
    yield tmp_path / "none" / "x.pt2", FileNotFoundError, errno.ENOENT
    yield tmp_path / "folder", IsADirectoryError, errno.EISDIR
    yield tmp_path / "file" / "x.pt2", NotADirectoryError, errno.ENOTDIR


def test_save_fails_as_open_does(loaded, exported, tmp_path):
    for path, cls, number in bad_targets(tmp_path):
        with pytest.raises(cls):
            open(path, "wb")
        for program in (loaded, fastexport.from_export(exported), exported):
            for given in (path, str(path), os.fsencode(path)):
                with pytest.raises(fastexport.FileError) as caught:
                    fastexport.save(program, given)
                assert_file_error(caught.value, cls, number, path)
                assert caught.value.filename == os.fspath(given)
                assert str(path) in str(caught.value) and "FX105" in str(caught.value)
                twin = pickle.loads(pickle.dumps(caught.value))
                assert type(twin) is type(caught.value) and str(twin) == str(caught.value)
                assert_file_error(twin, cls, number, path)
                assert twin.faults == caught.value.faults


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_save_without_permission(loaded, tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError) as caught:
        fastexport.save(loaded, tmp_path / "x.pt2")
    assert_file_error(caught.value, fastexport.FileError, errno.EACCES, tmp_path / "x.pt2")


def test_permission_is_a_kind_of_its_own():
    for number in (errno.EACCES, errno.EPERM):
        error = _errors.format_error([("FX105", "io", True, None, None, None, "no")], number)
        assert isinstance(error, PermissionError) and isinstance(error, fastexport.FileError)
        assert error.errno == number and str(error) == "FX105 no"


def test_load_fails_as_open_does(tmp_path):
    with pytest.raises(FileNotFoundError) as missing:
        fastexport.load(tmp_path / "none.pt2")
    assert missing.value.errno == errno.ENOENT and missing.value.filename
    with pytest.raises(IsADirectoryError) as folder:
        fastexport.load(tmp_path)
    assert_file_error(folder.value, fastexport.FileError, errno.EISDIR, tmp_path)
    with pytest.raises(fastexport.FileError) as device:
        fastexport.load(os.devnull)
    assert_file_error(device.value, OSError, errno.EINVAL, os.devnull)


def test_command_line_tells_what_open_would(tmp_path, capsys):
    out = str(tmp_path / "none" / "x.pt2")
    assert main(["opt", str(LINEAR), "-o", out, "--passes", "lint"]) == 2
    assert f"{out}: No such file" in capsys.readouterr().err
    assert main(["show", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"fastexport: {tmp_path}: this is a folder")


class BytesPath:
    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        return self.path


def test_paths_of_bytes(loaded, exported, tmp_path):
    path = os.fsencode(tmp_path / "x.pt2")
    for program in (loaded, exported):
        for given in (path, BytesPath(path)):
            fastexport.save(program, given)
            assert fastexport.load(BytesPath(path)).graph.nodes
            os.unlink(path)


class Writer:
    def __init__(self, answer):
        self.answer = answer

    def write(self, data):
        return self.answer


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (10**20, OSError, "says it took 100000000000000000000 of"),
        (-5, OSError, "says it took -5 of"),
        (0, OSError, "takes no more bytes"),
        ("many", TypeError, "not 'many'"),
        (1.5, TypeError, "not 1.5"),
    ],
)
def test_what_write_may_say(loaded, answer, error, words):
    with pytest.raises(error, match=words):
        fastexport.save(loaded, Writer(answer))


class Blocking(io.RawIOBase):
    def writable(self):
        return True

    def write(self, data):
        return None


def test_none_of_write_is_all_but_of_raw_files(loaded):
    fastexport.save(loaded, Writer(None))
    with pytest.raises(OSError, match="takes no more bytes"):
        fastexport.save(loaded, Blocking())


def test_pieces_are_put_together():
    taken = bytearray()

    class Slow:
        def write(self, data):
            taken.extend(data[:3])
            return len(data[:3])

    _write_all(Slow(), b"0123456789")
    assert taken == b"0123456789"


# ---- arguments


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("limits", 5, "limits a dict .* not int"),
        ("limits", [("entries", 1)], "limits a dict .* not list"),
        ("extra_files", [], "extra_files a dict .* not list"),
        ("model", 5, "model a str.* not int"),
        ("model", b"model", "model a str.* not bytes"),
        ("mmap", "x", "mmap a bool, not str"),
        ("verify", None, "verify a bool, not NoneType"),
    ],
)
def test_options_of_load(option, value, words):
    with pytest.raises(TypeError, match=words):
        fastexport.load(LINEAR, **{option: value})


def test_models_are_listed():
    with pytest.raises(fastexport.FormatError, match="no model 'nope'; it has 'model'$") as caught:
        fastexport.load(LINEAR, model="nope")
    assert caught.value.entry == "models/nope.json" and caught.value.kind == "missing_entry"
    file = io.BytesIO()
    archive = fastexport.load(LINEAR)._program.archive
    parts = [(name, archive.read(name)) for name, *_ in archive.entries()]
    parts += [(f"models/{name}.json", b"{}") for name in ("other", "mod")]
    write_parts(file, parts)
    with pytest.raises(fastexport.FormatError, match="no model 'mode'; it has 'model', 'other', 'mod'$"):
        fastexport.load(file.getvalue(), model="mode")


@pytest.mark.parametrize("value", [5, None, [1.0], "s", object()])
@pytest.mark.parametrize("from_torch", [False, True])
def test_constants_that_are_none(loaded, exported, value, from_torch):
    ep = fastexport.from_export(exported) if from_torch else loaded
    before = str(ep.graph), str(ep.graph_signature), list(ep.constants)
    with pytest.raises(TypeError, match=f"'scale' has to be a tensor, .* not an? {type(value).__name__}"):
        ep.add_constant("scale", value)
    with pytest.raises(TypeError, match="'scale' has to be a tensor"):
        ep.lift_constants({"scale": value})
    assert (str(ep.graph), str(ep.graph_signature), list(ep.constants)) == before


def test_shapes_of_what_is_no_program(exported):
    with pytest.raises(TypeError, match=r"fastexport.ExportedProgram.* not torch.export.*ExportedProgram"):
        fastexport.evaluate_shapes(exported)
    with pytest.raises(TypeError, match=r"not builtins\.int"):
        fastexport.evaluate_shapes(5)


def test_sizes_that_are_too_large():
    ep = fastexport.load(PT2 / "samples/current/dynamic.pt2")
    with pytest.raises(ValueError, match=rf"s77 = {2**80} lies outside VR\[2, 64\]"):
        fastexport.evaluate_shapes(ep, {"s77": 2**80})
    with pytest.raises(OverflowError, match=rf"s17 = {2**80} does not fit in 64 bits; .*VR\[2, int_oo\]"):
        fastexport.evaluate_shapes(ep, s17=2**80)
    with pytest.raises(OverflowError, match="node 'mul'.*s17"):
        fastexport.evaluate_shapes(ep, s17=2**62)
    with pytest.raises(TypeError, match="sizes is a mapping.*not int"):
        fastexport.evaluate_shapes(ep, 5)


def test_verifiers_that_are_none(exported):
    ep = fastexport.from_export(exported)
    kept = list(ep.verifiers)
    for wrong, words in ((5, r"verifiers\[0\] is a int"), (int, r"verifiers\[0\] is the class int")):
        ep.verifiers[:] = [wrong]
        for call in (ep.verify, ep.to_torch, lambda: fastexport.from_export(exported)):
            with pytest.raises(TypeError, match=words):
                call()
    ep.verifiers[:] = kept
    assert ep.verify() == []


@pytest.mark.parametrize("node", [5, None, "x", fastexport.Graph()])
def test_whose_meta_is_inherited(node):
    with pytest.raises(TypeError, match="inherit_meta"):
        fastexport.Graph().inherit_meta(node)


# ---- lone surrogates


def torch_call(exported):
    return next(node for node in exported.graph.nodes if node.op == "call_function")


def test_surrogates_in_names_of_nodes(loaded, exported):
    with pytest.raises(ValueError, match=r"name of a node 'a\\ud800b'") as caught:
        loaded.graph.node("linear").name = LONE
    assert not isinstance(caught.value, UnicodeError)
    torch_call(exported).name = LONE
    for call in (lambda: fastexport.from_export(exported), lambda: fastexport.from_fx(exported.graph)):
        with pytest.raises(ValueError, match=r"'a\\ud800b'") as caught:
            call()
        assert not isinstance(caught.value, UnicodeError)


def test_surrogates_in_names_of_weights(loaded, exported):
    before = str(loaded.graph)
    for ep, value in ((loaded, b"ab"), (fastexport.from_export(exported), torch.ones(2))):
        with pytest.raises(ValueError, match=r"'a\\ud800b' is no path"):
            ep.add_constant(LONE, value)
        ep.state_dict[LONE] = ep.state_dict[next(iter(ep.state_dict))]
        with pytest.raises(fastexport.FormatError, match=r"'a\\ud800b'"):
            fastexport.save(ep, io.BytesIO(), verify=False)
    assert str(loaded.graph) == before
    spec = next(spec for spec in exported.graph_signature.input_specs if spec.target == "weight")
    spec.target = LONE
    exported.state_dict[LONE] = exported.state_dict["weight"]
    with pytest.raises(ValueError, match=r"'a\\ud800b'") as caught:
        fastexport.from_export(exported)
    assert not isinstance(caught.value, UnicodeError)


def test_surrogates_elsewhere(loaded):
    with pytest.raises(ValueError, match=r"no model is named 'a\\ud800b'"):
        fastexport.load(LINEAR, model=LONE)
    for extra in ({LONE: "text"}, {"name": LONE}):
        with pytest.raises(ValueError, match="extra file") as caught:
            fastexport.save(loaded, io.BytesIO(), extra_files=extra)
        assert not isinstance(caught.value, UnicodeError)


def test_surrogates_in_paths_of_attributes(exported):
    with pytest.warns(UserWarning, match="a"):
        fastexport.from_export(exported).graph.get_attr(LONE)


# ---- weights that files can't hold


def test_sparse_weights_are_named():
    class Sparse(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.eye(4).to_sparse())

        def forward(self, x):
            return x + 1

    ep = fastexport.from_export(torch.export.export(Sparse(), (torch.ones(4, 4),)))
    for call in (lambda: pickle.dumps(ep), lambda: fastexport.save(ep, io.BytesIO())):
        with pytest.raises(fastexport.FormatError, match=r"'table' is a tensor of layout torch\.sparse_coo"):
            call()


# ---- weights that are no inputs


@pytest.mark.parametrize("from_torch", [False, True])
def test_unlifted_programs_say_what_to_do(loaded, exported, from_torch):
    ep = fastexport.from_export(exported) if from_torch else loaded
    ep.unlift_constants()
    faults = [fault for fault in ep.verify(all=True) if fault.code == "FX301"]
    assert len(faults) == 2 and all("call lift_constants()" in fault.message for fault in faults)
    for call in (ep.verify, ep.to_torch, lambda: fastexport.save(ep, io.BytesIO())):
        with pytest.raises(fastexport.VerifyError, match=r"call lift_constants\(\)"):
            call()
    ep.lift_constants()
    assert ep.verify() == []


def test_attributes_that_nobody_has_are_told_as_before(exported):
    ep = fastexport.from_export(exported)
    with pytest.warns(UserWarning), ep.graph.inserting_before(ep.graph.node("linear")):
        ep.graph.get_attr("nowhere")
    (fault,) = ep.verify(all=True)
    assert "which the module does not have" in fault.message


# ---- example inputs


class Hostile:
    def __reduce__(self):
        return os.system, ("false",)


def with_example_inputs(data):
    archive = fastexport.load(LINEAR)._program.archive
    parts = [(name, archive.read(name)) for name, *_ in archive.entries()]
    file = io.BytesIO()
    write_parts(file, [(name, data if name.endswith("sample_inputs/model.pt") else text) for name, text in parts])
    return fastexport.load(file.getvalue(), verify=False)


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


@pytest.mark.parametrize(
    "value",
    [Hostile(), ((Hostile(),), {}), 5, [1, 2, 3], ((torch.nn.Linear(2, 2),), {})],
    ids=lambda v: type(v).__name__,
)
def test_example_inputs_that_torch_refuses(value):
    ep = with_example_inputs(saved(value))
    with pytest.raises(fastexport.FormatError) as caught:
        ep.to_torch(example_inputs=True)
    text = str(caught.value)
    assert text.startswith("FX502 data/sample_inputs/model.pt: ") and caught.value.kind == "pickle"
    assert caught.value.entry == "data/sample_inputs/model.pt"
    assert "\x1b" not in text and "weights_only" not in text and "\n" not in text
    assert caught.value.__context__ is None or caught.value.__suppress_context__


class Broken:
    def __reduce__(self):
        return int, ("no number",)


def test_example_inputs_that_fail_though_trusted():
    with pytest.raises(fastexport.FormatError, match="sample_inputs/model.pt: .* no pair"):
        with_example_inputs(saved(7)).to_torch(example_inputs=True, pickles=True)
    with pytest.raises(fastexport.FormatError, match="sample_inputs/model.pt: .* ValueError: invalid literal"):
        with_example_inputs(saved(Broken())).to_torch(example_inputs=True, pickles=True)


def test_example_inputs_come_when_asked_for(loaded):
    assert loaded.to_torch().example_inputs is None
    args, kwargs = loaded.to_torch(example_inputs=True).example_inputs
    assert torch.equal(args[0], torch.load(io.BytesIO(saved(args[0])))) and kwargs == {}
