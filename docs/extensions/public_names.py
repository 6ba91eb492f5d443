"""The reference of the API: every public name has its place in a group, and links lead where they should.

A name is public when `fastexport.__all__` has it. The build fails where a group has another, or none has one.
"""

from __future__ import annotations

import inspect
import re
import sys

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.util.nodes import find_pending_xref_condition

import fastexport

# The pages, in order: title, what it has, names.
GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Graphs": (
        "The graph in C and what goes with it.",
        ("Graph", "Node", "GraphModule", "from_fx", "map_arg", "map_aggregate", "deepcopy", "dumps", "loads"),
    ),
    "Programs": (
        "Programs of torch.export, from files and from torch.",
        (
            "ExportedProgram",
            "load",
            "save",
            "is_pt2",
            "LIMITS",
            "from_export",
            "export",
            "export_for_inference",
            "export_for_training",
            "Verifier",
        ),
    ),
    "Passes": (
        "What changes or checks a graph as a whole; each is also a method of Graph.",
        (
            "eliminate_dead_code",
            "eliminate_getitems",
            "eliminate_common_subexpressions",
            "remove_noops",
            "fold_constants",
            "sort_topologically",
            "trim_interfaces",
            "propagate_shapes",
            "refresh_fake_tensors",
            "lint",
            "run_passes",
            "apply_fx_pass",
            "PassResult",
            "PassLog",
        ),
    ),
    "Patterns and parts": (
        "Finding and replacing patterns, cutting graphs into parts, and edits in bulk.",
        (
            "replace_pattern",
            "replace_pattern_with_filters",
            "Replacements",
            "ReplacedPatterns",
            "SubgraphMatcher",
            "SubgraphMatcherWithNameNodeMap",
            "Match",
            "MatchReport",
            "split",
            "Split",
            "outline",
            "fuse",
            "inline",
            "get_source_partitions",
            "find_sequential_partitions",
            "check_subgraphs_connected",
            "SourcePartition",
            "erase_nodes",
            "insert_nodes",
            "Insertion",
            "replace_all_uses",
        ),
    ),
    "Tracing, code and running": (
        "What records graphs, writes their code and runs them.",
        (
            "symbolic_trace",
            "Tracer",
            "Proxy",
            "Attribute",
            "ParameterProxy",
            "GraphAppendingTracer",
            "ProxyableClassMeta",
            "PH",
            "wrap",
            "Interpreter",
            "Transformer",
            "CodeGen",
            "PyTreeCodeGen",
            "PyTreeInfo",
            "PythonCode",
        ),
    ),
    "Faster pipelines": ("Making torch's own functions faster.", ("accelerate", "install", "uninstall")),
    "Looking at programs": (
        "Differences, pictures, tables and notebooks.",
        (
            "diff",
            "GraphDiff",
            "NodesDiff",
            "NodeChange",
            "draw",
            "report",
            "View",
            "set_options",
            "stats",
            "Stats",
            "StatsTable",
            "summary",
            "Summary",
            "Table",
        ),
    ),
    "Weights": (
        "Weights without torch.",
        (
            "Tensor",
            "TensorSlice",
            "open_weights",
            "WeightsFile",
            "weight_statistics",
            "WeightStatistics",
            "to_safetensors",
            "from_safetensors",
        ),
    ),
    "Meta and values": (
        "What a node's meta holds: tensors by their metadata, symbolic sizes, where nodes come from.",
        (
            "TensorMeta",
            "DType",
            "Device",
            "Layout",
            "MemoryFormat",
            "SymInt",
            "SymFloat",
            "SymBool",
            "Expr",
            "ValueRange",
            "evaluate_shapes",
            "Operator",
            "NodeSource",
            "VALUE_META",
        ),
    ),
    "Signatures": (
        "What the inputs and outputs of a program stand for.",
        (
            "ExportGraphSignature",
            "InputSpec",
            "InputKind",
            "OutputSpec",
            "OutputKind",
            "TensorArgument",
            "SymIntArgument",
            "SymFloatArgument",
            "SymBoolArgument",
            "CustomObjArgument",
            "TokenArgument",
            "ConstantArgument",
            "ModuleCallEntry",
            "ModuleCallSignature",
        ),
    ),
    "Pytrees": (
        "Nested containers, as torch.utils._pytree has them, without torch.",
        (
            "TreeSpec",
            "tree_flatten",
            "tree_flatten_with_path",
            "tree_unflatten",
            "tree_leaves",
            "tree_map",
            "tree_structure",
            "tree_is_leaf",
            "keystr",
            "match_inputs",
            "register_dataclass",
            "register_namedtuple",
            "register_pytree_node",
            "EnumKey",
            "UnknownType",
        ),
    ),
    "Exceptions": (
        "What is raised, and what it holds. When: see [Errors](../../errors.md).",
        (
            "FastExportError",
            "FormatError",
            "FileError",
            "VerifyError",
            "LintError",
            "PassError",
            "TraceError",
            "AccelerationError",
            "Fault",
            "Faults",
            "LintFault",
        ),
    ),
}

# Modules whose names are documented together, on a page each.
MODULES = {
    "fastexport.batch": "Many files",
    "fastexport.acceleration": "Acceleration",
    "fastexport.pt2e": "Quantization tools",
    "fastexport.model_explorer": "Model Explorer",
    "fastexport.pytest_plugin": "pytest plugin",
}


# Public names that are data, which have no docstring of their own.
DATA = {
    "LIMITS": "What `load` allows a file to ask for, by name: entries, bytes, ratio of compression, depth. "
    "``load(..., limits={...})`` takes others in the place of some.",
    "PH": "In ``concrete_args`` of `symbolic_trace`: this part of an argument is an input. As torch.fx's.",
    "VALUE_META": "The keys of meta that tell of a node's value, and so are not handed on to another node.",
}


def ungrouped() -> list[str]:
    """Public names that are in no group, or groups' names that are not public."""
    modules = {name.rpartition(".")[2] for name in MODULES}
    grouped = [name for _, names in GROUPS.values() for name in names]
    return sorted({*fastexport.__all__} ^ {*grouped, *(modules & {*fastexport.__all__})})


def directive(name: str) -> str:
    """How autodoc is asked for a public name."""
    value = getattr(fastexport, name)
    if name in DATA:
        return f".. py:data:: fastexport.{name}\n\n   {DATA[name]}\n"
    if inspect.isclass(value):
        kind = "autoexception" if issubclass(value, BaseException) else "autoclass"
        members = "   :members:\n   :inherited-members: object,dict,list,tuple,str,int,BaseException\n"
        return f".. {kind}:: fastexport.{name}\n{members}"
    return f".. autofunction:: fastexport.{name}\n"


def page_name(title: str) -> str:
    return title.lower().replace(",", "").replace(" ", "_")


def pages() -> dict[str, str]:
    """The pages of the reference: file name and text.

    Raises:
        ExtensionError: a public name is in no group, or a name in a group is not public.
    """
    if odd := ungrouped():
        raise ExtensionError(f"docs/extensions/public_names.py: put these into a group, or take them out: {odd}")
    made = {}
    for title, (text, names) in GROUPS.items():
        blocks = "\n".join(directive(name) for name in names)
        made[f"{page_name(title)}.md"] = f"# {title}\n\n{text}\n\n```{{eval-rst}}\n{blocks}```\n"
    for module, title in MODULES.items():
        block = f".. automodule:: {module}\n   :members:\n"
        made[f"{page_name(title)}_module.md"] = f"# {title}: `{module}`\n\n```{{eval-rst}}\n{block}```\n"
    entries = "\n".join(name.removesuffix(".md") for name in made)
    index = (
        "# API reference\n\nEvery public name of `fastexport`, from its docstring. Names that exist in torch.fx or "
        "torch.export mean what they mean there; [the parity table](../../parity.md) lists what is different.\n\n"
        f"```{{toctree}}\n:maxdepth: 2\n\n{entries}\n```\n"
    )
    return made | {"index.md": index}


def name_role(
    role: str, rawtext: str, text: str, lineno: int, inliner: object, options: object = None, content: object = ()
) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    """What a docstring says between single backticks: code, and a link where it is a public name."""
    shown = nodes.literal(rawtext, text)
    name = text.removesuffix("()").removeprefix("fastexport.")
    if name not in fastexport.__all__:
        return [shown], []
    target = {"refdomain": "py", "reftype": "obj", "reftarget": f"fastexport.{name}", "refexplicit": True}
    return [pending_xref(rawtext, shown, **target)], []


def plain_text(node: pending_xref) -> nodes.Node:
    """What a link would show."""
    forms = (find_pending_xref_condition(node, condition) for condition in ("resolved", "*"))
    shown = next((form for form in forms if form is not None and len(form)), node)
    return shown[0].deepcopy()


def is_public(target: str) -> bool:
    """Whether a name is one that the reference must have: not Python's, torch's or private."""
    parts = target.split(".")
    if parts[-1] in fastexport.__all__ and (len(parts) == 1 or parts[0] == "fastexport"):
        return True
    if parts[0] != "fastexport" or any(part.startswith("_") for part in parts):
        return False
    module = sys.modules.get(".".join(parts[:-1]))
    return module is None or parts[-1] in getattr(module, "__all__", ())


def unlink(app: Sphinx, doctree: nodes.document) -> None:
    """Names that are not ours become text before Sphinx looks for them: `type` is Python's, no attribute of ours."""
    for node in list(doctree.findall(pending_xref)):
        if node.get("refdomain") == "py" and len(node) and not is_public(node["reftarget"]):
            node.replace_self(plain_text(node))


def link(app: Sphinx, env: BuildEnvironment, node: pending_xref, contnode: nodes.Node) -> nodes.Node | None:
    """Types are known by where they are defined; they are documented as `fastexport.NAME`."""
    name = node.get("reftarget", "").rpartition(".")[2]
    if node.get("refdomain") != "py" or name not in fastexport.__all__:
        return None
    domain = env.get_domain("py")
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", f"fastexport.{name}", node, contnode)


def link_notebooks(app: Sphinx, name: str, text: list[str]) -> None:
    """Links to notebooks lead to the files, for those who read the sources, and here to the pages made of them."""
    text[0] = re.sub(r"\[([^\]]+)\]\((?:\.\./)+examples/(\w+)\.ipynb\)", r"{doc}`\1 </generated/examples/\2>`", text[0])


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_role("name", name_role)
    app.connect("source-read", link_notebooks)
    app.connect("doctree-read", unlink)
    app.connect("missing-reference", link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
