"""A progress bar on stderr, drawn only on a terminal; elsewhere a plain line says what begins."""

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
WIDTH = 28


def _draw(title: str, share: float, note: str) -> None:
    done = round(min(share, 1.0) * WIDTH)
    bar = "#" * done + "." * (WIDTH - done)
    sys.stderr.write(f"\r\x1b[K{title:<34} [{bar}] {note}")
    sys.stderr.flush()


def steps(title: str, items: Iterable[T], count: int) -> Iterator[T]:
    """Go through items and show how many are done; the bar is gone at the end."""
    shown = sys.stderr.isatty()
    start = time.monotonic()
    try:
        for i, item in enumerate(items):
            if shown:
                _draw(title, i / count, f"{i}/{count}  {time.monotonic() - start:.0f} s")
            yield item
    finally:
        if shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


@contextmanager
def waiting(title: str, expected: float) -> Iterator[None]:
    """Show the time that passes beside the time expected, for a call that can't tell how far it is.

    Nothing timed belongs in here: a second thread draws.
    """
    if not sys.stderr.isatty():
        if expected > 1:
            print(f"{title} (about {expected:.0f} s)", file=sys.stderr, flush=True)
        yield
        return
    end = threading.Event()

    def tick() -> None:
        start = time.monotonic()
        while not end.wait(0.2):
            passed = time.monotonic() - start
            share = passed / (passed + max(expected - passed, 0.1 * expected))
            _draw(title, share, f"{passed:.0f} s of about {expected:.0f}")

    ticker = threading.Thread(target=tick, daemon=True)
    ticker.start()
    try:
        yield
    finally:
        end.set()
        ticker.join()
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
