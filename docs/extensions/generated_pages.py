"""Pages that are made of the project's own facts, anew at each build, in docs/generated (which git ignores):

codes: a page for each code of a finding, from the table that `fastexport explain` shows;
api: the reference, see public_names.py;
benchmarks: the reports that `./run bench --markdown` writes, and a table of what has a target;
pages: a report page, to be looked at;
command: each verb of the shell with its help, and the schema of its output;
compatibility: which versions are read, written and tested, from the sources that say so;
examples: the notebooks of examples/, by a link, so that they run where they stand.
"""

from __future__ import annotations

import io
import os
import re
import tomllib
from collections import Counter
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import public_names
from sphinx.application import Sphinx
from sphinx.config import Config

import fastexport
from fastexport._codes import EXPLANATIONS, Page
from fastexport._command.verbs import VERBS, parser

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / "docs" / "generated"
SCHEMAS = Path(fastexport.__file__).parent / "schemas"

_TREE = "```{{toctree}}\n:hidden:\n\n{}\n```\n"

# ---- codes ----

_CLASSES = {
    "FX1": "The file",
    "FX2": "The documents in it",
    "FX3": "The graph",
    "FX4": "Signature, metadata, guards",
    "FX5": "Weights and pickles",
}


def code_page(code: str, page: Page) -> str:
    """The page of one code."""
    return (
        f"# {code}\n\n{page.meaning}\n\n## Why it matters\n\n{page.why}\n\n## An example\n\n"
        f"```text\n{page.example}\n```\n\n## What to do\n\n{page.remedy}\n\nSource of the rule: {page.source}.\n"
    )


def codes() -> dict[str, str]:
    """A page for each code, and their table."""
    lines = [
        "# Codes of findings",
        "What `fastexport check`, `load` and `verify` find has a code, which stays the same from release to release. "
        "`fastexport explain CODE` shows the same pages in a terminal; `--select` and `--ignore` take codes, or "
        "their beginnings.",
    ]
    for prefix, title in _CLASSES.items():
        rows = [
            f"| [{code}]({code}.md) | {page.meaning} |"
            for code, page in EXPLANATIONS.items()
            if code.startswith(prefix)
        ]
        lines.append("\n".join([f"## {prefix}xx: {title.lower()}", "", "| code | meaning |", "|---|---|", *rows]))
    lines.append(_TREE.format("\n".join(EXPLANATIONS)))
    return {f"{code}.md": code_page(code, page) for code, page in EXPLANATIONS.items()} | {
        "index.md": "\n\n".join(lines)
    }


# ---- benchmarks ----

REPORTS = {
    "RESULTS.md": "passes and conversion, beside torch.fx",
    "PIPELINE.md": "export and PT2E quantization under accelerate()",
    "FILES.md": ".pt2 files, beside torch.export",
    "PROGRAMS.md": "programs of torch, in and out",
    "FX.md": "code, patterns, passes and tracing, beside torch.fx",
    "TOOLS.md": "the command, pictures, pages, weights and many files",
}


class Row(NamedTuple):
    """A measured row that has a target; `where` is the graph, file or program."""

    job: str
    where: str
    target: str
    ratio: str
    met: str


def table_rows(text: str) -> list[Row]:
    """The rows of a report's tables that have a target."""
    found: list[Row] = []
    heading = ""
    columns: list[str] = []
    for line in text.splitlines():
        if line.startswith("## "):
            heading = line[3:]
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            columns = []
        elif not columns:
            columns = cells
        elif "target" in columns and len(cells) == len(columns) and set(cells[0]) != {"-"}:
            row = dict(zip(columns, cells, strict=True))
            if row["target"] and row.get("ratio"):
                where = next((row[key] for key in ("file", "program", "graph", "model") if key in row), heading)
                door = f", {row['door']}" if row.get("door") else ""
                found.append(Row(cells[0] + door, where, row["target"], row["ratio"], row.get("met", "")))
    return found


def benchmarks() -> dict[str, str]:
    """The reports, and a page that leads to them."""
    made = {name: (ROOT / "benchmarks" / name).read_text() for name in REPORTS}
    reports = ["| report | what is measured | targets met |", "|---|---|---:|"]
    measured = ["| job | where | target | measured | met |", "|---|---|---:|---:|---|"]
    for name, text in made.items():
        rows = table_rows(text)
        title = text.splitlines()[0].lstrip("# ")
        reports.append(
            f"| [{title}]({name}) | {REPORTS[name]} | {sum(row.met == 'yes' for row in rows)} of {len(rows)} |"
        )
        measured += [f"| {' | '.join(row)} |" for row in rows]
    parts = [
        "# Benchmarks",
        "Numbers are ratios, to torch where nothing else is named: measured in one run, in turn, on equal inputs, when "
        "results had been compared. Targets were set before; rows that fall short say NO, and the report tells what "
        "bounds them.",
        "\n".join(reports),
        "## Every row that has a target",
        "\n".join(measured),
        "`./run bench` measures on your machine: see [Contributing](../../contributing.md).",
        _TREE.format("\n".join(name.removesuffix(".md") for name in REPORTS)),
    ]
    return made | {"index.md": "\n\n".join(parts)}


# ---- the command ----


def help_of(verb: str) -> str:
    """What `fastexport VERB --help` prints, on a terminal of 74 columns."""
    text = io.StringIO()
    with mock.patch.dict(os.environ, COLUMNS="74"), redirect_stdout(text), suppress(SystemExit):
        parser([verb]).parse_args([verb, "--help"])
    return text.getvalue()


def command() -> dict[str, str]:
    """The page of the verbs."""
    parts = [
        "# Verbs of the command",
        "What `fastexport VERB --help` prints, and the schemas of `--output-format json`, as `fastexport schema VERB` "
        "prints them. [The guide](../../guides/command_line.md) has examples.",
    ]
    for verb in VERBS:
        parts.append(f"## {verb.name}\n\n```text\n{help_of(verb.name)}```")
        for schema in sorted(SCHEMAS.glob(f"{verb.name}-*.json")):
            text = schema.read_text()
            parts.append(f"````{{dropdown}} Schema {schema.stem}\n```json\n{text.rstrip()}\n```\n````")
    return {"index.md": "\n\n".join(parts) + "\n"}


# ---- compatibility ----


def source_fact(path: str, pattern: str) -> str:
    """What a source file says, by a pattern with one group."""
    match = re.search(pattern, (ROOT / path).read_text(), re.M)
    if match is None:
        raise ValueError(f"{path} does not say what the page of compatibility asks for: {pattern}")
    return match[1]


def sample_files() -> list[str]:
    """Rows of the table of files that the tests read: layout, schema, by which torch, how many."""
    found: Counter[tuple[str, str, str]] = Counter()
    for folder, layout in (("current", "A"), ("middle_layout", "B"), ("old_layout", "C")):
        for path in sorted((ROOT / "tests/data/pt2/samples" / folder).glob("*.pt2")):
            program = fastexport.load(path, verify=False)
            schema = ".".join(map(str, program.schema_version))
            found[layout, schema, program.torch_version.partition("+")[0]] += 1
    return [f"| {layout} | {schema} | {torch} | {count} |" for (layout, schema, torch), count in sorted(found.items())]


def compatibility() -> str:
    """The tables of versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needs = project["optional-dependencies"]["torch"]
    torch = next(need.removeprefix("torch==") for need in needs if need.startswith("torch=="))
    operators = source_fact("csrc/core/operator_table.inc", r'^#define OPERATOR_TORCH "([\d.]+)"')
    minor = source_fact("csrc/pt2/read.c", r"^#define SCHEMA_MINOR (\d+)")
    rows = "\n".join(sample_files())
    return f"""# Compatibility

| fastexport | Python | torch, for what needs it | schema of files | operators known |
|---|---|---|---|---|
| {fastexport.__version__} | {project["requires-python"]} | {torch} | 8.0 to 8.{minor} | those of torch {operators} |

- **Without torch** nothing depends on its version. Files of another torch are read when their schema is 8.N; what a
  newer minor version brings is kept, and noted ([FX114](codes/FX114.md)), another major version is refused.
- **With torch**, the bridge uses parts of torch that are not public, and is tested with {torch} only. With another
  release `accelerate()` replaces only functions whose source text is the known one, and leaves the others to torch.
- **Documents of the command line** (`--output-format json`) have versions of their own, which they name;
  `fastexport schema VERB` prints the schema.

## Files that the tests read

Whole programs; damaged and hostile files come on top. [The format](../format.md) tells of the layouts.

| layout | schema | says it is of torch | files |
|---|---|---|---:|
{rows}

Made from pyproject.toml, csrc/pt2/read.c, csrc/core/operator_table.inc and tests/data/pt2/samples.
"""


# ---- examples ----


def notebooks() -> str:
    """The page that leads to the notebooks: first those that need no torch."""
    found = sorted(
        (ROOT / "examples").glob("*.ipynb"), key=lambda path: ("import torch" in path.read_text(), path.name)
    )
    entries = "\n".join(f"../examples/{path.stem}" for path in found)
    return (
        "# Notebooks\n\nThose that need no torch are run when this page is made; the tests run all.\n\n"
        f"```{{toctree}}\n:maxdepth: 1\n\n{entries}\n```\n"
    )


# ---- a report ----


def report() -> str:
    """The report page of a sample, before and after passes."""
    sample = ROOT / "tests/data/pt2/samples/current/sdpa_rope.pt2"
    before, after = fastexport.load(sample), fastexport.load(sample)
    after.graph.remove_noops()
    after.graph.eliminate_common_subexpressions()
    return fastexport.report(before, after, names=("before", "after remove_noops"))


# ---- writing ----


def write(folder: str, texts: dict[str, str]) -> None:
    """Write pages; one that is as it was keeps its date, so that Sphinx reads only what has changed."""
    target = GENERATED / folder
    target.mkdir(parents=True, exist_ok=True)
    for old in [*target.glob("*.md"), *target.glob("*.html")]:
        if old.name not in texts:
            old.unlink()
    for name, text in texts.items():
        path = target / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def write_all(app: Sphinx, config: Config) -> None:
    write("codes", codes())
    write("api", public_names.pages())
    write("benchmarks", benchmarks())
    write("command", command())
    write("pages", {"report.html": report()})
    GENERATED.joinpath("compatibility.md").write_text(compatibility())
    write("notebooks", {"index.md": notebooks()})
    examples = GENERATED / "examples"
    if not examples.is_symlink():
        examples.symlink_to(Path("../../examples"), target_is_directory=True)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", write_all)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
