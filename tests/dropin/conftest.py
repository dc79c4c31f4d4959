"""The tests of the drop-in need it built, and serve themselves from the CPU, but for those that
replace `lib`."""

import os
from pathlib import Path

import pytest
from dropin.calls import Calls
from dropin.graphs import Graphs

from oocdnn import cudnn


def pytest_collection_modifyitems(items):
    if cudnn.dropin_path().is_file():
        return
    no_dropin = pytest.mark.skip(reason="the drop-in takes x86-64 and a build without sanitizers")
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(no_dropin)


@pytest.fixture(scope="session")
def lib():
    """The module oocdnn.cudnn; the drop-in decides at its first call who serves it."""
    before = os.environ.get("OOCDNN_DEVICE")
    os.environ["OOCDNN_DEVICE"] = "cpu"
    try:
        assert cudnn.cudnnGetVersion() > 90000
    finally:
        os.environ.pop("OOCDNN_DEVICE")
        if before is not None:
            os.environ["OOCDNN_DEVICE"] = before
    return cudnn


@pytest.fixture
def handle(lib):
    place = lib.ffi.new("cudnnHandle_t *")
    lib.check(lib.cudnnCreate(place))
    yield place[0]
    lib.check(lib.cudnnDestroy(place[0]))


@pytest.fixture
def calls(lib, handle):
    made = Calls(lib, handle)
    yield made
    made.close()


@pytest.fixture
def graphs(lib, handle):
    made = Graphs(lib, handle)
    yield made
    made.close()


@pytest.fixture
def log():
    """The lines that were logged since."""
    path = Path(os.environ["OOCDNN_LOG_FILE"])
    before = path.read_text().count("\n") if path.exists() else 0

    def lines() -> list[str]:
        return path.read_text().splitlines()[before:] if path.exists() else []

    return lines
