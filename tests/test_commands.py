"""What `./run demo` and `./run bench` run works from end to end, on small graphs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.models


def command(script: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, ROOT / script, *args], capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("model", ["llama", "mobilenet"])
def test_demo(model: str) -> None:
    pytest.importorskip("transformers")
    done = command("examples/demo.py", model, "--layers", "2", "--rounds", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All 10 checks hold" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert "\r" not in done.stderr and "\x1b" not in done.stdout  # no bar and no colours outside a terminal


def test_demo_refuses_what_it_does_not_know() -> None:
    done = command("examples/demo.py", "gpt17")
    assert done.returncode == 2 and "llama" in done.stderr


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="measures memory the way Linux tells it")
def test_bench(tmp_path: Path) -> None:
    results, report = tmp_path / "results.json", tmp_path / "RESULTS.md"
    options = ["--quick", "--sizes", "200", "--layers", "0", "--json", str(results), "--markdown", str(report)]
    done = command("benchmarks/run.py", *options)
    assert done.returncode == 0, done.stderr
    found = json.loads(results.read_text())
    assert found["schema"] == 1
    assert {row["kind"] for row in found["rows"]} == {"time", "memory"}
    for row in found["rows"]:
        assert row["ratio"]["low"] <= row["ratio"]["median"] <= row["ratio"]["high"]
        assert row["job"] in done.stdout and row["job"] in report.read_text()


def test_bench_of_nothing() -> None:
    done = command("benchmarks/run.py", "--quick", "--sizes", "200", "--layers", "0", "--only", "no such row")
    assert done.returncode == 2 and "--list" in done.stderr


def test_quantize() -> None:
    pytest.importorskip("transformers")
    done = command("examples/quantize.py", "resnet", "--layers", "4", "--report")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("the same") == 10 and "quantized" in done.stdout


def test_quantize_refuses_what_fails_in_torchao() -> None:
    done = command("examples/quantize.py", "bert", "--quantizer", "xnnpack")
    assert done.returncode == 2 and "x86" in done.stderr


def test_bench_pipeline(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    results, report = tmp_path / "results.json", tmp_path / "PIPELINE.md"
    options = ["--quick", "--only", "ExportedProgram|deepcopy", "--json", str(results), "--markdown", str(report)]
    done = command("benchmarks/pipeline.py", *options)
    assert done.returncode == 0, done.stderr
    rows = json.loads(results.read_text())["rows"]
    assert [row["stage"] for row in rows] == ["ExportedProgram(...)", "deepcopy(module)"]
    assert all(row["stage"] in report.read_text() and row["ratio"]["median"] > 0 for row in rows)


def bench(tmp_path: Path, script: str, only: str) -> list[Any]:
    """Rows of a quick run, each of which stands in what it printed and in its report."""
    results, report = tmp_path / "results.json", tmp_path / "REPORT.md"
    options = ["--quick", "--only", only, "--json", str(results), "--markdown", str(report)]
    done = command(f"benchmarks/{script}.py", *options)
    assert done.returncode == 0, done.stderr
    rows: list[Any] = json.loads(results.read_text())["rows"]
    for row in rows:
        assert row["job"] in done.stdout and f"| {row['job']} | {row['file']} |" in report.read_text()
    return rows


@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="measures memory and reads the way Linux tells them")
def test_bench_files(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("yyjson")
    only = r"str.*, llama|peak.*yyjson|growth of str"
    rows = bench(tmp_path, "files", only)
    assert [row["job"] for row in rows] == [
        "str(graph)",
        "peak memory of load, by yyjson's tree",
        "growth of str(graph)",
    ]
    for row in rows:
        assert min(row["baseline"]["median"], row["fastexport"]["median"], row["ratio"]["median"]) > 0


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="measures memory the way Linux tells it")
def test_bench_programs(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    only = r"(save|verify|edit).*dynamic|40 unused, from a file|peak.*weights,"
    rows = bench(tmp_path, "programs", only)
    assert [row["job"] for row in rows] == [
        "save(torch_program, path)",
        "torch.export.save, accelerate()",
        "from_export + verify()",
        "verify()",
        "verify(), again",
        "from_export + edit + to_torch()",
        "remove_unused_inputs()",
        "peak memory of save, by the weights",
    ]
    for row in rows:
        least = min(row["baseline"]["median"], row["fastexport"]["median"], row["ratio"]["median"])
        assert least > 0 or row["unit"] == "MB" and least == 0  # a process may have had enough memory before


def test_bench_fx(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    only = r"^(python_code|.*replace_pattern|SubgraphMatcher.match|diff).*(synthetic|add-relu chain)|^symbolic_trace"
    rows = bench(tmp_path, "fx", only)
    chain = ["replace_pattern, add to sub", "replace_pattern, add to sub, in place"]
    assert [row["job"] for row in rows] == [
        "python_code",
        "python_code, verbose",
        *chain,
        "SubgraphMatcher.match, add",
        "idle replace_pattern",
        "diff with an edited copy",
        *chain,
        *chain,
        "growth of replace_pattern, add to sub",
        "symbolic_trace",
        "symbolic_trace + code",
    ]
    for row in rows:
        assert min(row["baseline"]["median"], row["fastexport"]["median"], row["ratio"]["median"]) > 0


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="measures memory the way Linux tells it")
def test_bench_tools(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("safetensors")
    only = r"python|many|draw, modules closed, llama|size|HTML|get_tensor|list"
    rows = bench(tmp_path, "tools", only)
    assert [row["job"] for row in rows] == [
        "import fastexport, over bare python",
        "fastexport --version, over bare python",
        "check_many, 2 threads by one",
        "stats_many, 2 threads by one",
        "draw, modules closed",
        "report page, size",
        "HTML, by torch's text",
        "get_tensor, growth of memory",
        "get_tensor, private memory once touched",
        "list weights, by safetensors",
    ]
    for row in rows:
        assert row["target"] is row["at_most"] is None  # small inputs are not held to them
        least = min(row["baseline"]["median"], row["fastexport"]["median"], row["ratio"]["median"])
        assert least > 0 or "python" in row["job"] or row["unit"] == "MB" and least == 0  # differences


@pytest.mark.parametrize("script", ["files", "programs", "fx", "tools"])
def test_bench_without_rows(script: str) -> None:
    done = command(f"benchmarks/{script}.py", "--quick", "--only", "no such row")
    assert done.returncode == 2 and "no row" in done.stderr
