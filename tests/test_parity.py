"""Every public name of torch.fx is there, and docs/parity.md says so."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SPEC = importlib.util.spec_from_file_location("parity_table", ROOT / "tools" / "parity_table.py")
assert SPEC is not None and SPEC.loader is not None
parity_table = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(parity_table)


@pytest.fixture(scope="module")
def rows():
    return parity_table.rows()


def test_nothing_is_missing(rows):
    assert [row.name for row in rows if not row.there] == []


def test_parameters_of_torch_are_taken(rows):
    assert {row.name: row.missing for row in rows if row.missing} == {}


def test_a_missing_name_would_be_seen():
    class Theirs:
        def lint(self, strictness): ...
        def absent(self): ...

    found = {row.name: row for row in parity_table.rows_of(Theirs, "Graph", object)}
    assert not found["Graph.absent"].there
    assert found["Graph.lint"].missing == ("strictness",)


def test_the_table_is_up_to_date():
    assert parity_table.OUTPUT.read_text() == parity_table.text(), "run tools/parity_table.py"
