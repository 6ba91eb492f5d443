"""python -m fastexport: the same as the command fastexport."""

from fastexport._command.main import console

if __name__ == "__main__":
    raise SystemExit(console())
