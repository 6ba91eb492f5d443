"""fastexport weights: names, shapes, dtypes and sizes of weights and constants, and what their elements are like."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from fastexport._command.arguments import add_model, add_output_format
from fastexport._command.exits import CLEAN, Refused, unknown
from fastexport._command.files import open_program
from fastexport._command.output import check_output, stream_of, write_document, write_line
from fastexport._terminal import write_table

if TYPE_CHECKING:
    from fastexport._program import ExportedProgram
    from fastexport._statistics import WeightStatistics

_ELEMENTS = ("min", "max", "mean", "std", "zeros", "nans", "infs")


class _Row(NamedTuple):
    """A weight, or several that are alike; found is None of what is no tensor, and nbytes its size then."""

    name: str
    kind: str
    names: tuple[str, ...]
    found: WeightStatistics | None
    nbytes: int


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    parser.add_argument("file", metavar="FILE", help='a .pt2 file; "-" is standard input')
    parser.add_argument("name", metavar="NAME", nargs="?", help="of one weight, which is shown with its statistics")
    parser.add_argument(
        "--fold", action="store_true", help="a row for weights that differ in the number of a layer only"
    )
    parser.add_argument(
        "--stats",
        "--statistics",
        dest="statistics",
        action="store_true",
        help="read them: extremes, mean, zeros, what is not finite",
    )
    parser.add_argument("--sha256", action="store_true", help="read them: the checksum of each")
    parser.add_argument(
        "--safetensors", metavar="OUT", help="write all to a safetensors file; - is stdout; needs safetensors"
    )
    add_output_format(parser, "text", "json", "jsonl")
    add_model(parser)


def run(options: Any) -> int:
    """Print all weights and constants, or one."""
    if options.safetensors is not None:
        return _export(options)
    program = open_program(options.file, options.model)
    is_read = options.statistics or options.sha256 or options.name is not None
    rows = list(_rows(program, options.name, is_read, options.sha256))
    if options.name is not None and not rows:
        names = [*program.state_dict, *program.constants]
        lister = f"fastexport weights {options.file}"
        raise unknown(f"{options.file} has no weight {options.name!r}", names, options.name, lister)
    if options.fold:
        rows = list(_folded(rows))
    documents = [_row_json(row, is_read) for row in rows]
    if options.output_format == "json":
        write_document("weights", {"weights": documents})
    elif options.output_format == "jsonl":
        for document in documents:
            write_line("weights", {"weights": [document]})
    else:
        _write_text(rows, is_read, options.sha256)
    return CLEAN


def _export(options: Any) -> int:
    from fastexport._safetensors import to_safetensors

    if options.name is not None or options.fold or options.statistics or options.sha256:
        raise Refused("--safetensors writes all weights as they are: without NAME, --fold, --stats and --sha256")
    path = stream_of(options.safetensors)
    check_output(options.safetensors, [options.file])
    program = open_program(options.file, options.model)
    try:
        to_safetensors(program, path, constants=True)
    except (ImportError, TypeError, ValueError) as error:
        raise Refused(error) from error
    return CLEAN


def _rows(program: ExportedProgram, only: str | None, is_read: bool, sha256: bool) -> Iterator[_Row]:
    from fastexport._core import Tensor
    from fastexport._statistics import outline, statistics
    from fastexport._weight_facts import weights_of

    for facts in weights_of(program):
        if only is not None and facts.name != only:
            continue
        state = program.state_dict if facts.name in program.state_dict else program.constants
        value: Any = state[facts.name]
        found = None
        if isinstance(value, Tensor):
            has_elements = is_read and value.storage is not None
            found = statistics(value, sha256=sha256) if has_elements else outline(value)
        yield _Row(facts.name, facts.kind, (facts.name,), found, facts.nbytes or getattr(value, "nbytes", 0))


def _folded(rows: list[_Row]) -> Iterator[_Row]:
    """The tensors with those that are alike as one, then the rest."""
    from fastexport._statistics import fold

    kinds = {row.name: row.kind for row in rows}
    for name, names, found in fold((row.name, row.found) for row in rows if row.found is not None):
        yield _Row(name, kinds[names[0]], names, found, found.bytes)
    yield from (row for row in rows if row.found is None)


def _row_json(row: _Row, is_read: bool) -> dict[str, Any]:
    found = row.found
    document: dict[str, Any] = {
        "name": row.name,
        "kind": row.kind,
        "dtype": None if found is None else found.dtype,
        "shape": None if found is None else list(found.shape),
        "bytes": row.nbytes,
    }
    if len(row.names) > 1:
        document["names"] = list(row.names)
    if is_read and found is not None:
        document["statistics"] = {name: value for name, value in found.to_dict().items() if name not in document}
    return document


def _write_text(rows: list[_Row], is_read: bool, sha256: bool) -> None:
    extra = (*(_ELEMENTS if is_read else ()), *(("sha256",) if sha256 else ()))
    table = [("name", "kind", "dtype", "shape", "bytes", *extra)]
    for row in rows:
        name = row.name if len(row.names) == 1 else f"{row.name} x {len(row.names)}"
        dtype, shape = ("-", "-") if row.found is None else (row.found.dtype, str(list(row.found.shape)))
        facts = (_cell(getattr(row.found, what, None)) for what in extra)
        table.append((name, row.kind, dtype, shape, str(row.nbytes), *facts))
    write_table(table, right=range(4, 5 + len(_ELEMENTS)))


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
