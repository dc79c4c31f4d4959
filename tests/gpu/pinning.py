"""What the tests of pinned memory share: a small call, and a count of what is registered."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import oracle
import pytest
from driver import FAKE, driver
from python.support import assert_equal, integers

import oocdnn
from oocdnn._arrays import pins

W = integers((4, 3, 3, 3))
SHAPE = (2, 3, 40, 41)
# No array owns this memory, so it is staged for ever.
X = np.frombuffer(integers(SHAPE).tobytes(), np.float32).reshape(SHAPE)
Y = oracle.forward(X, W).astype(np.float32)


def make(**keywords: object) -> oocdnn.Context:
    try:
        return oocdnn.Context("cuda", "256KiB", **keywords)
    except oocdnn.Unsupported as error:
        pytest.skip(str(error))


@contextmanager
def checked(monkeypatch: pytest.MonkeyPatch) -> Iterator[oocdnn.Context]:
    """A context that pins small arrays too, from the second use on."""
    monkeypatch.setattr(pins, "LEAST_BYTES", 1 << 12)
    monkeypatch.setattr(pins, "USES", 1)
    with make(wrap="check") as context:
        yield context
        assert context.check_reports() == []


def counter(context: oocdnn.Context) -> Callable[[], int]:
    """Says how many more pieces of host memory are registered than now."""
    if not FAKE:
        pytest.skip("a driver does not say what is registered")
    context.conv2d(X, W, out=np.empty(Y.shape, np.float32))  # staging has its memory
    gc.collect()
    before = driver().fake_registered()
    return lambda: driver().fake_registered() - before


def ordinary(array: np.ndarray) -> bool:
    """Whether the memory is NumPy's own."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.base is None


def never_pinned() -> np.ndarray:
    """For a result, in memory that no array owns."""
    return np.frombuffer(bytearray(Y.nbytes), np.float32).reshape(Y.shape)


def use(context: oocdnn.Context, x: np.ndarray, out: np.ndarray | None = None) -> None:
    y = never_pinned() if out is None else out
    context.conv2d(x, W, out=y)
    assert_equal(y, Y)
