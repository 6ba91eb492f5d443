"""python -m fastexport: the same as the command fastexport."""

from fastexport._cli import main

if __name__ == "__main__":
    raise SystemExit(main())
