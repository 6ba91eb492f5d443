"""GraphModule: a graph with what its nodes refer to, called like the module it was traced from."""

from __future__ import annotations

import copy
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from fastexport import _core
from fastexport._display import Displayed
from fastexport._graph import Graph
from fastexport._loaded import loaded
from fastexport._module_tree import (
    ATTRIBUTE_OPS,
    Holder,
    attribute,
    children_of,
    holder_in,
    inner_first,
    install,
    is_module,
    is_submodule,
    is_tensor,
    modules_below,
    put,
    tensors_below,
    weight,
)
from fastexport._running import compiled, explain
from fastexport._tree import all_graphs

if TYPE_CHECKING:
    from fastexport._codegen import PythonCode

_NOTHING: Mapping[str, Any] = MappingProxyType({})  # what a subgraph takes from that root says nothing of


class GraphModule(Holder, Displayed):
    """A graph with the modules, parameters, buffers and constants that its nodes refer to.

    It is called like a module: code is generated and compiled at the first call, once, and run by torch. It is a light
    holder and not a torch.nn.Module, so that it works, but for running, without torch: attributes, parameters, buffers
    and submodules are reached under the names they have there. `to_fx` gives the torch.fx.GraphModule, for hooks, moves
    between devices, and whatever else a torch.nn.Module offers.

    Args:
        root: a torch.nn.Module, another GraphModule, or a mapping from the targets of nodes to their values. What nodes
            name is taken over, not copied.
        graph: the `Graph`; this becomes its owning module.
        class_name: how it is called in printed code.

    Attributes:
        meta: a dict for notes about the module.
        training: what `train` and `eval` set.

    Raises:
        TypeError: graph is no fastexport Graph, or root none of the above.
        RuntimeError: a node names what a mapping lacks.
        AttributeError: a node names what a module lacks.

    Example:
        >>> import operator, fastexport
        >>> g = fastexport.Graph()
        >>> x, weight = g.placeholder("x"), g.get_attr("scale")
        >>> out = g.output(g.call_function(operator.mul, (x, weight)))
        >>> module = fastexport.GraphModule({"scale": 3}, g)
        >>> module(2), module.scale
        (6, 3)
    """

    __slots__ = ("_class_name", "_code", "_forward", "_graph", "_values", "meta", "training")

    _graph: Graph
    _values: Mapping[str, Any]  # weights of a program, besides the attributes
    _code: PythonCode | None
    _forward: Callable[..., Any] | None

    def __init__(self, root: Any, graph: Graph, class_name: str = "GraphModule") -> None:
        if not isinstance(graph, Graph):
            raise TypeError(f"a fastexport GraphModule takes a fastexport Graph, not {type(graph).__name__}")
        all_graphs(graph)  # it has an end
        self._start(graph, {}, {}, class_name)
        made = {(id(graph), id(root)): self}
        left = [(self, root)]
        for module, below in left:  # it grows, by modules for the subgraphs, which may nest deeper than calls may
            left += module._take(below, made)
        for module, _ in left:
            module._graph.owning_module = module

    @classmethod
    def of_program(cls, graph: Graph, values: Mapping[str, Any], meta: dict[str, Any]) -> GraphModule:
        """A module over the graph of an exported program, whose weights stay where they are."""
        top = cls._bare(graph, values, meta)
        made = {id(graph): top}
        left = [top]
        for module in left:  # it grows
            for path, subgraph in (module._graph.subgraphs or {}).items():
                if id(subgraph) not in made:
                    made[id(subgraph)] = cls._bare(subgraph, values, {})
                    left.append(made[id(subgraph)])
                install(module, {path: made[id(subgraph)]})
        return top

    @classmethod
    def _bare(
        cls, graph: Graph, values: Mapping[str, Any], meta: dict[str, Any], class_name: str = "GraphModule"
    ) -> Self:
        module: Self = object.__new__(cls)
        module._start(graph, values, meta, class_name)
        return module

    def _start(self, graph: Graph, values: Mapping[str, Any], meta: dict[str, Any], class_name: str) -> None:
        self._graph, self._values, self.meta, self._class_name = graph, values, meta, class_name
        self._code = self._forward = None
        self.training = True

    # ---- attributes

    def _take(self, root: Any, made: dict[tuple[int, int], GraphModule]) -> list[tuple[GraphModule, Any]]:
        """Take over what the graph refers to.

        Args:
            root: what has it.
            made: by the ids of its graph and of what it takes from, each module; those of subgraphs are added.

        Returns:
            The modules that are new, with what each is to take from.
        """
        self.training = bool(getattr(root, "training", True))
        subgraphs = self._graph.subgraphs or {}
        if isinstance(root, Mapping):
            self._take_values(root, subgraphs)
            roots = {path: root.get(path, _NOTHING) for path in subgraphs}
        elif isinstance(root, GraphModule) or is_module(root):
            self._take_attributes(root)
            roots = {path: attribute(root, path) for path in subgraphs}
        else:
            raise TypeError(f"root is a torch.nn.Module, a GraphModule or a mapping, not {type(root).__name__}")
        below: dict[str, GraphModule] = {}
        new: list[tuple[GraphModule, Any]] = []
        for path, subgraph in subgraphs.items():
            key = id(subgraph), id(roots[path])
            if key not in made:
                made[key] = self._for_subgraph(subgraph, roots[path])
                new.append((made[key], roots[path]))
            below[path] = made[key]
        install(self, below)
        return new

    @staticmethod
    def _for_subgraph(graph: Graph, root: Any) -> GraphModule:
        if isinstance(root, GraphModule):
            name = root._class_name
        else:
            name = "GraphModule" if isinstance(root, Mapping) else type(root).__name__
        return GraphModule._bare(graph, {}, {}, name)

    def _take_values(self, root: Mapping[str, Any], subgraphs: Mapping[str, Graph]) -> None:
        values: dict[str, Any] = {}
        for node in self._graph.nodes:
            if node.op in ATTRIBUTE_OPS:
                if node.target not in root and node.target not in subgraphs:
                    raise RuntimeError(f"node {node.name!r} refers to {node.target!r}, which root has not got")
                values[node.target] = root.get(node.target)
        install(self, values)

    def _take_attributes(self, root: Any) -> None:
        for node in self._graph.nodes:
            if node.op in ATTRIBUTE_OPS:
                self._take_attribute(root, node.target)

    def _take_attribute(self, root: Any, path: str) -> None:
        """As torch.fx does: what leads to the attribute becomes an empty module, unless root's own is there already."""
        at: Any = self
        *prefix, name = path.split(".")
        for part in prefix:
            root, known = attribute(root, part), attribute(at, part, None)
            if known is root:
                return
            at = holder_in(at, part) if known is None else known
        put(at, name, attribute(root, name))

    def __getattr__(self, name: str) -> Any:
        if name in GraphModule.__slots__ or name.startswith("__"):  # copy and pickle look before anything is there
            raise AttributeError(name)
        try:
            return weight(self._values, name)
        except AttributeError:
            known = ", ".join(self.__dict__) or "none"
            raise AttributeError(f"the module has no {name!r}; its attributes: {known}") from None

    def _member(self, name: str) -> Any:
        """What the graph refers to by a name, also where something of the class has that name."""
        return self.__dict__[name] if name in self.__dict__ else self.__getattr__(name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__dict__})

    def __repr__(self) -> str:
        return f"<fastexport.GraphModule of {len(self._graph.nodes)} nodes>"

    # ---- the graph and its code

    @property
    def graph(self) -> Graph:
        """The graph. Assigning another has code generated anew, when it is next looked at."""
        return self._graph

    @graph.setter
    def graph(self, graph: Graph) -> None:
        if not isinstance(graph, Graph):
            raise TypeError(f"the graph of a fastexport GraphModule is a fastexport Graph, not {type(graph).__name__}")
        self._graph = graph
        graph.owning_module = self
        self._code = self._forward = None

    @property
    def code(self) -> str:
        """The Python code of the graph, as of the last `recompile` or, without one, of the first look."""
        return self._python_code().src

    def _python_code(self) -> PythonCode:
        if self._code is None:
            info = getattr((self._graph.extras or {}).get("_codegen"), "pytree_info", None)
            if info is not None:  # the code asks for them
                self.__dict__.update(_in_spec=_spec_for_code(info.in_spec), _out_spec=_spec_for_code(info.out_spec))
            self._code = self._graph.python_code("self")
        return self._code

    def recompile(self) -> PythonCode:
        """Generate the code of the graph as it is now; it is compiled at the next call."""
        self._code = self._forward = None
        return self._python_code()

    @property
    def forward(self) -> Callable[..., Any]:
        """The compiled code, bound to the values the graph refers to."""
        if self._forward is None:
            self._forward = compiled(self)
        return self._forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph.

        Raises:
            Exception: whatever a node raises, with a note of the line of generated code and the node.
        """
        forward = self.forward
        try:
            return forward(*args, **kwargs)
        except Exception as error:
            explain(error, forward.__code__.co_filename, self)
            raise

    # ---- submodules

    def get_submodule(self, target: str) -> Any:
        """The submodule at a path; "" is the module itself.

        Raises:
            AttributeError: there is none.
        """
        found = attribute(self, target) if target else self
        if not is_submodule(found):
            raise AttributeError(f"{target!r} is no module")
        return found

    def add_submodule(self, target: str, m: Any) -> bool:
        """Put a module at a path, with empty modules on the way where nothing is.

        Returns:
            Whether it was put there: not when something on the way is no module.

        Raises:
            TypeError: m is no module.
            KeyError: the name is empty, or of something that this class has itself, as in torch.
        """
        if not is_submodule(m):
            raise TypeError(f"add_submodule takes a GraphModule or a torch.nn.Module, not {type(m).__name__}")
        at: Any = self
        *prefix, name = target.split(".")
        if not all((*prefix, name)):
            raise KeyError(f"a part of the name {target!r} is empty")
        first = target.partition(".")[0]
        if hasattr(GraphModule, first):
            raise KeyError(f"{first!r} is an attribute of GraphModule itself; give the module another name")
        for part in prefix:
            known = getattr(at, part, None)
            at = holder_in(at, part) if known is None else known
            if not is_submodule(at):
                return False
        put(at, name, m)
        self._forward = None
        return True

    def delete_submodule(self, target: str) -> bool:
        """Delete the module at a path.

        Returns:
            Whether there was one.
        """
        *prefix, name = target.split(".")
        try:
            at = self.get_submodule(".".join(prefix))
            if not is_submodule(getattr(at, name)):
                return False
            delattr(at, name)
        except AttributeError:
            return False
        self._forward = None
        return True

    def delete_all_unused_submodules(self) -> None:
        """Delete the modules that no node calls, takes an attribute from, or reaches others through."""
        used: set[str] = {""}
        for node in self._graph.nodes:
            if node.op not in ATTRIBUTE_OPS:
                continue
            used.update(itertools.accumulate(node.target.split("."), lambda a, b: f"{a}.{b}"))
            found = attribute(self, node.target, None)
            if node.op == "call_module" and found is not None:
                used.update(f"{node.target}.{name}" for name, _ in modules_below(found))
        for name in [name for name, _ in self.named_modules() if name not in used]:
            self.delete_submodule(name)

    def named_children(self) -> Iterator[tuple[str, Any]]:
        """The modules that are attributes of this one, by name; each once."""
        seen = set()
        for name, value in children_of(self):
            if id(value) not in seen:
                seen.add(id(value))
                yield name, value

    def children(self) -> Iterator[Any]:
        """The modules that are attributes of this one."""
        yield from (module for _, module in self.named_children())

    def named_modules(self) -> Iterator[tuple[str, Any]]:
        """This module under the name "", and all modules below it by path; each once."""
        yield "", self
        yield from modules_below(self)

    def modules(self) -> Iterator[Any]:
        """This module and all below it."""
        yield from (module for _, module in self.named_modules())

    def train(self, mode: bool = True) -> GraphModule:
        """Set ``training`` here and in all modules below."""
        self.training = mode
        seen = {id(self)}
        left: list[tuple[Any, bool]] = [(self, False)]
        while left:  # modules may nest deeper than calls may
            module, is_told = left.pop()
            is_torchs = is_module(module)
            if is_torchs and not is_told:
                module.train(mode)
            elif isinstance(module, GraphModule):
                module.training = mode
            for _, child in children_of(module):
                if id(child) not in seen:
                    seen.add(id(child))
                    left.append((child, is_torchs))  # torch's tells its own children, but knows none of ours
        return self

    def eval(self) -> GraphModule:
        """The same as ``train(False)``."""
        return self.train(False)

    # ---- parameters and buffers

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """The parameters by path; each once."""
        yield from tensors_below(self, "named_parameters", prefix)

    def parameters(self) -> Iterator[Any]:
        """The parameters."""
        yield from (value for _, value in self.named_parameters())

    def named_buffers(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """The tensors that are no parameters, by path; each once."""
        yield from tensors_below(self, "named_buffers", prefix)

    def buffers(self) -> Iterator[Any]:
        """The tensors that are no parameters."""
        yield from (value for _, value in self.named_buffers())

    def state_dict(self) -> dict[str, Any]:
        """Parameters and buffers by path."""
        return {**dict(self.named_parameters()), **dict(self.named_buffers())}

    def get_parameter(self, target: str) -> Any:
        """The parameter at a path.

        Raises:
            AttributeError: there is none.
        """
        value = attribute(self, target)
        if not is_tensor(value, parameter=True):
            raise AttributeError(f"{target!r} is no parameter")
        return value

    def get_buffer(self, target: str) -> Any:
        """The buffer at a path.

        Raises:
            AttributeError: there is none.
        """
        value = attribute(self, target)
        if not is_tensor(value, parameter=False):
            raise AttributeError(f"{target!r} is no buffer")
        return value

    # ---- text

    def print_readable(
        self,
        print_output: bool = True,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        *,
        fast_sympy_print: bool = False,
        expanded_def: bool = False,
        additional_meta: list[str] | None = None,
    ) -> str:
        """The code with types and places of origin, and that of the modules below.

        Args:
            print_output: print it, too.
            include_stride: show strides of tensors.
            include_device: show devices of tensors.
            colored: with colours for terminals.
            fast_sympy_print: as torch.fx has it; expressions are printed by fastexport either way.
            expanded_def: parameters on lines of their own.
            additional_meta: keys of ``node.meta`` to be shown, too.
        """
        options = {
            "include_stride": include_stride,
            "include_device": include_device,
            "colored": colored,
            "additional_meta": additional_meta,
        }
        text = _readable(self, expanded_def, options)
        if print_output:
            print(text)
        return text

    # ---- copies and torch

    def to_fx(self) -> Any:
        """The torch.fx.GraphModule of the same graph, with the same modules, parameters and buffers."""
        return _modules_for_torch([self])[id(self)]

    def to_folder(self, folder: Any, module_name: str = "FxModule") -> None:
        """Write the module as a Python package, as torch.fx does; needs torch.

        Args:
            folder: made if it is missing.
            module_name: the name of the class in it.

        Raises:
            ValueError: the code refers to an object that can't be imported.
        """
        from pathlib import Path

        code = self._python_code()
        imports = _imports(code.globals)
        values = _values_for_torch(self)
        made = _modules_for_torch(value for value in values.values() if isinstance(value, GraphModule))
        values = {path: _made_of(value, made) for path, value in values.items()}
        stub = Graph()  # torch's own code need not run
        for node in self._graph.nodes:
            if node.op in ATTRIBUTE_OPS:
                stub.create_node(node.op, node.target)
        stub.output(None)
        module = stub.to_fx(values)
        module._code = code.src
        module.to_folder(folder, module_name)
        file = Path(folder) / "module.py"
        head = f"class {module_name}(torch.nn.Module):"
        file.write_text(file.read_text().replace(head, imports + head, 1))

    def __copy__(self) -> GraphModule:
        return self._with(self._graph, self.__dict__, self.meta)

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        copy.deepcopy(self._graph, memo)  # with all subgraphs
        for module in inner_first(self):
            if id(module) not in memo:
                if getattr(type(module), "__deepcopy__", None) is GraphModule.__deepcopy__:
                    module._deepcopy_alone(memo)
                else:
                    copy.deepcopy(module, memo)
        copied: GraphModule = memo[id(self)]
        return copied

    def _deepcopy_alone(self, memo: dict[int, Any]) -> None:
        """A copy with the copies of the modules below, which the memo has."""
        graph = copy.deepcopy(self._graph, memo)
        new = self._with(graph, {}, {})
        memo[id(self)] = new
        new.__dict__.update(copy.deepcopy(self.__dict__, memo))
        new.meta = copy.deepcopy(self.meta, memo)
        graph.owning_module = new

    def _with(self, graph: Graph, attributes: dict[str, Any], meta: dict[str, Any]) -> GraphModule:
        new = self._bare(graph, self._values, meta, self._class_name)
        new.training = self.training
        new.__dict__.update(attributes)
        return new

    def __reduce__(self) -> tuple[Any, ...]:
        state = (self._graph, dict(self._values), self.meta, self._class_name, self.training, self.__dict__)
        return object.__new__, (type(self),), state

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        graph, values, meta, class_name, training, attributes = state
        self._start(graph, values, meta, class_name)
        self.training = training
        self.__dict__.update(attributes)
        graph.owning_module = self


# ---- subgraphs


def subgraphs_of(graph: Graph, read: dict[int, Any] | None = None) -> dict[str, Graph]:
    """The graphs that nodes of a graph refer to: its subgraphs, and those of GraphModules in its owning module.

    Args:
        graph: the graph.
        read: by id, modules of torch.fx with what they were read into, so that each is read once in several calls.
    """
    read = {} if read is None else read
    found = dict(graph.subgraphs or {})
    owner = graph.owning_module
    if owner is None:
        return found
    paths = dict.fromkeys(node.target for op in ATTRIBUTE_OPS for node in graph.find_nodes(op=op))
    unknown = [path for path in paths if path not in found]
    for path, value in _attributes(owner, unknown):
        if isinstance(value, GraphModule):
            found[path] = value._graph
        elif _is_torch_graph_module(value):
            if id(value) not in read:
                read[id(value)] = value, Graph.from_fx(value)
            found[path] = read[id(value)][1]
    return found


def _attributes(owner: Any, paths: list[str]) -> list[tuple[str, Any]]:
    """What paths lead to, of those that lead somewhere."""
    if is_module(owner):  # many look-ups in a row are made faster in C
        return _core.find_modules(owner, paths, object)
    return [(path, attribute(owner, path, None)) for path in paths]


# ---- to torch


def _modules_for_torch(modules: Iterable[GraphModule]) -> dict[int, Any]:
    """By id, one of torch.fx for each of some modules of ours and of those that they refer to.

    They are put together when all are made: what torch makes a module of, it goes through, by recursion.
    """
    import torch.fx

    made: dict[int, Any] = {}
    parts: list[tuple[Any, dict[str, Any]]] = []
    left = list(modules)
    for module in left:  # it grows
        if id(module) in made:
            continue
        values = _values_for_torch(module)
        ours = {path: value for path, value in values.items() if isinstance(value, GraphModule)}
        left += ours.values()
        root = {**values, **{path: torch.nn.Module() for path in ours}}
        new = made[id(module)] = torch.fx.GraphModule(root, module._graph.to_fx(), module._class_name)
        new.training = module.training
        new.meta = dict(module.meta)
        below = tuple(f"{path}." for path in ours)
        parts.append((new, {path: values[path] for path in values if path in ours or path.startswith(below)}))
    for new, values in parts:
        install(new, {path: _made_of(value, made) for path, value in values.items()})
    return made


def _made_of(value: Any, made: dict[int, Any]) -> Any:
    return made[id(value)] if isinstance(value, GraphModule) else value


def _values_for_torch(module: GraphModule) -> dict[str, Any]:
    """The values of a module's targets; tensors as torch's."""
    from fastexport._tensors import to_torch_all

    nodes = (node for node in module._graph.nodes if node.op in ATTRIBUTE_OPS)
    values = {path: attribute(module, path) for path in dict.fromkeys(node.target for node in nodes)}
    ours = {path: value for path, value in values.items() if isinstance(value, _core.Tensor)}
    return {**values, **to_torch_all(ours)}


def _imports(names: dict[str, Any]) -> str:
    """Lines that import what code refers to, but for what each package has."""
    from fastexport import _torch

    known = _torch.custom_builtins()
    lines = []
    for name, value in names.items():
        if name in known:
            continue
        own = next((own for own, builtin in known.items() if builtin is value), None)
        if own is not None:  # a parameter hides it
            lines.append(f"{name} = {own}\n")
            continue
        module, path = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
        if not path.isidentifier() or getattr(sys.modules.get(module or ""), path, None) is not value:
            raise ValueError(f"the code refers to {name}, which can't be imported: {value!r}")
        lines.append(f"from {module} import {path} as {name}\n")
    return "".join(lines)


def _spec_for_code(spec: Any) -> Any:
    """A tree spec as code asks for it, which takes containers apart with torch's functions."""
    from fastexport._treespec import TreeSpec

    return spec.to_torch() if isinstance(spec, TreeSpec) else spec


# ---- text


def _readable(module: GraphModule, expanded_def: bool, options: dict[str, Any]) -> str:
    """The codes of a module and of the GraphModules below it, each with its class and further to the right."""
    texts = []
    around: set[int] = set()
    left: list[tuple[Any, str, int]] = [(module, module._class_name, 0)]
    while left:  # modules may nest deeper than calls may
        each, name, depth = left.pop()
        if depth < 0:  # all below it is done
            around.remove(id(each))
            continue
        if id(each) in around:
            raise RecursionError(f"the module {name!r} is below itself")
        around.add(id(each))
        texts.append(_indented(_class_text(each, name, expanded_def and depth == 0, options), depth))
        left.append((each, name, -1))
        below = [(child, path, depth + 1) for path, child in each.named_children() if _is_graph_module(child)]
        left += reversed(below)
    return "\n".join(texts)


def _class_text(module: Any, name: str, expanded_def: bool, options: dict[str, Any]) -> str:
    graph = module._graph if isinstance(module, GraphModule) else module.graph  # torch knows what its own looks like
    code = graph.python_code("self", verbose=True, expanded_def=expanded_def, **options)
    return f"class {name}(torch.nn.Module):\n" + _indented(code.src.lstrip("\n"), 1)


def _indented(text: str, depth: int) -> str:
    """All lines but blank ones, which are empty, to the right."""
    indent = "    " * depth
    return "\n".join(indent + line if line.strip() else "" for line in text.split("\n"))


def _is_graph_module(value: Any) -> bool:
    return isinstance(value, GraphModule) or _is_torch_graph_module(value)


def _is_torch_graph_module(value: Any) -> bool:
    fx = loaded("torch.fx")
    return fx is not None and isinstance(value, fx.GraphModule)
