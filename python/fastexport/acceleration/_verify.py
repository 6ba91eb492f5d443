"""Doing a job both ways and comparing: what ``accelerate(verify=True)`` calls in the place of ours.

`verify_result` is for functions that only give a result, `verify_method` for those that change what they are given,
`verify_maker` for those that make functions. torch's function runs first; then the states of the random generators are
put back and ours runs; then results or exceptions, warnings and random states are compared. Importing this module
imports no torch.
"""

from __future__ import annotations

import functools
import random
import re
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from fastexport._errors import FastExportError


class AccelerationError(FastExportError):
    """With ``verify=True``: ours and torch's came to different results. The message names the replacement and where."""

    __module__ = "fastexport"


class Outcome(NamedTuple):
    """What a call gave: its result, or the exception it raised; its warnings; and where the random generators stand."""

    result: Any
    error: Exception | None
    warnings: list[warnings.WarningMessage]
    random: list[Any]

    def value(self) -> Any:
        """The result; the exception is raised. The warnings are given again."""
        for item in self.warnings:
            warnings.warn_explicit(item.message, item.category, item.filename, item.lineno)
        if self.error is not None:
            raise self.error
        return self.result


def outcome(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
    """Call a function and keep what came of it."""
    result = raised = None
    with warnings.catch_warnings(record=True) as given:
        try:
            result = function(*args, **kwargs)
        except AccelerationError:  # of something that ours uses
            raise
        except Exception as error:
            raised = error
    return Outcome(result, raised, given or [], _random_states())


def verify_result(ours: Callable[..., Any], stock: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> Any:
    """Call both on the same arguments; for functions that don't change them. The default of `Replacement`.

    Args:
        ours, stock: the two, called as ``ours(*args, **kwargs)``.
        args, kwargs: the arguments.

    Returns:
        The result of ours.

    Raises:
        AccelerationError: they differ in anything that `find_difference` sees.
        Exception: what both raise.
    """
    states = _random_states()
    expected = outcome(stock, args, kwargs)
    _set_random_states(states)
    found = outcome(ours, args, kwargs)
    require_same(expected, found, _name(ours))
    return found.value()


def verify_method(ours: Callable[..., Any], stock: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> Any:
    """Call torch's on copies of the arguments and ours on the arguments; then compare results and arguments too.

    For functions that change a Graph, a GraphModule or their nodes, or the object that they are a method of; how the
    copies are made is told in `fastexport.acceleration._clone`. Use it as ``Replacement(..., verify=verify_method)``.

    Args and errors are those of `verify_result`; and AccelerationError when torch's writes into a tensor of the
    arguments: the copies share tensors, so that such a function needs a ``verify`` of its own.
    """
    from fastexport.acceleration import _clone

    name = _name(ours)
    with warnings.catch_warnings():  # of what is copied, not of the job
        warnings.simplefilter("ignore")
        twins, twin_kwargs, copies = _clone.clone(args, kwargs)
    states = _random_states()
    expected = outcome(stock, twins, twin_kwargs)
    written = copies.written_tensors()
    if written:
        raise AccelerationError(f"{name}: torch writes into a tensor of shape {list(written[0].shape)}, so that a copy "
                                "can't be compared; the replacement needs a verify of its own")  # fmt: skip
    _set_random_states(states)
    found = outcome(ours, args, kwargs)
    require_same(expected, found, name, (twins, twin_kwargs), (args, kwargs))
    return found.value()


def verify_maker(ours: Callable[..., Any], stock: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> Any:
    """Call both, which give a function each, and compare what these give whenever the result is called.

    For functions that make functions. Args and errors are those of `verify_result`; so is what is compared of a call.
    """
    made_by_stock, made_by_ours = stock(*args, **kwargs), ours(*args, **kwargs)

    @functools.wraps(made_by_ours)
    def made(*args: Any, **kwargs: Any) -> Any:
        return verify_result(made_by_ours, made_by_stock, args, kwargs)

    return made


def require_same(expected: Outcome, found: Outcome, name: str, before: Any = None, after: Any = None) -> None:
    """Raise AccelerationError unless both gave equal results, or equal exceptions, and left the same behind.

    Args:
        expected, found: what torch and fastexport gave.
        name: of the replacement, for the message.
        before, after: what torch's and ours worked on, to be compared too.
    """
    from fastexport.acceleration import _equal

    if type(expected.error) is not type(found.error) or _text(expected.error) != _text(found.error):
        raise AccelerationError(f"{name}: torch gives {_told(expected)}, fastexport {_told(found)}") from found.error
    given = [[(item.category, str(item.message)) for item in each.warnings] for each in (expected, found)]
    for what, a, b in (
        ("result", expected.result, found.result),
        ("arguments", before, after),
        ("warnings", given[0], given[1]),
        ("random states", expected.random, found.random),
    ):
        difference = _equal.find_difference(a, b, what)
        if difference:
            raise AccelerationError(f"{name}: {difference}")


def _text(error: Exception | None) -> str:
    """What an exception says, without the number in the name of a file of generated code."""
    return re.sub(r"<eval_with_key>\.\d+", "<eval_with_key>", str(error))


def _told(each: Outcome) -> str:
    return "a result" if each.error is None else repr(each.error)


def _name(ours: Any) -> str:
    function = getattr(ours, "func", ours)
    return getattr(function, "__name__", repr(function))


def _random_states() -> list[Any]:
    """The states of the generators of Python, torch and numpy, of those that are imported."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    return [
        random.getstate(),
        torch.get_rng_state() if torch is not None else None,
        numpy.random.get_state() if numpy is not None else None,
    ]


def _set_random_states(states: list[Any]) -> None:
    random.setstate(states[0])
    if states[1] is not None:
        sys.modules["torch"].set_rng_state(states[1])
    if states[2] is not None:
        sys.modules["numpy"].random.set_state(states[2])
