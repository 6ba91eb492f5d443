"""Python code of graphs: what `Graph.python_code` gives, and the hooks that change what it looks like.

The C core writes the lines. It is told here, before it begins, what objects, targets and types are written as; the
rules are those of torch.fx 2.13 (torch/fx/graph.py, ``CodeGen._gen_python_code``), written anew. Where torch's text
would not run, ours does: an object that has no text of its own is a global of the code.
"""

from __future__ import annotations

import enum
import inspect
import os
import pprint
import re
import sys
import types
import typing
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fastexport import _naming
from fastexport._dtypes import Device, DType, Layout, MemoryFormat
from fastexport._loaded import loaded
from fastexport._operators import Operator
from fastexport._symbols import SymBool, SymFloat, SymInt

if TYPE_CHECKING:
    from fastexport._core import Node
    from fastexport._graph import Graph
    from fastexport._treespec import TreeSpec

TransformCode = Callable[[list[str]], list[str]]
_Text = str | tuple[str | int, ...]  # what the core writes: pieces of text, and globals by their index

_CALL, _OPERATOR, _INPLACE, _GETATTR = range(4)  # fe_code_shape
_CHUNKS, _RECORD, _AS_TORCH, _PLAIN_HEAD = 1, 2, 4, 8
_NO_NODE = 2**32 - 1

_BINARY = {
    "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "truediv": "/", "div": "/", "mod": "%", "pow": "**",
    "lshift": "<<", "rshift": ">>", "and_": "&", "or_": "|", "xor": "^", "matmul": "@",
    "eq": "==", "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">=",
}  # fmt: skip
PATTERNS = {name: f"{{}} {sign} {{}}" for name, sign in _BINARY.items()} | {
    "pos": "+{}", "neg": "-{}", "invert": "~{}", "getitem": "{}[{}]",
}  # fmt: skip
_INPLACE_NAMES = ("add", "floordiv", "lshift", "mod", "mul", "matmul", "pow", "rshift", "sub", "truediv", "xor")
INPLACE_PATTERNS = {f"i{name}": f"{{}} {_BINARY[name]}= {{}}" for name in _INPLACE_NAMES} | {
    "iand": "{} &= {}", "ior": "{} |= {}", "setitem": "{}[{}] = {}",
}  # fmt: skip

_BLUE, _DIM, _RESET = "\033[34m", "\033[2m", "\033[0m"

# Classes of objects whose repr is an expression that code can hold.
_READABLE = (DType, Device, Layout, MemoryFormat, bytes, range, int, float, str, types.EllipsisType, set, frozenset)
_FUNCTIONS = (Operator, type, types.FunctionType, types.BuiltinFunctionType)
_TORCH_READABLE = ("dtype", "device", "layout", "memory_format")
_GENERICS = {list: typing.List, dict: typing.Dict, set: typing.Set, frozenset: typing.FrozenSet, tuple: typing.Tuple}  # noqa: UP006
_OF_TORCH = re.compile(r"torch(?:\.(?!_dynamo\.|_inductor\.)[^.]+)*").fullmatch
_SHOWN = 60  # characters of code in the repr
_COUNTER = re.compile(r"# COUNTER: (\d+)")


class PythonCode:
    """Code of a graph, and what is needed to run it.

    Attributes:
        src: the source text, which defines one function.
        globals: what the names in it stand for; needs torch, and is made when it is first asked for.
    """

    __slots__ = ("_globals", "_lines", "_prologue_start", "src")

    def __init__(
        self,
        src: str,
        globals: dict[str, Any] | Callable[[], dict[str, Any]],
        lines: dict[int, int | None] | Callable[[], dict[int, int | None]] | None,
        prologue_start: int = 0,
    ) -> None:
        self.src = src
        self._globals = globals
        self._lines = lines
        self._prologue_start = prologue_start

    @property
    def globals(self) -> dict[str, Any]:
        """What the names in the code stand for."""
        if not isinstance(self._globals, dict):
            self._globals = self._globals()
        return self._globals

    @property
    def _lineno_map(self) -> dict[int, int | None] | None:
        """The place of the node that each line belongs to; lines count from that which defines the function."""
        if self._lines is not None and not isinstance(self._lines, dict):
            self._lines = self._lines()
        return self._lines

    def __repr__(self) -> str:
        start, count = self.src.strip(), self.src.count("\n")
        return f"PythonCode({start[:_SHOWN]!r}{'...' if len(start) > _SHOWN else ''}, {count} lines)"


class CodeGen:
    """What the function around a graph's lines looks like; the base of code generators of your own.

    The methods are those of torch.fx's class, which may be used just as well.
    """

    def __init__(self) -> None:
        self._body_transformer: TransformCode | None = None
        self._func_name = "forward"

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False) -> str:
        """The lines that begin the function.

        Args:
            free_vars: the parameters, with types and defaults.
            maybe_return_annotation: ``" -> type"`` or nothing.
            expanded_def: give each parameter a line.
        """
        if not free_vars or free_vars[0] != "self":
            free_vars.insert(0, "self")
        if not expanded_def:
            return f"def {self._func_name}({', '.join(free_vars)}){maybe_return_annotation}:"
        lines = "".join(map(_parameter_line, free_vars))
        return f"def {self._func_name}(\n{lines}){maybe_return_annotation}:"

    def generate_output(
        self,
        output_args: Any,
        *,
        descs: Sequence[str] | None = None,
        repr_fn: Callable[[object], str] | None = None,
    ) -> str:
        """The statement that returns something.

        Args:
            output_args: what the output node has.
            descs: a comment for each item.
            repr_fn: writes a value.
        """
        return f"return {_returned(output_args, descs, repr_fn or repr)}"

    def process_inputs(self, *args: Any) -> Any:
        """What the graph gets of the function's arguments."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """What the function returns of the graph's result."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Globals that the function needs besides: pairs of name and value."""
        return []


class PyTreeInfo(NamedTuple):
    """How the arguments and results of a function are nested.

    Attributes:
        orig_args: the names of the function's parameters.
        in_spec: how arguments are nested.
        out_spec: how results are, or None.
    """

    orig_args: list[str]
    in_spec: TreeSpec | Any
    out_spec: TreeSpec | Any | None


class PyTreeCodeGen(CodeGen):
    """Code of a function that takes and returns nested containers, for a graph over their leaves."""

    def __init__(self, pytree_info: PyTreeInfo) -> None:
        super().__init__()
        self.pytree_info = pytree_info

    def process_inputs(self, *args: Any) -> Any:
        """The leaves of the arguments."""
        from fastexport._pytree import tree_leaves

        return [leaf for arg in args for leaf in tree_leaves(arg)]

    def process_outputs(self, outputs: Any) -> Any:
        """The results, nested."""
        from fastexport._pytree import tree_unflatten

        if self.pytree_info.out_spec is None:
            return outputs
        return tree_unflatten(outputs if isinstance(outputs, (list, tuple)) else [outputs], self.pytree_info.out_spec)

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False) -> str:
        """The lines that begin the function and take its arguments apart."""
        names = self.pytree_info.orig_args
        if names and names[0] == "self":
            free_vars.insert(0, "self")
        head = super().gen_fn_def(list(names), maybe_return_annotation, expanded_def=expanded_def)
        return head + self._bindings(free_vars, expanded_def) if free_vars else head

    def _bindings(self, free_vars: list[str], expanded_def: bool) -> str:
        annotated = [text for text in free_vars if ":" in text]
        lines = ""
        if annotated:
            lines = "\n    " + ("\n    ".join(annotated) if expanded_def else "; ".join(annotated) + "; \n")
        names = ", ".join(text.split(":")[0].split("#")[0] for text in free_vars)
        return f"{lines}\n    {names}, = fx_pytree.tree_flatten_spec({self._nested()}, self._in_spec)"

    def _nested(self) -> str:
        """The parameters, nested as the spec says."""
        names, spec = self.pytree_info.orig_args, self.pytree_info.in_spec
        children = list(getattr(spec, "children_specs", ()) or getattr(spec, "children", lambda: ())())
        if not (spec.type is tuple and len(children) == 2 and children[0].type is tuple and children[1].type is dict):
            return f"[{', '.join(names)}]"
        count = children[0].num_children
        by_name = ", ".join(f"'{key}':{name}" for key, name in zip(children[1].context, names[count:], strict=False))
        return f"([{', '.join(names[:count])}], {{{by_name}}})"

    def generate_output(
        self,
        output_args: Any,
        *,
        descs: Sequence[str] | None = None,
        repr_fn: Callable[[object], str] | None = None,
    ) -> str:
        """The statement that returns the results, nested."""
        text = _returned(output_args, descs, repr_fn or repr)
        if self.pytree_info.out_spec is None:
            return f"return {text}"
        return f"return pytree.tree_unflatten({text}, self._out_spec)"


def _parameter_line(text: str) -> str:
    if "#" not in text:
        return f"    {text},\n"
    parameter, comment = text.split("#", 1)
    return f"    {parameter.rstrip()},  # {comment.lstrip()}\n"


def _returned(value: Any, descs: Sequence[str] | None, write: Callable[[object], str]) -> str:
    if descs is None or not isinstance(value, (list, tuple)):
        return write(value)
    left, right = "()" if isinstance(value, tuple) else "[]"
    lines = "".join(f"    {write(item)},  # {desc}\n" for item, desc in zip(value, descs, strict=False))
    return f"{left}\n{lines}{right}"


# ---- what objects are written as


class _Describer:
    """Tells the core what objects, targets and types are written as, and keeps the globals that these need.

    Attributes:
        globals: by index, the name that a global would like to have, and whether it is a builtin of that name.
        values: what they are.
        extra: globals whose names are given.
        outer: the parameters of a function that takes the graph's inputs out of them.
    """

    def __init__(self, colour: str, outer: Sequence[str] = ()) -> None:
        self.outer = outer
        self.globals: list[tuple[str, bool]] = []
        self.values: list[Any] = []
        self.extra: dict[str, Any] = {}
        self._known: dict[Any, int] = {}
        self._colour = colour
        self._torch: Any = loaded("torch")

    def named(self, hint: str, value: Any) -> str | int:
        """What a function or class is written as: its path, if it is torch's, or a global."""
        if value is types.NoneType:
            return "NoneType"
        if self._torch is not None and value is self._torch.device:
            return "device"
        if _is_from_torch(value):
            return _qualified_name(value)
        return self._global(hint, value)

    def _global(self, hint: str, value: Any) -> int:
        key: Any = value
        try:
            known = self._known.get(key)
        except Exception:  # it can't be hashed, or compared
            key = _Identity(value)
            known = self._known.get(key)
        if known is None:
            known = self._known[key] = len(self.values)
            self.globals.append((hint, _BUILTINS.get(hint) is value))
            self.values.append(value)
        return known

    def value(self, obj: Any) -> _Text:
        """An argument."""
        kind = type(obj)  # what it says of itself may be untrue
        if issubclass(kind, enum.Enum):
            return self._member(obj)
        if issubclass(kind, _FUNCTIONS) or self._is_operator(obj):
            return self._function(obj)
        opaque = self._opaque(obj)
        if opaque is not None:
            return opaque
        if self._is_readable(obj):
            return f"{self._colour}{obj!r}{_RESET}" if self._colour else repr(obj)
        return (self._global(_hint_of(obj), obj),)

    def _is_operator(self, obj: Any) -> bool:
        ops = getattr(self._torch, "_ops", None)
        return ops is not None and isinstance(obj, (ops.OpOverload, ops.OpOverloadPacket, ops.HigherOrderOperator))

    def _function(self, obj: Any) -> _Text:
        text = self.named(_qualified_name(obj), obj)
        return text if isinstance(text, str) else (text,)

    def _member(self, obj: enum.Enum) -> _Text:
        kind = type(obj)
        name = obj.name
        pieces = (self.named(kind.__name__, kind),)
        if isinstance(name, str) and getattr(kind, name, None) is obj:
            return (*pieces, f".{name}")
        return (*pieces, f"({obj.value!r})")

    def _opaque(self, obj: Any) -> str | None:
        if not hasattr(type(obj), "__fx_repr__"):
            return None
        text, needed = obj.__fx_repr__()
        self.extra.update(needed)
        return str(text)

    def _is_readable(self, obj: Any) -> bool:
        kind = type(obj)
        return kind in _READABLE or (
            self._torch is not None and any(kind is getattr(self._torch, name, None) for name in _TORCH_READABLE)
        )

    def tuple_class(self, kind: Any) -> _Text:
        """What stands before the items of a tuple of a class: nothing unless that has names for them."""
        if not hasattr(kind, "_fields"):
            return ""
        text = self.named(_qualified_name(kind), kind)
        return (text,)

    def target(self, obj: Any) -> tuple[int, str, _Text]:
        """What a node calls: how it is written, the pattern of an operator, and the name of a function."""
        name = self._function(obj)
        if getattr(obj, "__module__", "") == "_operator":
            short = obj.__name__
            if short in PATTERNS:
                return _OPERATOR, PATTERNS[short], name
            if short in INPLACE_PATTERNS:
                return _INPLACE, INPLACE_PATTERNS[short], name
        return _GETATTR if obj is getattr else _CALL, "", name

    def annotation(self, kind: Any) -> tuple[str | int, ...]:
        """A type. Source: torch/fx/graph.py, ``type_repr`` in ``CodeGen._gen_python_code``."""
        if type(kind) is tuple and not kind:
            return ("()",)
        text = _naming.type_repr(kind)
        if isinstance(kind, types.UnionType) and "|" in text:
            return self._joined(typing.get_args(kind), "|")
        origin = getattr(kind, "__origin__", None)
        if not origin:
            return (self.named(text, kind),)
        if type(kind).__module__ == "typing":
            origin = _GENERICS.get(origin, origin)
        head = self.named(_naming.type_repr(origin), origin)
        args = kind.dims if type(kind).__name__ == "TensorType" else typing.get_args(kind)
        return (head, "[", *self._joined(args, ","), "]") if args else (head,)

    def _joined(self, kinds: Sequence[Any], between: str) -> tuple[str | int, ...]:
        pieces: list[str | int] = []
        for kind in kinds:
            pieces += (between, *self.annotation(kind)) if pieces else self.annotation(kind)
        return tuple(pieces)

    def is_name(self, text: str) -> bool:
        """Whether a text that is not ASCII names an attribute; the compiler reads names in their normal form."""
        return text.isidentifier() and unicodedata.normalize("NFKC", text) == text


class _Identity:
    """Stands for an object that is told apart by identity."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


_BUILTINS: dict[str, Any] = vars(__import__("builtins"))


def _is_from_torch(value: Any) -> bool:
    module = getattr(value, "__module__", None)
    if isinstance(value, Operator):
        return True
    if module is not None:
        return isinstance(module, str) and _OF_TORCH(module) is not None
    name = getattr(value, "__name__", None)
    if not isinstance(name, str) or name == "torch":
        return False
    return any(getattr(loaded(owner), name, None) is value for owner in ("torch", "torch.nn.functional"))


def _qualified_name(value: Any) -> str:
    if isinstance(value, Operator):
        return str(value)
    try:
        return _naming.qualified_name(value)
    except (AttributeError, RuntimeError, TypeError):  # a partial, an object with __call__, a lambda without source
        return _hint_of(value)


def _hint_of(value: Any) -> str:
    name = getattr(value, "__name__", None)
    if isinstance(value, (SymInt, SymFloat, SymBool)) or _is_symbolic(value):
        name = str(value)
    return name if isinstance(name, str) else type(value).__name__.lower()


def _is_symbolic(value: Any) -> bool:
    torch = loaded("torch")
    return torch is not None and isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


# ---- the whole


def codegen_of(graph: Graph) -> Any:
    """The code generator of a graph, which is made when there is none."""
    if graph.extras is None:
        graph.extras = {}
    codegen = graph.extras.get("_codegen")
    if codegen is None:
        codegen = graph.extras["_codegen"] = CodeGen()
    return codegen


def python_code(
    graph: Graph,
    root_module: str,
    *,
    verbose: bool = False,
    include_stride: bool = False,
    include_device: bool = False,
    colored: bool = False,
    expanded_def: bool = False,
    record_func: bool = False,
    additional_meta: list[str] | None = None,
    policy: str = "safe",
) -> PythonCode:
    """See `Graph.python_code`."""
    codegen = (graph.extras or {}).get("_codegen") or CodeGen()
    options = _Options(verbose, include_stride, include_device, colored, expanded_def, record_func, additional_meta)
    if policy == "torch" or _generates_by_itself(codegen):
        code = graph.to_fx().python_code(root_module, **options._asdict())
        return PythonCode(code.src, code.globals, code._lineno_map, code._prologue_start)
    return _generate(graph, codegen, root_module, options)


class _Options(NamedTuple):
    verbose: bool
    include_stride: bool
    include_device: bool
    colored: bool
    expanded_def: bool
    record_func: bool
    additional_meta: list[str] | None


def _generates_by_itself(codegen: Any) -> bool:
    """Whether a generator of torch.fx has a method of its own for the whole."""
    own = getattr(type(codegen), "_gen_python_code", None)
    return own is not None and own is not sys.modules["torch.fx.graph"].CodeGen._gen_python_code


def _generate(graph: Graph, codegen: Any, root: str, options: _Options) -> PythonCode:
    nodes: list[Node] = []
    if options.verbose or options.expanded_def or _shows("META"):
        graph = graph._copy_alone()  # of one moment: what is told of nodes is read step by step
        nodes = list(graph.nodes)
    describer = _Describer(_BLUE if options.colored else "", _outer_parameters(codegen))
    texts, values = _output(graph, codegen, options)
    comments = notes = annotations = meta = None
    if options.verbose:
        from fastexport._code_notes import annotations_of, notes_of

        annotations = annotations_of(graph, options)
        notes = notes_of(graph, nodes, options)
    if options.expanded_def:
        comments = [_comment(node) for node in nodes]
    if _shows("META"):
        meta = [_all_meta(node) for node in nodes]
    transform = codegen._body_transformer
    parameters, body, lines, names, wrapped, result_type, restored = graph._code(
        describer, root, texts, values, annotations, notes, meta, comments,
        (_CHUNKS if transform else 0) | (_RECORD if options.record_func else 0)
        | (_PLAIN_HEAD if _has_plain_head(codegen) else 0),
        (_BLUE, _DIM, _RESET) if options.colored else ("", "", ""),
    )  # fmt: skip
    prologue = _text_of(codegen.gen_fn_def, parameters, result_type, expanded_def=options.expanded_def)
    offset = prologue.count("\n") + 1
    line_map: Any
    if transform:
        body, line_map = _joined(_transformed(transform, body), offset)
    else:
        line_map = _LineMap(lines, offset)
    wraps = "\n".join(f'torch.fx._symbolic_trace.wrap("{name}")' for name in dict.fromkeys(wrapped))
    found = _Globals({name: describer.values[index] for index, name in names}, describer.extra, codegen, restored)
    return PythonCode(f"\n{wraps}\n\n{prologue}\n{body}", found, line_map, wraps.count("\n") + 4)


def _has_plain_head(codegen: Any) -> bool:
    """Whether a generator writes the parameters of the graph as those of the function."""
    fx_graph = loaded("torch.fx.graph")
    known = (CodeGen.gen_fn_def, fx_graph.CodeGen.gen_fn_def if fx_graph is not None else None)
    return getattr(type(codegen), "gen_fn_def", None) in known


def _outer_parameters(codegen: Any) -> list[str]:
    """The parameters of a function that takes nested arguments apart.

    Raises:
        ValueError: one is called like the module that does it.
    """
    names = getattr(getattr(codegen, "pytree_info", None), "orig_args", ())
    if "fx_pytree" in names:
        raise ValueError("a parameter is called 'fx_pytree', like the module that takes the arguments apart; rename it")
    return [name for name in names if isinstance(name, str)]


def _shows(what: str) -> bool:
    return os.environ.get(f"FX_GRAPH_SHOW_{what}", "0") == "1"


def _call(method: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call a hook with those of the options that it knows; older ones know none."""
    known = inspect.signature(method).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    return method(*args, **{name: value for name, value in options.items() if takes_all or name in known})


def _text_of(method: Callable[..., Any], *args: Any, **options: Any) -> str:
    """What a hook writes."""
    text = _call(method, *args, **options)
    if not isinstance(text, str):
        raise TypeError(f"{_hook_name(method)}() must return a str, not {text!r} of type {type(text).__name__}")
    return text


def _transformed(transform: TransformCode, pieces: list[str]) -> list[str]:
    """What a transformer of code makes of the pieces."""
    made = transform(pieces)
    texts = list(made) if isinstance(made, Iterable) else [made]
    if all(isinstance(piece, str) for piece in texts):
        return texts
    raise TypeError(f"a transformer of code ({_hook_name(transform)}) must return a list of str, not {made!r}")


def _hook_name(hook: Callable[..., Any]) -> str:
    return getattr(hook, "__qualname__", None) or type(hook).__name__


def _output(graph: Graph, codegen: Any, options: _Options) -> tuple[tuple[str, ...], tuple[Any, ...] | None]:
    """What stands around the values that are returned, and these; None for the one that the output node has."""
    if type(codegen) is CodeGen and not options.expanded_def:
        return ("return ", ""), None
    output = next(iter(graph.find_nodes(op="output")), None)
    if output is None or not output.args:
        return ("return ", ""), None
    descs = output.meta.get("desc") if options.expanded_def else None
    values: list[Any] = []

    def mark(value: object) -> str:
        values.append(value)
        return f"\0{len(values) - 1}\0"

    text = _text_of(codegen.generate_output, output.args[0], descs=descs, repr_fn=mark)
    pieces = text.split("\0")
    return tuple(pieces[::2]), tuple(values[int(place)] for place in pieces[1::2])


def _comment(node: Node) -> str | None:
    desc = node.meta.get("desc") if node.op == "placeholder" else None
    return None if desc is None else f"  # {desc}"


def _all_meta(node: Node) -> str | None:
    if not node.meta:
        return None
    lines = [f"{key}: {pprint.pformat(str(value), width=80, compact=True)}\n" for key, value in node.meta.items()]
    return '"""\n' + "".join(lines) + '"""\n'


def _joined(chunks: list[str], offset: int) -> tuple[str, dict[int, int | None]]:
    """The pieces that a transformer gave, indented, and by line the place of its node."""
    lines: list[str] = []
    places: dict[int, int | None] = {}
    place = None
    for line in "".join(chunks).split("\n"):
        counter = _COUNTER.fullmatch(line)
        if counter is not None:
            place = int(counter[1])
        elif line or lines:
            places[len(lines) + offset] = place
            lines.append(line)
    return "\n".join("    " + line for line in lines), places


class _LineMap:
    """By line of a code the place of its node, from what the core noted."""

    def __init__(self, lines: bytes, offset: int) -> None:
        self._lines, self._offset = lines, offset

    def __call__(self) -> dict[int, int | None]:
        places = array("I", self._lines)
        return {at: None if place == _NO_NODE else place for at, place in enumerate(places, self._offset)}


class _Globals:
    """The globals of a code: those that each code has, then its own."""

    def __init__(
        self, own: dict[str, Any], extra: dict[str, Any], codegen: Any, restored: Sequence[tuple[str, str]] = ()
    ) -> None:
        self._own, self._extra, self._codegen, self._restored = own, extra, codegen, restored

    def __call__(self) -> dict[str, Any]:
        from fastexport import _torch

        found = {**_torch.custom_builtins(), **self._own, **self._extra}
        found.update((name, value) for name, value in self._codegen.additional_globals() if not _is_from_torch(value))
        found.update((other, found[name] if name in found else _BUILTINS[name]) for name, other in self._restored)
        return found


def torch_code(graph: Graph, codegen: Any, root_module: str) -> tuple[str, dict[str, Any], dict[int, int | None], int]:
    """What makes torch's PythonCode of a graph, all that is in it as torch has it.

    Args:
        graph: has torch's functions and constants alone.
        codegen: of torch, without a transformer.
        root_module: the name that modules and attributes are looked up in.
    """
    describer = _Describer("")
    texts = tuple(codegen.generate_output(None, repr_fn=lambda _: "\0").split("\0"))
    none = None
    parameters, body, lines, names, _, _, _ = graph._code(
        describer, root_module, texts, none, none, none, none, none, _AS_TORCH, ("", "", "")
    )
    prologue = codegen.gen_fn_def(parameters, "")
    found = _Globals({name: describer.values[index] for index, name in names}, describer.extra, codegen)
    return f"\n\n\n{prologue}\n{body}", found(), _LineMap(lines, prologue.count("\n") + 1)(), 4


def on_generate_code(graph: Graph, make_transformer: Callable[[TransformCode | None], TransformCode]) -> Restore:
    """See `Graph.on_generate_code`."""
    codegen = codegen_of(graph)
    restore = Restore(codegen)
    codegen._body_transformer = make_transformer(codegen._body_transformer)
    return restore


class Restore:
    """Gives a code generator its transformer back when a ``with`` block ends."""

    def __init__(self, codegen: Any) -> None:
        self._codegen, self._transformer = codegen, codegen._body_transformer

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc_info: object) -> None:
        self._codegen._body_transformer = self._transformer
