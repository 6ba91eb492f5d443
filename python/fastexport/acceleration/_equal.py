"""Whether two outcomes, or two torch graphs, are the same in everything that can be seen: for ``verify=True``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fastexport._errors import FastExportError


class AccelerationError(FastExportError):
    """With ``verify=True``: ours and torch's came to different results. The message names the replacement and where."""


class Outcome(NamedTuple):
    """What a call gave: its result, or the exception it raised."""

    result: Any
    error: BaseException | None

    def value(self) -> Any:
        """The result; the exception is raised."""
        if self.error is not None:
            raise self.error
        return self.result


def outcome(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
    """Call a function and keep what came of it."""
    try:
        return Outcome(function(*args, **kwargs), None)
    except Exception as error:
        return Outcome(None, error)


def require_same(expected: Outcome, found: Outcome, name: str) -> None:
    """Raise AccelerationError unless both gave equal results or equal exceptions."""
    if type(expected.error) is not type(found.error) or str(expected.error) != str(found.error):
        raise AccelerationError(f"{name}: torch gives {expected.error!r}, fastexport {found.error!r}")
    difference = find_difference(expected.result, found.result)
    if difference:
        raise AccelerationError(f"{name}: {difference}")


def find_difference(expected: Any, found: Any) -> str | None:
    """Where two results differ, in words; None where they don't."""
    raise NotImplementedError
