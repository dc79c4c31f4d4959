"""The testing library: what `native/testing` exports for tests."""

from __future__ import annotations

import ctypes
import os


def load() -> ctypes.CDLL:
    """The library that OOCDNN_TESTING_LIBRARY names, of its own for the caller's declarations."""
    path = os.environ.get("OOCDNN_TESTING_LIBRARY")
    if not path:
        raise RuntimeError("OOCDNN_TESTING_LIBRARY must name the testing library (see the build)")
    return ctypes.CDLL(path)
