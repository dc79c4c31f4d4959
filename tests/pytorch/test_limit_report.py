"""The report and the trace of a memory limit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("highspy", reason="plans of networks are solved by HiGHS")

from pytorch.trained import LIMIT, pair, several

from oocdnn.errors import InvalidProblem
from oocdnn.torch.limit.host_card import HostCard
from oocdnn.torch.limit.session import memory_limit


def test_reports_and_traces_are_written(card: HostCard, tmp_path: Path) -> None:
    net, _, optimizer, _ = pair()
    with memory_limit(LIMIT, card=card, planning=0.1) as run:
        for ask in (run.report, run.trace):
            with pytest.raises(InvalidProblem, match="no plan yet"):
                ask(tmp_path / "page")
        several(net, optimizer, 16)
        (known,) = run._steps.kinds
        assert known.course is not None
        count = len(known.course.seconds)
        page = run.report(tmp_path / "page.html")
        events = run.trace(tmp_path / "trace.json")
        with pytest.raises(OSError, match="No such file"):
            run.report(tmp_path / "none" / "page.html")
    assert count >= 5
    assert f"the median of {count} steps" in page
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page
    assert json.loads((tmp_path / "trace.json").read_text(encoding="utf-8")) == events
    assert run.report() == page  # afterwards too
    assert sorted(one.name for one in tmp_path.iterdir()) == ["page.html", "trace.json"]


def test_steps_of_another_kind_are_not_counted(card: HostCard) -> None:
    net, _, optimizer, _ = pair()
    with memory_limit(LIMIT, card=card, planning=0.1) as run:
        several(net, optimizer, 14)
        (known,) = run._steps.kinds
        assert known.course is not None
        seconds = known.course.seconds
        seconds.clear()
        several(net, optimizer, 2)
        assert len(seconds) == 2
        with torch.no_grad():
            net(torch.zeros(8, 3, 16, 16))
        from pytorch.trained import step

        step(net, optimizer, batch=4)
        step(net, optimizer)  # it follows one of another kind
        assert len(seconds) == 2
        step(net, optimizer)
        assert len(seconds) == 3
