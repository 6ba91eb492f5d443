"""Write csrc/core/operator_table.inc: what the installed torch knows of its operators, as tables for C.

    python tools/operator_table.py            write the file
    python tools/operator_table.py --check    exit 1 when the file is not what would be written

Run it with the torch that fastexport is made for, and fastexport importable. The facts are those of
``fastexport._facts`` with torch loaded; tests/test_operators.py compares the compiled table with torch again.

A row is a name, a kind, flags and a schema. A schema is its arguments, ``>``, its returns, each behind a blank but the
first of a side. An argument is the letter of its type (LETTERS), ``[`` for a list and ``?`` for an optional (inner
first), ``=`` with a default, ``*`` keyword only, ``!`` written, and its name. What has no schema has an empty one.
"""

from __future__ import annotations

import inspect
import math
import operator
import sys
from pathlib import Path
from typing import Any, NamedTuple

OUTPUT = Path(__file__).resolve().parent.parent / "csrc" / "core" / "operator_table.inc"
SLOTS = 8192  # of the hash table; a power of two, about twice the rows

# fe_target_spelling of csrc/core/operator.h
OPERATOR, HIGHER_ORDER, SYM, FUNCTION = 1, 2, 3, 4

LETTERS = {
    "TensorType": "T",
    "IntType": "i",
    "SymIntType": "y",
    "FloatType": "f",
    "BoolType": "b",
    "SymBoolType": "Y",
    "NumberType": "S",
    "ScalarTypeType": "d",
    "LayoutType": "l",
    "DeviceObjType": "D",
    "MemoryFormatType": "M",
    "GeneratorType": "G",
    "StringType": "s",
    "ComplexType": "c",
    "ClassType": "C",
    "VarType": "V",
    "NoneType": "N",
}
ANY_OTHER = "O"

# Modules that register operators and that torch.export, or quantization with it, loads sooner or later.
MODULES = (
    "torch.export",
    "torch.export.pt2_archive",
    "torch.ao.quantization.fx._decomposed",
    "torch._functorch.predispatch",
    "torch._higher_order_ops",
)

# Higher-order operators that a program may hold and that torch registers only with the package that owns them.
HIGHER_ORDER_ELSEWHERE = ("aoti_call_delegate", "executorch_call_delegate")

# torch/_export/serde/serialize.py, _SYM_OPS
_SYM_PYTHON = "eq ne le ge lt gt neg pos mul add sub floordiv mod pow truediv and_ or_ lshift rshift".split()
_SYM_TORCH = "sym_not sym_int sym_float sym_ite sym_max sym_min sym_sqrt".split()
# torch/_export/verifier.py, allowed_builtin_ops and _allowed_torch_functions, without those above. round and abs of
# builtins are not among them: torch looks up no name that begins with "builtins".
_ALSO_PYTHON = "getitem not_ abs".split()
_ALSO_MATH = "ceil floor".split()
_ALSO_TORCH = """
    torch.sym_sum
    torch.autograd.grad_mode.set_grad_enabled
    torch.export.custom_ops._call_custom_autograd_function_in_pre_dispatch
    torch._C._set_grad_enabled
    torch.amp.autocast_mode._enter_autocast
    torch.amp.autocast_mode._exit_autocast
    torch.fx.experimental.symbolic_shapes.cast_symbool_to_symint_guardless
    torch._functorch.predispatch._add_batch_dim
    torch._functorch.predispatch._remove_batch_dim
    torch._functorch.predispatch._vmap_increment_nesting
    torch._functorch.predispatch._vmap_decrement_nesting
    torch._functorch.predispatch.lazy_load_decompositions
    torch._functorch.predispatch._make_dual
    torch._functorch.predispatch._unpack_dual
    torch._functorch.predispatch._jvp_increment_nesting
    torch._functorch.predispatch._jvp_decrement_nesting
    torch._functorch.predispatch._unwrap_for_grad
    torch._functorch.predispatch._enter_dual_level
    torch._functorch.predispatch._exit_dual_level
""".split()


class Row(NamedTuple):
    """One operator or function; ``name`` is without "torch.ops." for operators."""

    name: str
    kind: int
    flags: int
    schema: str


def type_code(kind: Any) -> str:
    """The letter of a schema's type, with its lists and optionals."""
    name = kind.kind()
    if name in ("ListType", "OptionalType"):
        return type_code(kind.getElementType()) + ("[" if name == "ListType" else "?")
    return LETTERS.get(name, ANY_OTHER)


def schema_code(schema: Any) -> str:
    """A torch._C.FunctionSchema, packed as the head of this file says."""
    arguments = []
    for argument in schema.arguments:
        code = type_code(argument.real_type)
        code += "=" if argument.has_default_value() else ""
        code += "*" if argument.kwarg_only else ""
        code += "!" if argument.alias_info is not None and argument.alias_info.is_write else ""
        arguments.append(code + argument.name)
    return " ".join(arguments) + ">" + " ".join(type_code(result.real_type) for result in schema.returns)


def _operator_rows(torch: Any, facts: Any) -> list[Row]:
    rows = []
    for schema in torch._C._jit_get_all_schemas():
        namespace, base = schema.name.split("::")
        overload = schema.overload_name or "default"
        packet = getattr(getattr(torch.ops, namespace), base)
        op = getattr(packet, overload, None)  # prim::name is hidden by an attribute of its namespace
        if not isinstance(op, torch._ops.OpOverload):
            op = f"torch.ops.{namespace}.{base}.{overload}"
        rows.append(Row(f"{namespace}.{base}.{overload}", OPERATOR, facts("call_function", op), schema_code(schema)))
    return rows


def _higher_order_rows(torch: Any, facts: Any, unknown: int) -> list[Row]:
    rows = []
    for name in sorted({*torch._ops._higher_order_ops, *HIGHER_ORDER_ELSEWHERE}):
        op = getattr(torch.ops.higher_order, name, None)
        rows.append(
            Row(f"higher_order.{name}", HIGHER_ORDER, unknown if op is None else facts("call_function", op), "")
        )
    return rows


def _spelled(function: Any) -> str:
    return f"{function.__module__}.{function.__name__}"


def functions(torch: Any) -> dict[str, tuple[int, Any]]:
    """The plain functions by the text that torch's serializer writes for them: (kind, function)."""
    sym = [*(getattr(operator, name) for name in _SYM_PYTHON), math.trunc]
    sym += [getattr(torch, name) for name in _SYM_TORCH]
    also = [*(getattr(operator, name) for name in _ALSO_PYTHON), *(getattr(math, name) for name in _ALSO_MATH)]
    found = {_spelled(function): (SYM, function) for function in sym}
    found |= {_spelled(function): (FUNCTION, function) for function in also}
    for text in _ALSO_TORCH:
        function = torch
        for name in text.split(".")[1:]:
            function = getattr(function, name)
        if not callable(function):
            raise TypeError(f"{text} can't be called")
        found[text] = FUNCTION, function
    return found


def _function_rows(torch: Any, facts: Any) -> list[Row]:
    rows = []
    for text, (kind, function) in functions(torch).items():
        schema = ""
        if kind == SYM:
            schema = " ".join(f"{ANY_OTHER}{name}" for name in inspect.signature(function).parameters) + ">" + ANY_OTHER
        rows.append(Row(text, kind, facts("call_function", function), schema))
    return rows


def collect() -> list[Row]:
    """All rows, in the order of their names."""
    import importlib

    for name in MODULES:
        importlib.import_module(name)
    import torch

    from fastexport._fact_tables import UNKNOWN
    from fastexport._facts import target_facts

    rows = _operator_rows(torch, target_facts) + _higher_order_rows(torch, target_facts, UNKNOWN)
    rows += _function_rows(torch, target_facts)
    rows.sort(key=lambda row: row.name.encode())
    if len({row.name for row in rows}) != len(rows):
        raise ValueError("two rows have one name")
    return rows


def hash_of(name: str) -> int:
    """FNV-1a in 32 bits, as csrc/core/operator.c computes it."""
    value = 2166136261
    for byte in name.encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value


def _slots(rows: list[Row]) -> list[int]:
    slots = [0] * SLOTS
    for index, row in enumerate(rows):
        at = hash_of(row.name) % SLOTS
        while slots[at]:
            at = (at + 1) % SLOTS
        slots[at] = index + 1
    return slots


def _literal(texts: list[str]) -> str:
    r"""Lines of a C string: each text and "\0"."""
    lines, line = [], ""
    for text in texts:
        if not text.isascii() or '"' in text or "\\" in text or text[:1].isdigit():
            raise ValueError(f"{text!r} can't be written as it is")
        if len(line) + len(text) + 2 > 114:
            lines.append(line)
            line = ""
        line += text + r"\0"
    return "\n".join(f'    "{line}"' for line in [*lines, line])


def _numbers(texts: list[str]) -> str:
    lines, line = [], ""
    for text in texts:
        if len(line) + len(text) + 1 > 116:
            lines.append(line)
            line = ""
        line += text + ","
    return "\n".join(f"    {line}" for line in [*lines, line])


def render(rows: list[Row], version: str) -> str:
    """The text of the file."""
    schemas = {"": 0}
    for row in rows:
        schemas.setdefault(row.schema, 0)
    at = 0
    for schema in schemas:
        schemas[schema] = at
        at += len(schema) + 1
    cells, at = [], 0
    for row in rows:
        cells.append(f"{{{at},{schemas[row.schema]},{row.flags},{len(row.name)},{row.kind}}}")
        at += len(row.name) + 1
    return f"""\
/* operator_table.inc - {len(rows)} operators and functions of torch {version}, for operator.c.
 *
 * Written by tools/operator_table.py, which tells the format; don't edit.
 */
#define OPERATOR_COUNT {len(rows)}
#define OPERATOR_SLOTS {SLOTS}
#define OPERATOR_TORCH "{version}"

/* Of rows, in order; each ends with a NUL. */
static const char operator_names[] =
{_literal([row.name for row in rows])};

static const char operator_schemas[] =
{_literal(list(schemas))};

/* name, schema, flags, length of the name, kind */
static const fe_operator operators[OPERATOR_COUNT] = {{
{_numbers(cells)}
}};

/* By FNV-1a of the name, then the next free one: 1 + index of a row, or 0. */
static const uint16_t operator_slots[OPERATOR_SLOTS] = {{
{_numbers([str(slot) for slot in _slots(rows)])}
}};
"""


def main(arguments: list[str]) -> int:
    rows = collect()
    import torch

    text = render(rows, torch.__version__.partition("+")[0])
    if "--check" in arguments:
        return 0 if OUTPUT.exists() and OUTPUT.read_text() == text else 1
    OUTPUT.write_text(text)
    print(f"{OUTPUT.name}: {len(rows)} rows, {len(text)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
