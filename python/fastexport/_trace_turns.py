"""Traces of torch.fx and ours take turns, since torch's sees what modules do in all threads.

While one of ours runs, a trace of torch's in another thread waits, and the other way round; ours run side by side, and
traces within a trace of the same thread go on at once.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch.fx

from fastexport import _torch_tracing
from fastexport._wrapping import Patches, before, running

_PATIENCE = 60.0  # seconds: by then the two wait for each other, say for a lock that one of them holds
_LOOK = 0.001  # seconds between looks at a trace of torch's that began before ours, which nobody tells us the end of

_turns = threading.Condition()
_ours = 0
_theirs: dict[int, int] = {}  # how deep each thread is in traces of torch's, as far as they are known


@contextmanager
def turn() -> Iterator[None]:
    """For the length of a ``with`` block, be one of our traces."""
    global _ours
    if running() is not None:
        yield
        return
    with Patches(None) as patches, ExitStack() as stack:
        patches.attribute(torch.fx.Tracer, "trace", _trace_of_torch)
        time.sleep(0)  # who has just called the one before gets to where we see him
        with _turns:
            if _torch_tracing.is_traced_in(sys._getframe()):
                stack.enter_context(_noted())
            else:
                _wait_for_torch()
            _ours += 1
        try:
            yield
        finally:
            with _turns:
                _ours -= 1
                _turns.notify_all()


def _wait_for_torch() -> None:
    waited = 0.0
    while _is_torch_elsewhere() and waited < _PATIENCE:
        _turns.wait(_LOOK)
        waited += _LOOK


def _is_torch_elsewhere() -> bool:
    """Whether torch traces in another thread: so says a flag, too, that ours set themselves while they run."""
    here = threading.get_ident()
    return any(thread != here for thread in _theirs) or (not _ours and getattr(*_torch_tracing.FLAG))


@contextmanager
def _noted() -> Iterator[None]:
    """For the length of a ``with`` block, note that torch traces in this thread."""
    here = threading.get_ident()
    with _turns:
        _theirs[here] = _theirs.get(here, 0) + 1
    try:
        yield
    finally:
        with _turns:
            _theirs[here] -= 1
            if not _theirs[here]:
                del _theirs[here]
            _turns.notify_all()


@functools.wraps(torch.fx.Tracer.trace)
def _trace_of_torch(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Stands for ``torch.fx.Tracer.trace`` while we trace."""
    trace = before(torch.fx.Tracer, "trace")
    is_within = running() is not None or _torch_tracing.is_traced_in(sys._getframe())
    with ExitStack() as stack:
        with _turns:
            if not is_within:
                _turns.wait_for(lambda: not _ours, _PATIENCE)
            stack.enter_context(_noted())
        return trace(self, *args, **kwargs)
