"""When these tests are skipped: never because the library is missing where it should be."""

import platform
import shutil

import pytest
from spill import scene


@pytest.mark.skipif(platform.machine() != "x86_64", reason="of x86-64")
def test_a_missing_library_is_no_reason(monkeypatch, tmp_path):
    monkeypatch.setattr(scene, "spill_path", lambda: tmp_path / "none.so")
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    assert scene.why_not() is None
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert "gcc" in str(scene.why_not())
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert "x86-64" in str(scene.why_not())
