"""What saving a program of torch's costs in memory: python program_memory.py HOW BYTES FOLDER.

HOW is `fastexport` (fastexport.save) or `torch` (torch.export.save); BYTES is the size of all weights together, each of
64 MiB at most. Prints a JSON object:

    growth   bytes by which the peak of resident memory rose
    weights  bytes of the weights, which are in memory before

Linux only. The peak is that of the whole process so far where the system does not let it be reset.
"""

import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from file_memory import kilobytes, reset_peak, trim

LARGEST = 64 << 20  # bytes of one weight


class Heavy(torch.nn.Module):
    """One weight that is used, as the others are not: they are saved all the same."""

    def __init__(self, weight_bytes: int):
        super().__init__()
        sizes = [LARGEST] * (weight_bytes // LARGEST) + [weight_bytes % LARGEST]
        # Filled with ones: memory that was only asked for would not be resident.
        self.heavy = torch.nn.ParameterList(torch.ones(size // 4) for size in sizes if size)
        self.used = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


def export(weight_bytes: int) -> torch.export.ExportedProgram:
    return torch.export.export(Heavy(weight_bytes), (torch.ones(2, 4),))


def save_of(how: str) -> Callable[[Any, Path], None]:
    if how == "torch":
        return torch.export.save
    import fastexport

    return fastexport.save


def main() -> None:
    how, weight_bytes, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    save = save_of(how)
    save(export(64), folder / "small.pt2")  # what is imported when it is needed
    program = export(weight_bytes)
    gc.collect()
    trim()
    reset_peak()
    resident = kilobytes("VmRSS:")
    save(program, folder / "heavy.pt2")
    growth = (kilobytes("VmHWM:") - resident) * 1024
    weights = sum(weight.nbytes for weight in program.state_dict.values())
    print(json.dumps({"growth": growth, "weights": weights}))


if __name__ == "__main__":
    main()
