"""Made-up .pt2 files of any size, written without torch, which torch.export.load opens too.

The program is a chain of blocks, each with one parameter:

    w = slice(p_i, 0, 0, 8);  a = x * w;  b = a + x;  c = gelu(b);  d = view(c, [8, 4]);  e = view(d, [4, 8])
    f, g = chunk(e, 2, -1);  x = cat([g, f], -1)

Every node has metadata as torch writes it after run_decompositions: stack trace, module stack, torch_fn and from_node.
The archive is laid out as torch's: stored, data at multiples of 64.
"""

import json
import struct
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

WIDTH, HEIGHT = 8, 4
NODES_A_BLOCK = 11  # in the graph: with the placeholder of the parameter, and two getitems
PIECE = 1 << 20

TRACE = (
    'File "/models/chain/network.py", line 88, in forward\n    x = self.body(x)\n'
    '  File "/models/chain/network.py", line 61, in forward\n    x = block(x)\n'
    '  File "/models/chain/block.py", line 34, in forward\n    x = self.mix(self.act(x * self.weight[:8] + x))'
)


def write(path: Path, nodes: int, weight_bytes: int = 0) -> int:
    """Write a program of about so many nodes.

    Args:
        path: the file.
        nodes: of the graph, all told.
        weight_bytes: of all parameters together; at least 32 bytes each are written.

    Returns:
        The exact number of nodes.
    """
    blocks, elements = _sizes(nodes, weight_bytes)
    record = bytes(range(1, 33)) * (elements // 8) + bytes(elements % 8 * 4)
    _write(path, blocks, elements, _model(blocks, elements), record)
    return 2 + blocks * NODES_A_BLOCK


def write_many(folder: Path, count: int, nodes: int) -> list[Path]:
    """Write programs of one shape, of which each has names of classes, functions and weights of its own.

    Args:
        folder: where to.
        count: of the files.
        nodes: as of `write`.
    """
    blocks, elements = _sizes(nodes, 0)
    text = "".join(_model(blocks, elements))
    paths = [folder / f"many_{i:04}.pt2" for i in range(count)]
    for i, path in enumerate(paths):
        record = struct.pack(f"<{elements}f", *(i + 1 / (element + 1) for element in range(elements)))
        _write(path, blocks, elements, [text.replace("chain.", f"chain{i}.")], record)
    return paths


def _sizes(nodes: int, weight_bytes: int) -> tuple[int, int]:
    """How many blocks there are, and how many elements the weight of each has."""
    blocks = max(1, (nodes - 2) // NODES_A_BLOCK)
    return blocks, max(WIDTH, weight_bytes // blocks // 4)


def _write(path: Path, blocks: int, elements: int, model: Iterable[str], record: bytes) -> None:
    config = json.dumps({"config": {f"body.{i}.weight": _payload(i, elements) for i in range(blocks)}})
    root = path.stem
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for i in range(blocks):
            _store(archive, f"{root}/data/weights/weight_{i}", record)
        _store(archive, f"{root}/data/weights/model_weights_config.json", config.encode())
        _store(archive, f"{root}/data/constants/model_constants_config.json", b'{"config": {}}')
        _store_pieces(archive, f"{root}/models/model.json", model)
        _store(archive, f"{root}/data/sample_inputs/model.pt", b"")
        for name, text in (("archive_format", b"pt2"), ("archive_version", b"0"), (".data/version", b"6\n")):
            _store(archive, f"{root}/{name}", text)
        _store(archive, f"{root}/byteorder", b"little")


# ---- the archive ---------------------------------------------------------------------------------


def _entry(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    """An entry whose data begins at a multiple of 64, by an extra field such as torch writes."""
    assert archive.fp is not None
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    pad = -(archive.fp.tell() + 30 + len(name.encode()) + 4) % 64
    info.extra = b"FB" + pad.to_bytes(2, "little") + b"Z" * pad
    return info


def _store(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(_entry(archive, name), data)


def _store_pieces(archive: zipfile.ZipFile, name: str, texts: Iterable[str]) -> None:
    """Many small texts as one entry, without holding all of them."""
    with archive.open(_entry(archive, name), "w") as entry:
        held: list[str] = []
        length = 0
        for text in texts:
            held.append(text)
            length += len(text)
            if length > PIECE:
                entry.write("".join(held).encode())
                held, length = [], 0
        entry.write("".join(held).encode())


def _payload(i: int, elements: int) -> dict[str, Any]:
    meta = _tensor((elements,), requires_grad=True)
    return {"path_name": f"weight_{i}", "is_param": True, "use_pickle": False, "tensor_meta": meta}


# ---- model.json ----------------------------------------------------------------------------------


def _tensor(
    shape: tuple[int, ...], requires_grad: bool = False, strides: tuple[int, ...] | None = None
) -> dict[str, Any]:
    if strides is None:
        strides = (shape[-1], 1)[-len(shape) :]
    return {
        "dtype": 7,
        "sizes": [{"as_int": size} for size in shape],
        "requires_grad": requires_grad,
        "device": {"type": "cpu", "index": None},
        "strides": [{"as_int": stride} for stride in strides],
        "storage_offset": {"as_int": 0},
        "layout": 7,
    }


def _named(name: str) -> dict[str, Any]:
    return {"as_tensor": {"name": name}}


def _numbered(base: str, number: int) -> str:
    return f"{base}_{number}" if number else base


def _node(block: int, target: str, name: str, outputs: list[str], **inputs: Any) -> dict[str, Any]:
    """One node; inputs by the names of the operator's schema, as arguments of the file."""
    short = target.split(".")[0]
    source = {
        "name": name,
        "target": f"aten.{target}",
        "graph_id": 140135966532560,
        "pass_name": "",
        "action": "create",
    }
    before = source | {"pass_name": "ExportedProgram.module()", "from_node": []}
    history = [source | {"pass_name": "Interpreter_PropagateUnbackedSymInts", "from_node": [before]}]
    single = len(outputs) == 1
    return {
        "target": f"torch.ops.aten.{target}",
        "inputs": [{"name": key, "arg": value, "kind": 1} for key, value in inputs.items()],
        "outputs": [_named(outputs[0])] if single else [{"as_tensors": [{"name": output} for output in outputs]}],
        "metadata": {
            "stack_trace": TRACE,
            "nn_module_stack": "L__self__,,chain.network.Network;"
            "L__self__body,body,torch.nn.modules.container.Sequential;"
            f"L__self__body.{block},body.{block},chain.block.Block",
            "torch_fn": f"{short}_{block + 1};method_descriptor.{short}",
            "from_node": json.dumps(history),
        },
        "is_hop_single_tensor_return": None,
        "name": name,
    }


# A value's name with the number of its block, and its shape and strides; the two views take turns.
_VALUES = {
    "slice": ((WIDTH,), (1,)),
    "mul": ((HEIGHT, WIDTH), (WIDTH, 1)),
    "add": ((HEIGHT, WIDTH), (WIDTH, 1)),
    "gelu": ((HEIGHT, WIDTH), (WIDTH, 1)),
    "cat": ((HEIGHT, WIDTH), (WIDTH, 1)),
}


def _block(i: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The nodes of a block, and the tensors that they give."""
    name = {base: f"slice_{i + 1}" if base == "slice" else _numbered(base, i) for base in _VALUES}
    before = _numbered("cat", i - 1) if i else "x"
    views = [_numbered("view", 2 * i), _numbered("view", 2 * i + 1)]
    parts = [_numbered("getitem", 2 * i), _numbered("getitem", 2 * i + 1)]
    chunk = _numbered("chunk", i)

    def ints(*numbers: int) -> dict[str, Any]:
        return {"as_ints": list(numbers)}

    def whole(number: int) -> dict[str, Any]:
        return {"as_int": number}

    nodes = [
        _node(
            i,
            "slice.Tensor",
            name["slice"],
            [name["slice"]],
            self=_named(f"p_body_{i}_weight"),
            dim=whole(0),
            start=whole(0),
            end=whole(WIDTH),
        ),
        _node(i, "mul.Tensor", name["mul"], [name["mul"]], self=_named(before), other=_named(name["slice"])),
        _node(i, "add.Tensor", name["add"], [name["add"]], self=_named(name["mul"]), other=_named(before)),
        _node(i, "gelu.default", name["gelu"], [name["gelu"]], self=_named(name["add"])),
        _node(i, "view.default", views[0], [views[0]], self=_named(name["gelu"]), size=ints(WIDTH, HEIGHT)),
        _node(i, "view.default", views[1], [views[1]], self=_named(views[0]), size=ints(HEIGHT, WIDTH)),
        _node(i, "chunk.default", chunk, parts, self=_named(views[1]), chunks=whole(2), dim=whole(-1)),
        _node(
            i,
            "cat.default",
            name["cat"],
            [name["cat"]],
            tensors={"as_tensors": [{"name": part} for part in reversed(parts)]},
            dim=whole(-1),
        ),
    ]
    values = {name[base]: _tensor(shape, True, strides) for base, (shape, strides) in _VALUES.items()}
    values |= {views[0]: _tensor((WIDTH, HEIGHT), True), views[1]: _tensor((HEIGHT, WIDTH), True)}
    values |= {part: _tensor((HEIGHT, WIDTH // 2), True, (WIDTH, 1)) for part in parts}
    return nodes, values


def _joined(items: Iterable[str]) -> Iterator[str]:
    for i, item in enumerate(items):
        if i:
            yield ", "
        yield item


def _model(blocks: int, elements: int) -> Iterator[str]:
    """The text of model.json, as json.dumps would write it, in pieces."""
    dumps = json.dumps
    last = _numbered("cat", blocks - 1)
    leaf: dict[str, Any] = {"type": None, "context": None, "children_spec": []}
    args = {"type": "builtins.tuple", "context": "null", "children_spec": [leaf]}
    kwargs = {"type": "builtins.dict", "context": "[]", "children_spec": []}
    call = {
        "inputs": [_named("x")],
        "outputs": [_named(last)],
        "in_spec": dumps([1, {"type": "builtins.tuple", "context": "null", "children_spec": [args, kwargs]}]),
        "out_spec": dumps([1, leaf]),
        "forward_arg_names": ["x"],
    }
    weights = [f"p_body_{i}_weight" for i in range(blocks)]
    inputs = [_named(name) for name in [*weights, "x"]]
    yield f'{{"graph_module": {{"graph": {{"inputs": {dumps(inputs)}, "outputs": {dumps([_named(last)])}, "nodes": ['
    yield from _joined(dumps(node) for i in range(blocks) for node in _block(i)[0])
    yield '], "tensor_values": {'
    weight, x = dumps(_tensor((elements,), True)), dumps(_tensor((HEIGHT, WIDTH)))
    yield from (f'"{name}": {weight}, ' for name in weights)
    yield f'"x": {x}, '
    yield from _joined(dumps(_block(i)[1])[1:-1] for i in range(blocks))
    yield '}, "sym_int_values": {}, "sym_bool_values": {}, "is_single_tensor_return": false, '
    yield '"custom_obj_values": {}, "sym_float_values": {}}, '
    specs: list[dict[str, Any]] = [
        {"parameter": {"arg": {"name": name}, "parameter_name": f"body.{i}.weight"}} for i, name in enumerate(weights)
    ]
    specs.append({"user_input": {"arg": _named("x")}})
    outputs = [{"user_output": {"arg": _named(last)}}]
    yield f'"signature": {dumps({"input_specs": specs, "output_specs": outputs})}, '
    modules = ["body", *(f"body.{i}" for i in range(blocks))]
    entries = [{"fqn": "", "signature": call}, *({"fqn": fqn, "signature": None} for fqn in modules)]
    yield f'"module_call_graph": {dumps(entries)}, "metadata": {{}}, "treespec_namedtuple_fields": {{}}}}, '
    yield '"opset_version": {"aten": 10}, "range_constraints": {}, "schema_version": {"major": 8, "minor": 20}, '
    yield '"verifiers": ["TRAINING"], "torch_version": "2.13.0+cpu", "guards_code": []}'
