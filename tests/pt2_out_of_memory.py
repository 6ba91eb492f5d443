"""Run by test_load_memory.py in a process of its own: opening, looking and saving with each allocation failing in turn.

The allocators of Python, which the C part shares, fail once, or many times in a row. Then the call has to raise
MemoryError, leave program and files as they were, hold on to nothing, and work when it is called again.
"""

import _testcapi
import gc
import os
import sys
import tempfile
import weakref

import fastexport
from explorer_told import Told
from fastexport import _core, _objects
from pt2_files import SAMPLES, sample

WINDOWS = 1, 60  # failures in a row; without an end CPython 3.11 does not get out of `with` and `finally`
LAST = 8  # so many calls in a row that succeed: no allocation is left to fail
DATA = {name: sample(name).read_bytes() for name in ("linear", "cond_", "cond_single_tensor", "dynamic")}
OLD = sorted((SAMPLES / "old_layout").glob("*.pt2"))[0].read_bytes()
FOLDER = tempfile.mkdtemp()
PATH = os.path.join(FOLDER, "program.pt2")
BEFORE = b"what was here before"


def open_program(name="cond_"):
    return fastexport.load(DATA[name], verify=False)


def documents(ep):
    program = ep._program
    program.json("model")
    program.canonical()
    program.payloads(False)
    program.ranges()
    assert program.is_unchanged(ep.graph)


def entries(ep):
    archive = ep._program.archive
    name = archive.entries()[0][0]
    archive.check(name)
    assert archive.models == ["model"]
    return archive.read(name), bytes(archive.storage(name)), bytes(archive.storage(name, map=False))


def rewrite(ep):
    archive = ep._program.archive
    parts = []
    for entry in archive.entries():
        parts.append((entry[0], (archive, entry[0])))  # a comprehension would be a closure
    _core.write_archive(PATH, "root", parts)


TENSOR = (
    '{"as_tensor": {"dtype": 7, "sizes": [], "requires_grad": false, "device": {"type": "cpu", "index": null}, '
    '"strides": [], "storage_offset": {"as_int": 0}, "layout": 7}}'
)
RESULTS = f'{{"as_list": [{TENSOR}]}}'
DOCUMENT = '{"graph_module": {"graph": {}, "signature": {"input_specs": [], "output_specs": []}}}'


def encode(name, meta, is_input):
    return RESULTS if name.startswith("cond") else TENSOR, "{}"


def describe(value):
    described = _objects.describe_object(value)
    return described and (*described, None if "higher_order" in str(value) else "Tself Tother>T")


def open_with_meta(name):
    """A program whose meta is decoded already, which Python does: see OPERATIONS."""
    ep = open_program(name)
    for graph in (ep.graph, *ep.graph.subgraphs.values()):
        for node in graph.nodes:
            len(node.meta)
    return ep


def write_new(ep):
    return _core.Program.write_new(ep.graph, DOCUMENT, encode, describe)


# What saving, and looking at meta, does in Python is left out: it iterates over the items of dicts, and CPython 3.11
# crashes when it can't make the iterator.
OPERATIONS = {
    "load": (lambda: None, lambda _: fastexport.load(DATA["cond_"], verify=False)),
    "load and verify": (lambda: None, lambda _: fastexport.load(DATA["dynamic"])),
    "load an old layout": (lambda: None, lambda _: fastexport.load(OLD, verify=False)),
    "str": (open_program, lambda ep: str(ep.graph)),
    "level facts": (lambda: open_program("dynamic"), lambda ep: _core.level_facts(ep.graph)),
    "explorer nodes": (lambda: open_program("dynamic"), lambda ep: _core.explorer_nodes(ep.graph, Told())),
    "documents": (open_program, documents),
    "signature": (open_program, lambda ep: (ep.graph._signature(), ep.graph_signature)),
    "module calls": (open_program, lambda ep: ep.module_call_graph),
    "ranges": (lambda: open_program("dynamic"), lambda ep: ep.range_constraints),
    "entries": (open_program, entries),
    "weights": (open_program, lambda ep: [bytes(ep.state_dict[name]) for name in list(ep.state_dict)]),
    "old weights": (lambda: fastexport.load(OLD, verify=False), lambda ep: len(ep.state_dict)),
    "verify": (open_program, lambda ep: ep.verify(all=True, level="strict")),
    "write": (open_program, lambda ep: ep._program.write(ep.graph)),
    "write an archive": (open_program, rewrite),
    "write what comes from elsewhere": (lambda: open_with_meta("cond_single_tensor"), write_new),
}

# These go through functions with closures: CPython 3.11 leaks the arguments when it can't make the cell for one.
CLOSURES = {"signature", "module calls", "weights", "old weights"}


def attempt(operation, ep, start, stop):
    """Whether the call succeeded, with the allocations from start to stop failing."""
    _testcapi.set_nomemory(start, stop)
    try:
        operation(ep)
    except MemoryError:
        return False
    except RuntimeError as error:
        if str(error) != "can't allocate lock":  # as CPython calls it
            raise
        return False
    finally:
        _testcapi.remove_mem_hooks()
    return True


def write(content):
    with open(PATH, "wb") as file:
        file.write(content)


def files():
    with open(PATH, "rb") as file:
        return sorted(os.listdir(FOLDER)), file.read()


def run(name, make, operation, window):
    write(BEFORE)
    operation(make())
    done = files()
    good = failures = start = 0
    while good < LAST:
        write(BEFORE)
        ep = make()
        text = ep and str(ep.graph)
        seen = ep and weakref.ref(ep.graph)
        if attempt(operation, ep, start, start + window):
            good += 1
            assert files() == done, f"{name}: allocation {start}: another file"
        else:
            good = 0
            failures += 1
            assert (ep and str(ep.graph)) == text, f"{name}: allocation {start} changed the graph"
            assert files() in [(["program.pt2"], BEFORE), done], f"{name}: allocation {start}: {files()[0]}"
            if failures % 20 == 0:
                operation(ep)
                assert files() == done, f"{name}: allocation {start}: another file when called again"
        del ep
        gc.collect()
        assert seen is None or seen() is None or name in CLOSURES, f"{name}: allocation {start} leaked the graph"
        start += 1
        assert start < 50000, f"{name}: no end"
    return failures


def main(names):
    for make, operation in OPERATIONS.values():
        operation(make())  # what is imported, and kept, at the first use
    gc.freeze()
    for name in names or OPERATIONS:
        make, operation = OPERATIONS[name]
        for window in WINDOWS:
            failures = run(name, make, operation, window)
            print(f"{name}: {failures}", flush=True)
    os.remove(PATH)
    os.rmdir(FOLDER)


if __name__ == "__main__":
    assert "torch" not in sys.modules
    main(sys.argv[1:])
