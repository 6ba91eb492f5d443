"""The notebooks in examples/ run from a clean clone, and give what is saved in them.

``pytest tests/test_notebooks.py --update-golden`` runs them and saves what they give.
"""

import copy
import json
import os
import re
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
NEEDS = {"quantize": ("torch", "torchao")}
NOTEBOOKS = sorted(path.stem for path in EXAMPLES.glob("*.ipynb"))

# Digits of a measured scale are those of the machine's arithmetic; torch's version tells how it was built, and so
# does the width of its column.
_MACHINES = ((r"\d+\.\d{3,}(e-?\d+)?", "#.#"), (r"(\d+\.\d+\.\d+)\+\w+", r"\1"), (r" {2,}", "  "))


def read(name):
    return nbformat.read(EXAMPLES / f"{name}.ipynb", 4)


def run(notebook):
    """The notebook, executed in a kernel of its own, which starts where the notebook is."""
    notebook = copy.deepcopy(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.update(outputs=[], execution_count=None)
    client = nbclient.NotebookClient(
        notebook, timeout=300, record_timing=False, resources={"metadata": {"path": str(EXAMPLES)}}
    )
    client.execute()
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def same_everywhere(text):
    for pattern, instead in _MACHINES:
        text = re.sub(pattern, instead, text)
    return text


def shown(cell):
    """What a cell gives, by type."""
    found = []
    for output in cell.get("outputs", ()):
        assert output.output_type in ("stream", "execute_result", "display_data"), output
        assert output.get("name") != "stderr", output
        parts = {"text": output.text} if output.output_type == "stream" else dict(output.data)
        found.append({kind: same_everywhere("".join(text)) for kind, text in parts.items()})
    return found


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_gives_what_is_saved(name, pytestconfig, monkeypatch):
    for module in NEEDS.get(name, ()):
        pytest.importorskip(module)
    package = str(Path(__import__("fastexport").__file__).parent.parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH")))))
    saved = read(name)
    executed = run(saved)
    if pytestconfig.getoption("--update-golden"):
        nbformat.write(executed, EXAMPLES / f"{name}.ipynb")
        saved = executed
    for was, now in zip(saved.cells, executed.cells, strict=True):
        assert shown(was) == shown(now), was.source


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_what_is_saved_is_the_same_each_time(name):
    for cell in read(name).cells:
        if cell.cell_type == "code":
            assert cell.execution_count, f"not executed: {cell.source}"
            text = json.dumps(shown(cell))
            assert not re.search(r"0x[0-9a-f]{6,}|\d ms|Traceback", text), cell.source
            assert len(text) < 100_000


def test_there_are_three():
    assert NOTEBOOKS == ["quantize", "verify_a_program", "write_a_pass"]
