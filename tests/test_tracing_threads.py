"""Traces in several threads: none sees another's, torch's included, and nothing is left in place of anything."""

import contextvars
import math
import sys
import threading

import pytest
import torch
from torch import fx

import fastexport as fe
from fastexport import _wrapping
from test_threads import in_threads

scale = math.sqrt  # what the autowrapping tracer finds


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        return torch.relu(self.linear(x)) + self.weight


def state():
    """All that a trace puts something in place of."""
    return (
        torch.nn.Module.__call__,
        torch.nn.Module.__getattr__,
        fx.Tracer.trace,
        fx._symbolic_trace._is_fx_tracing_flag,
        math.sqrt,
        scale,
    )


@pytest.fixture(autouse=True)
def nothing_is_left():
    before, interval = state(), sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)
    assert state() == before
    assert not _wrapping._places
    assert _wrapping.running() is None


def repeated(function, times=25):
    def run():
        for _ in range(times):
            function()

    return run


def trace_ours():
    assert [node.op for node in fe.symbolic_trace(Model()).graph.nodes] == [
        "placeholder",
        "call_module",
        "call_function",
        "get_attr",
        "call_function",
        "output",
    ]


def trace_torchs():
    assert len(fx.symbolic_trace(Model()).graph.nodes) == 6


def run_module():
    assert Model()(torch.ones(1, 2)).shape == (1, 2)


def trace_failing():
    with pytest.raises(fe.TraceError):
        fe.symbolic_trace(lambda x: 1 if x else 2)


def test_traces_of_ours_side_by_side():
    assert in_threads(*[repeated(f) for f in (trace_ours, trace_ours, trace_failing, run_module)]) == [None] * 4


def test_a_trace_of_torchs_at_the_same_time():
    """torch's own traces can't run side by side; one beside ours can."""
    assert in_threads(*[repeated(f) for f in (trace_ours, trace_torchs, trace_failing, run_ours)]) == [None] * 4


def run_ours():
    assert len(fe.replace_pattern(fe.symbolic_trace(Model()), lambda x: torch.relu(x), lambda x: torch.sigmoid(x))) == 1


def test_torch_begins_first():
    """A trace of torch's that is going on when ours begins: ours waits, and sees its own modules only."""
    inside, result = threading.Event(), []

    def slow(x):
        ours.start()
        inside.set()
        ours.join(0.2)
        assert ours.is_alive()  # it waits
        return torch.relu(x)

    ours = threading.Thread(target=lambda: result.append(trace_ours()))
    assert len(fx.symbolic_trace(slow).graph.nodes) == 3
    ours.join()
    assert result == [None]


def test_torch_waits_for_ours():
    result, theirs = [], threading.Thread(target=lambda: result.append(trace_torchs()))

    def slow(x):
        theirs.start()
        theirs.join(0.2)
        assert theirs.is_alive()
        return torch.relu(x)

    assert len(fe.symbolic_trace(slow).graph.nodes) == 3
    theirs.join()
    assert result == [None]


def test_nested():
    def inner(x):
        trace_torchs()
        trace_ours()
        return torch.relu(x)

    assert len(fe.symbolic_trace(inner).graph.nodes) == 3
    assert len(fx.symbolic_trace(inner).graph.nodes) == 3


def test_a_function_that_only_one_tracer_wraps():
    """What one trace records as one call, another in another thread looks into."""
    kept, both = fe.Tracer(autowrap_functions=(helper,)), threading.Barrier(2)

    def program(x):
        both.wait(10)
        y = helper(x)
        both.wait(10)
        return y

    traced = {}

    def trace(name, tracer):
        traced[name] = [node.target for node in tracer.trace(program).nodes if node.op == "call_function"]

    errors = in_threads(lambda: trace("kept", kept), lambda: trace("open", fe.Tracer()))
    assert errors == [None, None]
    assert traced == {"kept": [original_helper], "open": [torch.relu]}


def helper(x):
    return torch.relu(x)


original_helper = helper


def test_a_context_that_is_copied_into_another_thread():
    """The thread that a traced function starts is not traced, whatever context it runs in."""
    errors = []

    def program(x):
        context = contextvars.copy_context()
        errors.extend(in_threads(lambda: context.run(run_module)))
        return torch.relu(x)

    assert len(fe.symbolic_trace(program).graph.nodes) == 3
    assert errors == [None]


def test_a_trace_that_is_left_open_in_another_context():
    """A program that stops in the midst of a trace, as a greenlet's may, is seen by nobody else in the thread."""

    def program(x):
        contextvars.Context().run(run_module)
        return torch.relu(x)

    assert len(fe.symbolic_trace(program).graph.nodes) == 3
