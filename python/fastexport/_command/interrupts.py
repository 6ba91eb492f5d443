"""Ctrl-C, and a signal to terminate, end the command at once, also while the C part works.

Python acts on a signal between two of its own steps, so one long call into C would hold it up. A thread hears of the
signal through a pipe, and ends the process where that takes too long. Files that are being written go then; those that
were there are as they were.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from _thread import start_new_thread
from types import FrameType

_GRACE = 0.5  # seconds in which the program may end by itself


def watch() -> None:
    """End the process when it is interrupted or terminated; what it has begun to write goes."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminated)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    start_new_thread(_wait, (read,))


def _terminated(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _wait(pipe: int) -> None:
    heard: set[int] = set()
    while not heard:
        heard = {int(signal.SIGINT), int(signal.SIGTERM)}.intersection(os.read(pipe, 64))
    time.sleep(_GRACE)
    new_files = sys.modules.get("fastexport._new_file")
    if new_files is not None:
        new_files.discard_all()
    os._exit(128 + heard.pop())  # as a shell tells of it
