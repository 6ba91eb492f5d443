"""What every test shares: one thread for torch, and the same hypothesis examples each time.

`--hypothesis-profile=default` looks for new examples instead; `./run asan` takes fewer, by `sanitized`.
"""

import gc
import logging
import os
import signal
import warnings

# Torch reads these once; it is not imported here, so that tests can see that we don't either.
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# What is started in the background ignores Ctrl-C, and so would the processes that tests send one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

from browser import browser  # noqa: E402, F401

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,  # the sanitizers slow everything down
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("sanitized", settings.get_profile("ci"), max_examples=20)
settings.load_profile("ci")


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write the files of tests/golden anew")


def pytest_collection_modifyitems(items):
    for item in items:
        if "browser" in item.fixturenames:
            item.add_marker("browser")


@pytest.fixture(scope="module", autouse=True)
def only_its_own_garbage():
    """A collection looks through what the tests of a file made: not also through torch and all that came before."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def quiet():
    """Leave torch's warnings and logs out: one of its own messages can't be formatted, which pytest makes an error."""
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)
