"""Try an installed fastexport, with nothing else there: what `./run package` and cibuildwheel do with a new wheel.

python tools/try_wheel.py tests/data/pt2/samples
"""

import subprocess
import sys
import tempfile
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path


def main(samples: Path) -> None:
    """Import it, look at what came with it, and open, check, draw, change and save a program."""
    import fastexport
    from fastexport import model_explorer

    here = Path(fastexport.__file__).parent
    assert "site-packages" in here.parts, f"this is not the installed package: {here}"
    told = distribution("fastexport")
    assert told.version == fastexport.__version__
    assert not [name for name in told.requires or () if "extra ==" not in name], "a runtime dependency"
    licences = {file.name for file in told.files or () if "licenses" in file.parts}
    assert {"LICENSE", "yyjson.txt"} <= licences, licences
    for name in ("py.typed", "_core.pyi", "schemas/check-1.json"):
        assert files("fastexport").joinpath(name).is_file(), name

    path = samples / "current" / "linear.pt2"
    program = fastexport.load(path)
    assert program.verify() == []
    assert bytes(memoryview(program.state_dict["fc.bias"]))
    assert fastexport.draw(program).startswith("<svg")
    assert model_explorer.to_json(program)
    assert fastexport.eliminate_dead_code(program).modified is False
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder, "saved.pt2")
        fastexport.save(program, saved)
        assert str(fastexport.load(saved).graph) == str(program.graph)
        command = [sys.executable, "-m", "fastexport", "check", str(saved)]
        assert subprocess.run(command, stdout=subprocess.DEVNULL).returncode == 0
    for other in sorted(samples.glob("*_layout/*.pt2")):
        fastexport.load(other)
    assert "torch" not in sys.modules and "numpy" not in sys.modules
    print(f"fastexport {fastexport.__version__} works: {here}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
