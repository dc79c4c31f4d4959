"""The training of the study `links`, on the CPU."""

from __future__ import annotations

import pytest

from oocdnn.bench.studies import links


def test_steps_are_timed_after_some(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.setattr(links, "WARM_STEPS", 1)
    spent = links.train("cpu", "small", 1, 0.01)
    assert len(spent) >= 1
    assert min(spent) > 0
