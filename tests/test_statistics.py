"""Statistics and bytes of tensors with hostile strides; values are in test_weights.py, sums in tests/core."""

import pytest

from fastexport._core import Storage, Tensor
from fastexport._dtypes import DType
from helpers import run_python

FLOAT = DType("float32")

INTERRUPTED = """
    import signal, sys
    from fastexport._core import Storage, Tensor
    from fastexport._dtypes import DType

    shape, strides = eval(sys.argv[1])
    tensor = Tensor(Storage(bytearray(1 << 16)), DType(sys.argv[2]), shape, strides)  # of years of work
    def stop(number, frame):
        raise KeyboardInterrupt("enough")
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        tensor.statistics()
    except KeyboardInterrupt as e:
        print(e)
"""


@pytest.mark.parametrize(
    "view",
    [
        "(1 << 55,), (0,)",
        "(1 << 53, 2), (0, 1)",  # rows of two
        "(1 << 55, 1), (0, 1)",  # and of one
        "((1 << 14,) * 4), (1, 0, 0, 0)",
    ],
)
def test_a_signal_ends_what_would_take_years(view):
    assert run_python(INTERRUPTED, view, "float32", timeout=60) == "enough\n"


def test_a_signal_that_nobody_minds():
    """Handlers run while it goes on (of what comes after, one would be heard); the numbers are of all elements."""
    code = """
        import signal
        from fastexport._core import Storage, Tensor
        from fastexport._dtypes import DType

        count = (1 << 24) + 5
        tensor = Tensor(Storage(b"\\1\\0\\2"), DType("uint8"), (count, 3), (0, 1))
        heard = []
        signal.signal(signal.SIGALRM, lambda *_: heard.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        found = tensor.statistics()
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(len(heard) > 1, found.min, found.max, found.mean, found.zeros == count)
        print(Tensor(Storage(bytes(1 << 25)), DType("uint8"), (1 << 24, 2), (1, 1)).tobytes() == bytes(1 << 25))
    """
    assert run_python(code) == "True 0 2 1.0 True\nTrue\n"


def test_bools_are_looked_at_where_they_lie():
    """What lies between them may be anything."""
    data = Storage(b"\1\7\0\7\1\7")
    bools = Tensor(data, DType("bool"), (3,), (2,))
    assert bools.tolist() == [True, False, True] and bools.statistics().zeros == 1
    with pytest.raises(Exception, match="bytes other than 0 and 1"):
        Tensor(data, DType("bool"), (3,), (2,), 1).tolist()
    with pytest.raises(Exception, match="bytes other than 0 and 1"):
        Tensor(data, DType("bool"), (3,)).tolist()


def test_more_bytes_than_memory_can_hold():
    tensor = Tensor(Storage(bytes(8)), FLOAT, (1 << 58,), (0,))
    with pytest.raises(MemoryError):
        tensor.tobytes()
    with pytest.raises(MemoryError):
        tensor.__dlpack__(copy=True)
