"""The garbage collector, held back where very many objects are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Hold the garbage collector back while very many objects are made: most go away again, and without it.

    Each time their number has grown by a quarter it would look at all objects of the process, which takes longer than
    making them. Only who found it on puts it on again, so that it is not left off, whatever other threads do here.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
