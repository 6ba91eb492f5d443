"""What one way of reading a .pt2 file costs in memory and reads: python file_memory.py HOW FILE, without torch.

HOW is `load` (fastexport.load as it is by default), `unverified` (with verify=False), `yyjson` or `json` (the archive's
JSON documents alone, models/model.json and the tables of weights and constants, parsed by that package). Prints a JSON
object:

    growth  bytes by which the peak of resident memory rose; the texts that `yyjson` and `json` are given are in memory
            before
    read    bytes that the process asked the system for with read calls meanwhile

Linux only. The peak is that of the whole process so far where the system does not let it be reset.
"""

import ctypes
import gc
import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path


def kilobytes(name: str) -> int:
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith(name))


def read_so_far() -> int:
    with open("/proc/self/io") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("rchar:"))


def reset_peak() -> None:
    try:
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")
    except OSError:
        pass


def trim() -> None:
    """Hand free memory back to the system, so that the growth is not hidden in it."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        pass  # a C library without it: the growth may come out too small


def documents(path: Path) -> list[bytes]:
    with zipfile.ZipFile(path) as archive:
        return [archive.read(name) for name in archive.namelist() if name.endswith(".json")]


def job_of(how: str, path: Path) -> Callable[[], object]:
    """What to measure; all that it needs besides has been imported and done once."""
    if how in ("load", "unverified"):
        import fastexport

        def load() -> object:
            return fastexport.load(path, verify=how == "load")

        return load
    texts = documents(path)
    if how == "json":
        return lambda: [json.loads(text) for text in texts]
    import yyjson

    return lambda: [yyjson.Document(text) for text in texts]


def main() -> None:
    how, path = sys.argv[1], Path(sys.argv[2])
    job = job_of(how, path)
    if how in ("load", "unverified") and len(sys.argv) > 3:
        job_of(how, Path(sys.argv[3]))()  # a small file first: what is imported when it is needed
    gc.collect()
    trim()
    reset_peak()
    resident, read = kilobytes("VmRSS:"), read_so_far()
    made = job()
    read = read_so_far() - read
    growth = (kilobytes("VmHWM:") - resident) * 1024
    print(json.dumps({"growth": growth, "read": read}))
    del made


if __name__ == "__main__":
    main()
