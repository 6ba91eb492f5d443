"""A progress bar on stderr, drawn only on a terminal; elsewhere a plain line says what begins."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

WIDTH = 24


class Bar:
    """`update` draws; the bar goes away at the end of the `with` block."""

    def __init__(self) -> None:
        self.shown = sys.stderr.isatty()
        self.start = time.monotonic()

    def update(self, share: float, title: str) -> None:
        if self.shown:
            done = round(min(share, 1.0) * WIDTH)
            seconds = time.monotonic() - self.start
            bar = "#" * done + "." * (WIDTH - done)
            sys.stderr.write(f"\r\x1b[K[{bar}] {share:4.0%} {seconds:4.0f} s  {title[:50]}")
            sys.stderr.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


@contextmanager
def waiting(title: str, expected: float) -> Iterator[None]:
    """A bar for a call that can't tell how far it is: it goes by the seconds the call should take.

    Nothing timed belongs in here, for a second thread draws.
    """
    end = threading.Event()
    with Bar() as bar:
        if not bar.shown and expected > 1:
            print(f"{title} (about {expected:.0f} s) ...", file=sys.stderr, flush=True)

        def tick() -> None:
            while not end.wait(0.2):
                passed = time.monotonic() - bar.start
                bar.update(min(passed / expected, 0.99), title)

        ticker = threading.Thread(target=tick, daemon=True)
        if bar.shown:
            ticker.start()
        try:
            yield
        finally:
            end.set()
            if bar.shown:
                ticker.join()
