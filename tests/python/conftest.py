"""A context for each test, small enough that its calls run in several tiles; a file of plans."""

import os

import pytest
from python.support import SMALL

import oocdnn


@pytest.fixture
def ctx():
    with oocdnn.Context(os.environ.get("OOCDNN_TEST_DEVICE", "cpu"), SMALL) as context:
        yield context


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Where plans are remembered. Rates are guesses, which are the same in every process."""
    path = tmp_path / "folder" / "plans.sqlite"
    monkeypatch.setenv("OOCDNN_PLANS", str(path))
    monkeypatch.setenv("OOCDNN_PROFILE", "none")
    return path
