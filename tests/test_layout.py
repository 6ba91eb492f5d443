"""The layout of boxes and edges as Python calls it; what holds for every layout, tests/core/test_layout.c checks."""

import gc
import threading

import pytest

from fastexport import Graph, _core

BOXES = [(40.0, 20.0, 0)] * 3
GAPS = (12.0, 6.0, 20.0)


def test_a_chain_and_a_long_edge() -> None:
    edges = [(0, 1, 0.0, 0.0), (1, 2, 0.0, 0.0), (0, 2, 0.0, 0.0), (2, 2, 0.0, 0.0)]
    width, height, corners, routes = _core.lay_out(BOXES, edges, GAPS)
    start, turn = routes[2][0][:2]
    assert height == 100.0 + 2 * (turn[0] - start[0]) / 16  # ranks are further apart where an edge goes to the side
    assert [rank for _, _, rank in corners] == [0, 1, 2]
    assert corners[1][0] + 40 + GAPS[1] <= width
    assert [turned for _, turned in routes] == [False] * 4
    assert [len(points) for points, _ in routes] == [2, 2, 4, 0]


def test_ranks_that_are_asked_for() -> None:
    boxes = [(8.0, 10.0, 1), (40.0, 20.0, 0), (8.0, 10.0, 2), (8.0, 10.0, 1), (40.0, 20.0, 0)]
    edges = [(0, 1, 0.0, 0.0), (1, 2, 0.0, 0.0), (3, 4, 0.0, 0.0)]
    _, height, corners, _ = _core.lay_out(boxes, edges, GAPS)
    assert [rank for _, _, rank in corners] == [0, 1, 2, 0, 1]
    assert corners[0][1] == corners[3][1] == 0 and corners[2][1] + 10 == height


def test_nothing() -> None:
    assert _core.lay_out([], [], GAPS) == (0.0, 0.0, [], [])


class Changing:
    """A number that empties a list when it is asked for its value."""

    def __init__(self) -> None:
        self.items: list[object] = []

    def __float__(self) -> float:
        self.items.clear()
        return 1.0


@pytest.mark.parametrize(
    "boxes,edges,error,message",
    [
        ((), [], TypeError, "argument 1 must be list"),
        ([1], [], TypeError, r"a box is a tuple \(width, height, rank\)"),
        ([(1.0, 2.0)], [], TypeError, "3 arguments"),
        ([("a", 2.0, 0)], [], TypeError, "real number"),
        ([(1.0, 2.0, 300)], [], OverflowError, "greater than maximum"),
        ([(1.0, 2.0, 3)], [], ValueError, "the rank of box 0 is 0, 1 or 2"),
        ([(float("nan"), 2.0, 0)], [], ValueError, "the width and height of box 0"),
        (BOXES, [None], TypeError, "an edge is a tuple"),
        (BOXES, [(0, 3, 0.0, 0.0)], ValueError, "edge 0 is between boxes that are not there"),
        (BOXES, [(0, -1, 0.0, 0.0)], ValueError, "edge 0 is between boxes that are not there"),
        (BOXES, [(0, 2**32 + 1, 0.0, 0.0)], ValueError, "edge 0 is between boxes that are not there"),
        (BOXES, [(-(2**32), 1, 0.0, 0.0)], ValueError, "edge 0 is between boxes that are not there"),
        (BOXES, [(0, 2**70, 0.0, 0.0)], OverflowError, "too large"),
        (BOXES, [(0, 1, float("inf"), 0.0)], ValueError, "edge 0 meets its boxes at no number"),
    ],
)
def test_bad_input(boxes: list[object], edges: list[object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        _core.lay_out(boxes, edges, GAPS)  # type: ignore[arg-type]


def test_a_list_that_changes_meanwhile() -> None:
    size = Changing()
    boxes: list[object] = [(size, 1.0, 0), (1.0, 1.0, 0)]
    size.items = boxes
    with pytest.raises(TypeError, match="a box is a tuple"):
        _core.lay_out(boxes, [], GAPS)  # type: ignore[arg-type]


def test_the_collector_rests_while_the_answer_is_made() -> None:
    """Its tuples are many and none is garbage; once it may run, when the last is made."""
    runs = []

    def note(phase: str, info: object) -> None:
        runs.append(phase)

    gc.callbacks.append(note)
    try:
        _core.lay_out(BOXES[:1] * 5000, [], GAPS)
    finally:
        gc.callbacks.remove(note)
    assert runs.count("start") <= 1
    assert gc.isenabled()
    gc.disable()
    try:
        _core.lay_out(BOXES, [], GAPS)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_threads() -> None:
    """The GIL is released while boxes are placed; each thread gets what one alone does."""
    count = 2000
    edges = [(i, j, 0.0, 0.0) for i in range(count) for j in (i + 1, i + 7) if j < count]
    alone = _core.lay_out(BOXES[:1] * count, edges, GAPS)
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(_core.lay_out(BOXES[:1] * count, edges, GAPS))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [alone] * 4


def test_facts_of_other_things() -> None:
    with pytest.raises(TypeError, match="takes a Graph of fastexport"):
        _core.level_facts(3)  # type: ignore[arg-type]
    assert _core.level_facts(Graph()) == []
