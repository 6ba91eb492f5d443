"""fastexport stats: counts and sizes, a column a file, and how the last differs from the first; of many a row each."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from fastexport._command.arguments import add_jobs, add_model, add_output_format
from fastexport._command.batch import each_file, named_files
from fastexport._command.exits import CLEAN, UNREADABLE
from fastexport._command.files import reason_of, source_of
from fastexport._command.output import write_document, write_line
from fastexport._stats import Stats, StatsTable
from fastexport._terminal import complain, emit, write, write_table
from fastexport.batch import StatsReport, stats_one

_MOST_COLUMNS = 8  # of files side by side


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    parser.add_argument("files", metavar="FILE", nargs="+", help='files, folders or patterns; "-" is standard input')
    add_output_format(parser, "text", "json", "jsonl")
    add_jobs(parser)
    add_model(parser)


def run(options: Any) -> int:
    """Print the statistics of all files; those that can't be read are told of, and the rest goes on."""
    files = named_files(options.files)
    found: list[Stats] = []
    failed: list[dict[str, str]] = []
    for report in each_file(partial(_stats_of, options.model), files, options.jobs):
        line: dict[str, Any] = {"programs": [], "changes": {}, "unreadable": []}
        if report.stats is None:
            failed.append({"path": report.path, "error": report.error or ""})
            complain(f"{report.path}: {report.error}")
            line["unreadable"] = failed[-1:]
        else:
            found.append(report.stats)
            line["programs"] = [report.stats.to_dict()]
        if options.output_format == "jsonl":
            write_line("stats", line)
    table = StatsTable(found)
    if options.output_format == "json":
        write_document("stats", {**table.to_dict(), "unreadable": failed})
    elif options.output_format == "text" and len(found) > _MOST_COLUMNS:
        _write_rows(found)
    elif options.output_format == "text" and found:
        emit("\n".join(table._table().lines()))
    return UNREADABLE if failed else CLEAN


def _write_rows(found: list[Stats]) -> None:
    """A row a file, where columns would be too many to read; with what is counted in all files."""
    rows: list[tuple[str, ...]] = [("file", "nodes", "parameters", "elements", "bytes", "operators")]
    for each in found:
        numbers = (each.nodes, each.parameters, each.elements, each.nbytes, sum(each.calls.values()))
        rows.append((each.name, *(f"{number:,}" for number in numbers)))
    write_table(rows, right=range(1, 6))
    write(f"(of up to {_MOST_COLUMNS} files a column each, with all that is counted; as --output-format json has it)")


def _stats_of(model: str | None, path: str) -> StatsReport:
    """The statistics of a file; those of standard input bear its name too."""
    try:
        report = stats_one(source_of(path), model=model, on_error="raise")
    except Exception as error:
        return StatsReport(path, error=reason_of(error, path))
    if report.stats is not None:
        report.stats.name = path
    return report
