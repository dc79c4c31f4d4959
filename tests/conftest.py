"""Holds the GPU open where the suites run on one: opening it takes most of a small test's time."""

import os

import pytest

import oocdnn

# What one test has found is no other's business; tests of remembered plans name a file.
os.environ.setdefault("OOCDNN_PLANS", "none")


@pytest.fixture(scope="session", autouse=True)
def open_gpu():
    device = os.environ.get("OOCDNN_TEST_DEVICE", "cpu")
    if device == "cpu":
        yield
        return
    context = oocdnn.Context(device, "1MiB")
    yield
    context.close()
