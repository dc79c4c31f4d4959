"""The tests of the spill library need it built, and a C compiler."""

from pathlib import Path

import pytest
from spill.scene import build_client, spill_path, why_not


def pytest_collection_modifyitems(items):
    reason = why_not()
    for item in items:
        if reason is not None and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", autouse=True)
def library():
    """Where it should be, a library that is not is no reason to test nothing."""
    path = spill_path()
    assert path.is_file(), f"there is no {path}: is the package found that was built?"


@pytest.fixture(scope="session")
def client(tmp_path_factory):
    """Linked with libcudart.so.13."""
    return build_client(tmp_path_factory.mktemp("spill"), 13)
