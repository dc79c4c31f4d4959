"""A context for each test, small enough that its calls run in several tiles."""

import os

import pytest
from python.support import SMALL

import oocdnn


@pytest.fixture
def ctx():
    with oocdnn.Context(os.environ.get("OOCDNN_TEST_DEVICE", "cpu"), SMALL) as context:
        yield context
