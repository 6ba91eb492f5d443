"""What is private to torch is used by the modules that are bridges to it, and by no others."""

import ast
from pathlib import Path

import fastexport

PACKAGE = Path(fastexport.__file__).parent
BRIDGES = {
    "_torch.py": "graphs of torch.fx",
    "_torch_export.py": "programs of torch.export",
    "_torch_serializer.py": "files of torch.export, written",
    "_torch_reader.py": "files of torch.export, read",
    "_torch_verifier.py": "torch's verifier",
    "_torch_tracing.py": "torch's own tracer",
    "_torch_symints.py": "symbolic sizes, evaluated",
    "_torch_values.py": "facts of fake tensors and symbolic numbers",
    "_facts.py": "what torch says of operators",
}
# Of these a few names are in use everywhere.
CLASSES = {"torch._ops", "torch.utils._pytree"}
PARTS = {  # of modules that are none
    "_tree_nodes.py": {"pytree._register_namedtuple"},
    "_treespec.py": {"pytree._ensure_python_treespec_instance"},
    "_noops.py": {"module._forward_hooks", "module._forward_pre_hooks"},
    "_propagation.py": {"torch._subclasses.fake_tensor.FakeTensorMode"},
    "_tracer.py": {
        "module._buffers",
        "root._get_name",
        "self._autowrap_function_ids",  # of torch.fx.Tracer, of which ours is one
        "self._autowrap_search",
        "torch._assert",
    },
}
FOLDERS = {"acceleration": "torch's own functions, replaced", "pt2e": "quantization of torchao"}
STANDARD = {"_replace", "_make", "_asdict", "_fields", "_name_", "_getframe", "_exit"}  # of Python itself


def is_private(name):
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def modules():
    for path in sorted(PACKAGE.rglob("*.py*")):
        if path.suffix in (".py", ".pyi"):
            yield path.relative_to(PACKAGE), ast.parse(path.read_text())


def defined(tree):
    """Names that a module, its classes and their objects have."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                yield node.attr
        elif isinstance(node, ast.Call) and len(node.args) == 3 and isinstance(node.args[1], ast.Constant):
            yield node.args[1].value  # object.__setattr__(self, "name", value)


def private_uses(tree, known):
    """(line, text) of what a module uses of torch's private things, as far as the text shows."""
    torchs = {"torch"}
    for node in ast.walk(tree):
        names, module = (), ""
        if isinstance(node, ast.Import):
            names = [(alias.name, alias.asname or alias.name.partition(".")[0]) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            module = node.module
            names = [(f"{module}.{alias.name}", alias.asname or alias.name) for alias in node.names]
        for path, name in names:
            if path.partition(".")[0] in ("torch", "torchao"):
                torchs.add(name)
                if any(map(is_private, path.split("."))):
                    yield node.lineno, path
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not is_private(node.attr) or node.attr in STANDARD:
            continue
        root = node.value
        while isinstance(root, ast.Attribute):
            root = root.value
        if (isinstance(root, ast.Name) and root.id in torchs) or node.attr not in known:
            yield node.lineno, ast.unparse(node)


def test_bridges():
    trees = dict(modules())
    known = {name for tree in trees.values() for name in defined(tree)}
    found = [
        f"{path}:{line}: {text}"
        for path, tree in trees.items()
        if path.name not in BRIDGES and path.parts[0] not in FOLDERS
        for line, text in private_uses(tree, known)
        if text not in CLASSES | PARTS.get(path.name, set())
    ]
    assert found == []


def test_each_bridge_is_one():
    trees = dict(modules())
    known = {name for tree in trees.values() for name in defined(tree)}
    for path in map(Path, BRIDGES):
        assert any(private_uses(trees[path], known)), path


def test_that_it_finds_them():
    source = """
import torch._ops
from torch.fx import graph as g, _pytree
program._guards_code
self._own
torch._C.thing()
g._Namespace
"""
    found = [text for _, text in private_uses(ast.parse(source), {"_own"})]
    want = ["torch._ops", "torch.fx._pytree", "program._guards_code", "torch._C", "g._Namespace"]
    assert sorted(found) == sorted(want)
