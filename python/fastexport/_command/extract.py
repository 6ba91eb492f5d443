"""fastexport extract: an entry of the archive, or the part of the graph between some nodes as a program of its own."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from fastexport._command.arguments import add_model, add_output_format, names
from fastexport._command.exits import CLEAN, UNREADABLE
from fastexport._command.files import open_program, source_of
from fastexport._command.interrupts import writing
from fastexport._command.output import write_document
from fastexport._new_file import write_file
from fastexport._terminal import complain, complain_of_name, write, write_table


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    parser.add_argument("file", metavar="FILE", help='a .pt2 file; "-" is standard input')
    parser.add_argument("entry", metavar="ENTRY", nargs="?", help="without it, the names and sizes of all entries")
    parser.add_argument("-o", "--output", metavar="OUT", help="of an entry: a file instead of stdout")
    parser.add_argument("--outputs", metavar="A,B", help="write a program that computes the values of these nodes")
    parser.add_argument(
        "--inputs", metavar="A,B", help="which is given the values of these nodes, instead of all inputs"
    )
    add_output_format(parser, "text", "json")
    add_model(parser)


def run(options: Any) -> int:
    """Write what was asked for."""
    if options.outputs is not None or options.inputs is not None:
        return _extract_part(options)
    from fastexport._program import open_archive

    archive = open_archive(source_of(options.file))
    if options.entry is None:
        return _list_entries(archive, options.output_format)
    try:
        data = archive.read(options.entry)
    except KeyError:
        entries = [name for name, *_ in archive.entries()]
        complain_of_name(f"{options.file} has no entry {options.entry!r}", entries, options.entry)
        return UNREADABLE
    if options.output is not None:
        with writing:
            write_file(options.output, data)
    else:
        sys.stdout.buffer.write(data)
    return CLEAN


def _list_entries(archive: Any, output_format: str) -> int:
    entries = [(name, size) for name, size, _, _ in archive.entries()]
    if output_format == "json":
        write_document("extract", {"entries": [{"name": name, "size": size} for name, size in entries]})
    else:
        write_table([(str(size), name) for name, size in entries], right=(0,))
    return CLEAN


# ---- a part of the graph


def _extract_part(options: Any) -> int:
    outputs, inputs = names(options.outputs), names(options.inputs)
    if not outputs or not options.output or options.entry is not None:
        complain("a part of the graph needs --outputs and -o, and no ENTRY")
        return UNREADABLE
    from fastexport._command.part import cut

    program = open_program(options.file, options.model, verify=True)
    known = {node.name: node for node in program.graph.nodes if node.op != "output"}
    for name in (*outputs, *inputs):
        if name not in known:
            complain_of_name(f"there is no node {name!r}", list(known), name)
            return UNREADABLE
    try:
        cut(program, [known[name] for name in inputs], [known[name] for name in outputs])
    except (ValueError, TypeError) as error:
        complain(error)
        return UNREADABLE
    with writing:
        program.save(options.output)
    write(f"{options.output}: {len(program.graph.nodes)} nodes")
    return CLEAN
