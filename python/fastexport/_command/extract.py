"""fastexport extract: an entry of the archive, or the part of the graph between some nodes as a program of its own."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from fastexport._command.arguments import add_model, add_output_format, names
from fastexport._command.exits import CLEAN, Refused, unknown
from fastexport._command.files import naming, open_archive, open_program, reason_of
from fastexport._command.output import beside, is_stdout, no_text, save_program, stream_of, write_document
from fastexport._new_file import write_file
from fastexport._terminal import escape, write, write_table


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    parser.add_argument("file", metavar="FILE", help='a .pt2 file; "-" is standard input')
    parser.add_argument("entry", metavar="ENTRY", nargs="?", help="without it, the names and sizes of all entries")
    parser.add_argument("-o", "--output", metavar="OUT", help="of an entry: a file instead of stdout (-)")
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
    if options.entry is None:
        return _list_entries(options)
    return _extract_entry(options)


def _extract_entry(options: Any) -> int:
    if options.output_file is not None or options.output_format != "text":
        raise Refused("an entry is written as it is, by -o to a file: without --output-file and --output-format")
    archive = open_archive(options.file)
    entries = [name for name, *_ in archive.entries()]
    if options.entry not in entries:
        lister = f"fastexport extract {options.file}"
        raise unknown(f"{options.file} has no entry {options.entry!r}", entries, options.entry, lister)
    with naming(options.file):
        data = archive.read(options.entry)
    if options.output is not None and not is_stdout(options.output):
        write_file(options.output, data)
    elif sys.stdout.isatty() and not _is_plain(data):
        raise no_text()
    else:
        sys.stdout.buffer.write(data)
    return CLEAN


def _is_plain(data: bytes) -> bool:
    """Whether a terminal can show it, and is not steered by it."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return escape(text) == text


def _list_entries(options: Any) -> int:
    if options.output is not None:
        raise Refused(
            "-o is for an ENTRY, or a program of --outputs; a list of entries is written to a file by --output-file"
        )
    entries = [(name, size) for name, size, _, _ in open_archive(options.file).entries()]
    if options.output_format == "json":
        write_document("extract", {"entries": [{"name": name, "size": size} for name, size in entries]})
    else:
        write_table([(str(size), name) for name, size in entries], right=(0,))
    return CLEAN


# ---- a part of the graph


def _extract_part(options: Any) -> int:
    outputs, inputs = names(options.outputs), names(options.inputs)
    if not outputs or not options.output or options.entry is not None:
        raise Refused("a part of the graph needs --outputs and -o, and no ENTRY")
    stream_of(options.output)  # before any work
    from fastexport._command.part import cut

    program = open_program(options.file, options.model, verify=True)
    known = {node.name: node for node in program.graph.nodes if node.op != "output"}
    for name in (*outputs, *inputs):
        if name not in known:
            raise unknown(f"{options.file} has no node {name!r}", list(known), name, f"fastexport show {options.file}")
    try:
        cut(program, [known[name] for name in inputs], [known[name] for name in outputs])
    except (ValueError, TypeError) as error:
        raise Refused(reason_of(error, options.file)) from error
    save_program(program, options.output)
    nodes = len(program.graph.nodes)
    with beside(options):
        if options.output_format == "json":
            write_document("extract", {"output": options.output, "nodes": nodes})
        else:
            write(f"{options.output}: {nodes} nodes")
    return CLEAN
