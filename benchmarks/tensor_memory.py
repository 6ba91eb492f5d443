"""What taking a weight of a .pt2 file costs in memory: python tensor_memory.py FILE, without torch.

Prints a JSON object:

    weight   bytes of the file's first weight, which is taken
    taken    bytes by which resident memory has grown when get_tensor has given it
    private  bytes by which the memory that is the process's own, and no mapping of a file, has grown when each page of
             the weight has been touched: a copy would be there
    touched  bytes by which resident memory has grown then

Linux only.
"""

import gc
import json
import sys

import fastexport
from file_memory import kilobytes, trim


def take(path: str) -> memoryview:
    with fastexport.open_weights(path) as weights:
        return memoryview(weights.get_tensor(next(iter(weights)))).cast("B")


def main() -> None:
    path, small = sys.argv[1:]
    take(small)[:1].tobytes()  # what is imported when it is needed
    gc.collect()
    trim()
    resident, own = kilobytes("VmRSS:"), kilobytes("RssAnon:")
    with fastexport.open_weights(path) as weights:
        tensor = weights.get_tensor(next(iter(weights)))
    taken = kilobytes("VmRSS:") - resident
    view = memoryview(tensor).cast("B")
    for page in range(0, len(view), 4096):
        view[page]
    found = {"taken": taken, "private": kilobytes("RssAnon:") - own, "touched": kilobytes("VmRSS:") - resident}
    print(json.dumps({"weight": len(view)} | {what: size * 1024 for what, size in found.items()}))


if __name__ == "__main__":
    main()
