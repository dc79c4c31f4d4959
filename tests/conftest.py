"""What all tests run in: an environment that is the same on every machine, and the GPU held open
where the suites run on one, because opening it takes most of a small test's time."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples on every machine; the long runs draw new ones (--hypothesis-profile=default).
settings.register_profile("same", derandomize=True)
settings.load_profile("same")

ON_CPU = os.environ.get("OOCDNN_TEST_DEVICE", "cpu") == "cpu"

# What one test has found is no other's business; tests of remembered plans name a file.
os.environ.setdefault("OOCDNN_PLANS", "none")
# Nor is what this machine was found to be, busy as it may be: all plan for the same machine. Tests
# of what is measured name a file.
if ON_CPU:
    os.environ.setdefault("OOCDNN_PROFILE", str(Path(__file__).with_name("profile.txt")))
# Calls are small, so threads that turn while they wait take most of the processors' time, and from
# each other. Read when the libraries are loaded: before the next import.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import oocdnn  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def open_gpu():
    if ON_CPU:
        yield
        return
    context = oocdnn.Context(os.environ["OOCDNN_TEST_DEVICE"], "1MiB")
    yield
    context.close()
