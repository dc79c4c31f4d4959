"""A context that cuts what the tests compute into tiles, and PyTorch, with which it is compared."""

import os

import pytest
from python.support import SMALL

import oocdnn


@pytest.fixture(scope="module", autouse=True)
def ctx():
    # Calls are small: on a busy machine threads wait for each other longer than they work.
    device = os.environ.get("OOCDNN_TEST_DEVICE", "cpu")
    with oocdnn.Context(device, SMALL, threads=1) as context:
        yield context


@pytest.fixture(scope="module")
def torch():
    module = pytest.importorskip("torch", reason="torch is not installed")
    module.set_num_threads(1)
    return module
