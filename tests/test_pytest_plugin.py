"""The plugin for pytest, in runs of pytest of its own."""

import shutil
import tomllib
from pathlib import Path

import pytest

from pt2_files import HOSTILE, sample

pytest_plugins = ["pytester"]


@pytest.fixture
def tester(pytester):
    """A folder in which pytest runs with the plugin."""
    shutil.copy(sample("linear"), pytester.path / "linear.pt2")
    return pytester


def run(tester, *args):
    return tester.runpytest_inprocess("-p", "fastexport.pytest_plugin", "-p", "no:cacheprovider", *args)


def test_same_programs(tester):
    tester.makepyfile("""
        import fastexport

        def edited():
            program = fastexport.load("linear.pt2")
            program.graph.node("relu").target = "torch.ops.aten.sigmoid.default"
            return program

        def test_same(assert_same_program):
            assert_same_program("linear.pt2", fastexport.load("linear.pt2"))

        def test_other(assert_same_program):
            assert_same_program("linear.pt2", edited())

        def test_names(assert_same_program):
            a = fastexport.load("linear.pt2")
            a.graph.node("linear").name = "other"
            assert_same_program(a.graph, fastexport.load("linear.pt2").graph, ignore=["names"])

        def test_weights(assert_same_program):
            a = fastexport.load("linear.pt2")
            a.state_dict["fc.bias"] = memoryview(bytes(12)).cast("f")
            assert_same_program(a, "linear.pt2", ignore=["weights"])
            assert_same_program(a, "linear.pt2", ignore=["names"])

        def test_ignore(assert_same_program):
            assert_same_program("linear.pt2", "linear.pt2", ignore="names")
    """)
    result = run(tester)
    result.assert_outcomes(passed=2, failed=3)
    result.stdout.fnmatch_lines(
        [
            "*AssertionError: the programs differ",
            "*- %relu = call_function*aten.relu.default*",
            "*+ %relu = call_function*aten.sigmoid.default*",
            "*~ fc.bias: other values",
            "*ignore takes a list of *, not 'names'",
        ]
    )
    result.stdout.no_fnmatch_line("*pytest_plugin.py:*")


def test_golden_graphs(tester):
    tester.makepyfile("""
        import fastexport

        def test_it(golden_graph):
            program = fastexport.load("linear.pt2")
            golden_graph("whole", program)
            program.graph.node("linear").name = "dense"
            golden_graph("graph.renamed", program.graph)
    """)
    missing = run(tester)
    missing.assert_outcomes(failed=1)
    missing.stdout.fnmatch_lines(["*there is no *golden/whole.txt; pytest --fastexport-update writes it"])
    run(tester, "--fastexport-update").assert_outcomes(passed=1)
    assert "fc.weight" in (tester.path / "golden" / "whole.txt").read_text()
    assert (tester.path / "golden" / "graph.renamed.txt").read_text().startswith("graph():\n")
    run(tester).assert_outcomes(passed=1)
    path = tester.path / "golden" / "graph.renamed.txt"
    path.write_text(path.read_text().replace("dense", "other"))
    changed = run(tester)
    changed.assert_outcomes(failed=1)
    changed.stdout.fnmatch_lines(["*--fastexport-update accepts it", "*-    %other *", "*+    %dense *"])
    path.write_text("\x1b[2J")
    assert "\x1b[2J" not in run(tester, "--color=no").stdout.str()


def test_golden_graphs_of_torch(tester):
    tester.makeini("[pytest]\nfastexport_golden = expected")
    tester.makepyfile("""
        import torch, fastexport

        def test_it(golden_graph):
            golden_graph("fx", torch.fx.symbolic_trace(torch.nn.ReLU()))
    """)
    run(tester, "--fastexport-update").assert_outcomes(passed=1)
    assert "call_function[target=torch.nn.functional.relu]" in (tester.path / "expected" / "fx.txt").read_text()


def test_golden_graphs_of_files(tester):
    """A path stands for the program in the file; what has no graph is refused, not written by its str()."""
    tester.makepyfile("""
        import pathlib, pytest, fastexport

        def test_it(golden_graph):
            golden_graph("whole", fastexport.load("linear.pt2"))
            golden_graph("path", "linear.pt2")
            golden_graph("pathlib", pathlib.Path("linear.pt2"))
            for wrong in (3, None, ["linear.pt2"], str, fastexport.Graph):
                with pytest.raises(TypeError, match="golden_graph takes a graph, a module or a program"):
                    golden_graph("wrong", wrong)
    """)
    run(tester, "--fastexport-update").assert_outcomes(passed=1)
    texts = {path.name: path.read_text() for path in (tester.path / "golden").iterdir()}
    assert texts.keys() == {"whole.txt", "path.txt", "pathlib.txt"} and len(set(texts.values())) == 1
    shutil.copy(sample("dynamic"), tester.path / "linear.pt2")
    run(tester).assert_outcomes(failed=1)


@pytest.mark.parametrize("name", ["../out", "a/b", "", ".x"])
def test_names_of_golden_files(tester, name):
    tester.makepyfile(f"""
        def test_it(golden_graph):
            golden_graph({name!r}, None)
    """)
    result = run(tester, "--fastexport-update")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*can't be the name of a golden file*"])


def test_files_are_tests_when_asked(tester):
    (tester.path / "sub").mkdir()
    shutil.copy(HOSTILE / "Z23_weight_bit.pt2", tester.path / "sub" / "bad.pt2")
    shutil.copy(sample("custom_op"), tester.path / "warned.pt2")
    assert run(tester).ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result = run(tester, "--fastexport-check", "-v")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*bad.pt2*FAILED*", "*FX102 data/weights/weight_0: the data has CRC*"])
    result.stdout.no_fnmatch_line("*Traceback*")
    tester.makeini("[pytest]\nfastexport_ignore = fx3 FX102")
    run(tester, "--fastexport-check").assert_outcomes(passed=3)
    (tester.path / "cut.pt2").write_bytes(sample("linear").read_bytes()[:99])
    tester.makeini("[pytest]\nfastexport_ignore = FX1 FX3")
    run(tester, "--fastexport-check").assert_outcomes(passed=3, failed=1)
    tester.makeini("[pytest]\nfastexport_ignore = FX102 FX9")
    assert run(tester).ret == pytest.ExitCode.NO_TESTS_COLLECTED
    wrong = run(tester, "--fastexport-check")
    assert wrong.ret == pytest.ExitCode.USAGE_ERROR
    wrong.stderr.fnmatch_lines(["*fastexport_ignore: no code begins with 'FX9'*"])


def test_warnings_that_are_to_fail(tester):
    shutil.copy(HOSTILE / "E16_sample_inputs_code.pt2", tester.path / "pickled.pt2")
    run(tester, "--fastexport-check").assert_outcomes(passed=2)
    tester.makeini("[pytest]\nfastexport_fail_on = fx502")
    result = run(tester, "--fastexport-check")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*FX502 data/sample_inputs/model.pt: *the pickle calls os.mkdir*"])
    tester.makeini("[pytest]\nfastexport_fail_on = FX5\nfastexport_ignore = FX502")
    run(tester, "--fastexport-check").assert_outcomes(passed=2)
    tester.makeini("[pytest]\nfastexport_fail_on = FX9")
    run(tester, "--fastexport-check").stderr.fnmatch_lines(["*fastexport_fail_on: no code begins with 'FX9'*"])


def test_it_costs_little(tester):
    """What is not used is not imported."""
    tester.makepyfile("""
        import sys

        def test_it():
            late = ("_findings", "_diff", "batch", "_stats", "_save", "_command.main")
            assert not {f"fastexport.{name}" for name in late}.intersection(sys.modules)
            assert "torch" not in sys.modules
    """)
    result = tester.runpytest_subprocess("-p", "fastexport.pytest_plugin", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)


def test_it_is_asked_for():
    """An entry point would import fastexport in each run of pytest on the machine."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert "pytest11" not in project.get("entry-points", {})


@pytest.mark.parametrize("how", ["setting", "conftest"])
def test_ways_to_ask_for_it(tester, how):
    if how == "setting":
        tester.makepyprojecttoml("[tool.pytest.ini_options]\naddopts = ['-p', 'fastexport.pytest_plugin']")
    else:
        tester.makeconftest("pytest_plugins = ['fastexport.pytest_plugin']")
    result = tester.runpytest_subprocess("-p", "no:cacheprovider", "--fastexport-check")
    result.assert_outcomes(passed=1)
