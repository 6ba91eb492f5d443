"""Programs are let go whole, out of memory is an exception, and hostile objects of callers do no harm."""

import gc
import io
import os
import re
from pathlib import Path

import pytest

import fastexport
from fastexport import FastExportError, FormatError, Graph
from helpers import leaked, run_python
from pt2_files import DATA, MIDDLE, OLD, sample

LINEAR = sample("linear").read_bytes()
COND = sample("cond_").read_bytes()
BEFORE = b"what was here before"


def test_out_of_memory_at_every_point():
    out = run_python(Path(__file__).with_name("pt2_out_of_memory.py").read_text())
    failures = re.findall(r"(.+): (\d+)", out)
    assert len(failures) == 34 and all(int(count) > 3 for _, count in failures), out


# ---- leaks


def touch(data):
    ep = fastexport.load(data, verify=True)
    str(ep), repr(ep), ep.verify(all=True, level="strict")
    for graph in [ep.graph, *(ep.graph.subgraphs or {}).values()]:
        for node in graph.nodes:
            dict(node.meta)
    for value in ep.state_dict.values():
        bytes(value)
    list(ep.constants.items()), ep.call_spec, ep.extra_files, ep.guards, ep.range_constraints
    file = io.BytesIO()
    ep.save(file)
    ep.save(file, extra_files={"name": "text"})
    return file


SMALL = [sample(name) for name in ("cond_", "dynamic", "shared_weights", "hand_custom_obj")] + OLD[:1] + MIDDLE[:1]


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.stem)
def test_nothing_is_left_of_a_program(path):
    data = path.read_bytes()
    assert leaked(lambda: touch(data), 10) == 0


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="ASan keeps what is freed")
def test_memory_does_not_grow():
    """C memory too: a program's documents and graphs take about 100 kB, its loads and saves come to 20 MB here."""
    for _ in range(50):
        touch(COND)
    before = resident()
    for _ in range(100):
        touch(COND)
    assert resident() - before < 4 << 20


def test_descriptors_do_not_grow(tmp_path):
    path = tmp_path / "a.pt2"
    path.write_bytes(LINEAR)
    damaged = tmp_path / "damaged.pt2"
    damaged.write_bytes(LINEAR[:-30])

    def opened():
        gc.collect()
        return len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0

    before = opened()
    for _ in range(20):
        ep = fastexport.load(path)
        list(ep.state_dict.values())
        ep.save(path)
        with pytest.raises(FormatError):
            fastexport.load(damaged)
        with pytest.raises(ValueError, match="limit"):
            fastexport.load(path, limits={"nothing": 1})
        with path.open("rb") as file:
            fastexport.load(file)
    del ep
    assert opened() == before


# ---- hostile objects


class Raises:
    """Raises whatever it is asked."""

    def __repr__(self):
        raise ZeroDivisionError("repr")

    def __eq__(self, other):
        raise ZeroDivisionError("eq")

    def __bool__(self):
        raise ZeroDivisionError("bool")

    def __getattr__(self, name):
        raise ZeroDivisionError(name)

    __hash__ = None


def saved(ep, path, **options):
    """Save over another file; either it is whole or the old one is left."""
    path.write_bytes(BEFORE)
    try:
        ep.save(path, **options)
    except BaseException:
        assert path.read_bytes() == BEFORE
        raise
    finally:
        assert os.listdir(path.parent) == [path.name]
    return fastexport.load(path)


KEYS = ["val", "nn_module_stack", "stack_trace", "torch_fn", "source_fn_stack", "from_node", "custom", "tag"]


@pytest.mark.parametrize("key", KEYS)
def test_hostile_meta(key, tmp_path):
    path = tmp_path / "a.pt2"
    for value in (Raises(), [Raises()], {"a": Raises()}, (Raises(), 1), {Exception: Raises()}):
        ep = fastexport.load(LINEAR)
        node = ep.graph.node("linear")
        node.meta[key] = value
        try:
            again = saved(ep, path)
        except (ValueError, TypeError, ZeroDivisionError, FastExportError):
            pass
        else:
            assert str(again.graph) == str(ep.graph)
        del node.meta[key]
        ep.graph.lint()


def test_meta_that_edits_the_graph_while_it_is_written(tmp_path):
    """The encoder looks at meta with Python code of callers: what it does to the graph then is seen."""
    path = tmp_path / "a.pt2"
    for edit in (
        lambda g: g.erase_node(g.node("one_more")),
        lambda g: g.call_function(g.node("linear").target, g.node("linear").args, name="two_more"),
        lambda g: setattr(g.node("linear"), "name", "renamed"),
        lambda g: setattr(g.node("linear"), "args", ()),
        lambda g: g.node("linear").meta.clear(),
        lambda g: setattr(g, "subgraphs", {"a": Graph()}),
        lambda g: g.eliminate_dead_code(),
        lambda g: gc.collect(),
    ):
        ep = fastexport.load(LINEAR)
        graph, node = ep.graph, ep.graph.node("linear")
        with graph.inserting_after(node):
            graph.call_function(node.target, node.args, name="one_more").meta["val"] = node.meta["val"]

        class Edits(dict):
            done = False

            def items(self, graph=graph, edit=edit):
                if not self.done:
                    self.done = True
                    edit(graph)
                return super().items()

        node.meta["nn_module_stack"] = Edits(node.meta["nn_module_stack"])
        try:
            saved(ep, path)
        except (FastExportError, ValueError, RuntimeError, TypeError) as error:
            assert str(error)


def test_subgraphs_that_are_no_tree(tmp_path):
    path = tmp_path / "a.pt2"
    for change, error in (
        (lambda g, inner: g.subgraphs.update(wrong=3), TypeError),
        (lambda g, inner: g.subgraphs.update({3: inner}), TypeError),
        (lambda g, inner: g.subgraphs.update({"a\0b": inner}), ValueError),
        (lambda g, inner: g.subgraphs.update({"\ud800": inner}), ValueError),
        (lambda g, inner: g.subgraphs.update({next(iter(g.subgraphs)): Raises()}), TypeError),
        (lambda g, inner: g.subgraphs.update(cycle=g), ValueError),
        (lambda g, inner: setattr(inner, "subgraphs", {"a": inner}), ValueError),
        (lambda g, inner: setattr(inner, "subgraphs", {"a": g, "b": g}), ValueError),
        (lambda g, inner: g.subgraphs.clear(), fastexport.VerifyError),
    ):
        ep = fastexport.load(COND)
        change(ep.graph, next(iter(ep.graph.subgraphs.values())))
        with pytest.raises(error):
            saved(ep, path)
        with pytest.raises((error, fastexport.VerifyError)):
            ep.verify()
        ep.graph.subgraphs = {}


def test_subgraphs_without_end():
    """Each level holds the next one twice: 2 ** 40 graphs."""
    ep = fastexport.load(COND)
    outer = ep.graph
    for _ in range(30):
        inner = Graph()
        outer.subgraphs = {**(outer.subgraphs or {}), "a": inner, "b": inner}
        outer = inner
    with pytest.raises(RecursionError):
        ep.verify()
    with pytest.raises(RecursionError):
        ep.save(io.BytesIO())


class Short(io.RawIOBase):
    """Takes a few bytes at a time, as pipes do."""

    def __init__(self, least=1000):
        self.content = bytearray()
        self.least = least

    def writable(self):
        return True

    def write(self, data):
        taken = min(len(data), self.least)
        self.content += bytes(data[:taken])
        return taken


class Reads:
    def __init__(self, result):
        self.result = result

    def read(self, *args):
        if isinstance(self.result, type) and issubclass(self.result, BaseException):
            raise self.result("read")
        return self.result


class Named(os.PathLike):
    def __init__(self, result):
        self.result = result

    def __fspath__(self):
        if isinstance(self.result, type):
            raise self.result("path")
        return self.result


def test_files_that_misbehave():
    for source, error in (
        (Reads(OSError), OSError),
        (Reads(KeyboardInterrupt), KeyboardInterrupt),
        (Reads("text"), TypeError),
        (Reads(None), TypeError),
        (Reads(b""), FormatError),
        (Reads(b"garbage"), FormatError),
        (Reads(LINEAR[: len(LINEAR) // 2]), FormatError),
        (Reads(memoryview(LINEAR)[::2]), (FormatError, BufferError, TypeError, ValueError)),
        (Named(ZeroDivisionError), ZeroDivisionError),
        (Named(3), TypeError),
        (Named("a\0b"), ValueError),
        ("a\0b", ValueError),
        (Raises(), ZeroDivisionError),
        (None, TypeError),
        (3.5, TypeError),
        ([LINEAR], TypeError),
    ):
        with pytest.raises(error):
            fastexport.load(source)
    assert len(fastexport.load(Reads(bytearray(LINEAR))).graph.nodes) == 6


def test_bytes_that_change_after_they_were_opened():
    data = bytearray(LINEAR)
    ep = fastexport.load(data)
    with pytest.raises(BufferError):
        data.clear()
    text = str(ep.graph)
    for i in range(len(data)):
        data[i] = 0
    assert str(ep.graph) == text
    try:
        [bytes(value) for value in ep.state_dict.values()]
        ep.save(io.BytesIO())
    except FormatError:
        pass


def test_files_to_write_that_misbehave(tmp_path):
    ep = fastexport.load(LINEAR)

    class Fails(Short):
        def write(self, data):
            raise ZeroDivisionError("write")

    for target, error in (
        (Fails(), ZeroDivisionError),
        (Short(0), OSError),
        (io.StringIO(), TypeError),
        (io.BytesIO(b"").getbuffer(), TypeError),
        (Named(ZeroDivisionError), ZeroDivisionError),
        (Named(str(tmp_path / "a\0b")), ValueError),
        (Raises(), ZeroDivisionError),
        (None, TypeError),
        (3, TypeError),
    ):
        with pytest.raises(error):
            ep.save(target)
    short = Short()
    ep.save(short)
    assert fastexport.load(bytes(short.content)).graph == ep.graph
    assert os.listdir(tmp_path) == []


def test_hostile_extra_files(tmp_path):
    path = tmp_path / "a.pt2"

    class Name(str):
        def __hash__(self):
            return id(self)

        def __eq__(self, other):
            return self is other

        def __format__(self, spec):
            return "../../outside"

        def encode(self, *args):
            return 3

    for extras in (
        {"a": 3},
        {3: "a"},
        {"../a": "text"},
        {"/a": "text"},
        {"a\0b": "text"},
        {"a/../../b": "text"},
        {"\ud800": "text"},
        {"a": "\ud800"},
        {"": "text"},
        {"a": Name("text")},
        {Name("a"): "text"},
        {Name("a"): "text", Name("a"): "again"},
        {"x" * 70000: "text"},
        {"a": "text", "a/": "text"},
    ):
        with pytest.raises((FormatError, TypeError, ValueError)):
            saved(fastexport.load(LINEAR), path, extra_files=extras)
    assert saved(fastexport.load(LINEAR), path, extra_files={"a/b": b"\xff"}).extra_files == {"a/b": b"\xff"}


def test_hostile_weights(tmp_path):
    path = tmp_path / "a.pt2"
    memory = memoryview(bytes(48)).cast("f", (3, 4))

    class Interface:
        def __init__(self, **changes):
            self.__array_interface__ = {
                "shape": (3, 4), "typestr": "<f4", "data": (0, True), "strides": None, "version": 3
            } | changes  # fmt: skip

    class Capsule:
        def __dlpack__(self, **options):
            return object()

        def __dlpack_device__(self):
            return 1, 0

    released = memoryview(bytearray(48))
    released.release()
    for value in (
        released,
        Raises(),
        None,
        3,
        "text",
        Capsule(),
        Interface(shape=(1 << 62, 4)),
        Interface(shape=(-1,)),
        Interface(typestr="<O8"),
        memoryview(bytes(48)).cast("P"),
    ):
        ep = fastexport.load(LINEAR)
        with pytest.raises(
            (TypeError, ValueError, BufferError, ZeroDivisionError, AttributeError, RuntimeError, FastExportError)
        ):
            ep.state_dict["fc.weight"] = value
        assert not ep.state_dict.changed
        assert saved(ep, path).graph == ep.graph
    for name in (3, None, b"fc.weight", Raises()):
        with pytest.raises((TypeError, ZeroDivisionError)):
            fastexport.load(LINEAR).state_dict[name] = memory
    ep = fastexport.load(LINEAR)
    array = bytearray(48)
    ep.state_dict["fc.weight"] = memoryview(array).cast("f", (3, 4))
    array[:] = b"\xff" * 48
    array.clear()
    assert bytes(saved(ep, path).state_dict["fc.weight"]) == bytes(48)


def test_findings_are_no_archives():
    """What fuzzing found is for the C tests; here it is only not to crash."""
    for path in sorted((DATA / "findings").iterdir()):
        assert not fastexport.is_pt2(path)
