"""A context for each test, small enough that its calls run in several tiles."""

import pytest
from python.support import SMALL

import oocdnn


@pytest.fixture
def ctx():
    with oocdnn.Context("cpu", SMALL) as context:
        yield context
