"""One context for the tests of a file, small enough that calls run in several tiles; and the CPU's
tensors as a device's, for `memory_limit`."""

import gc
import os

import pytest
from python.support import SMALL

import oocdnn


@pytest.fixture(scope="module")
def ctx():
    with oocdnn.Context(os.environ.get("OOCDNN_TEST_DEVICE", "cpu"), SMALL) as context:
        yield context


@pytest.fixture
def card():
    from oocdnn.torch.limit.host_card import HostCard  # needs PyTorch

    made = HostCard()
    yield made
    made.close()


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's allocator, as it is simulated, with sizes of a thousandth. Optimizers of earlier
    tests, whose state would be expected, are gone."""
    from oocdnn.torch.limit import low_memory  # needs PyTorch
    from oocdnn.torch.limit.heap import allocator

    gc.collect()
    monkeypatch.setattr(low_memory, "_ROUNDING", 2 << 10)

    monkeypatch.setattr(allocator, "_RULES", allocator.HeapRules(1 << 10, 2 << 10, 20 << 10))
