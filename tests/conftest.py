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

# Tests run programs in folders of their own, where a relative path names nothing.
TESTING_LIBRARY = os.environ.get("OOCDNN_TESTING_LIBRARY", "")
if TESTING_LIBRARY and not (Path(TESTING_LIBRARY).is_absolute() and Path(TESTING_LIBRARY).exists()):
    raise pytest.UsageError(
        f"OOCDNN_TESTING_LIBRARY={TESTING_LIBRARY} is not the absolute path of a file; pass, for "
        f"instance, {Path('build/native/lib/liboocdnn_testing.so').resolve()}"
    )

import oocdnn  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def open_gpu():
    if ON_CPU:
        yield
        return
    context = oocdnn.Context(os.environ["OOCDNN_TEST_DEVICE"], "1MiB")
    yield
    context.close()
