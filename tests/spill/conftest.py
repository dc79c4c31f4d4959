"""The tests of the spill library need it built, and a C compiler."""

import shutil
from pathlib import Path

import pytest
from spill.scene import build_client, spill_path


def pytest_collection_modifyitems(items):
    if spill_path().is_file() and shutil.which("gcc") is not None:
        return
    missing = pytest.mark.skip(reason="gcc, or the spill library, which takes x86-64, is not here")
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(missing)


@pytest.fixture(scope="session")
def client(tmp_path_factory):
    """Linked with libcudart.so.13."""
    return build_client(tmp_path_factory.mktemp("spill"), 13)
