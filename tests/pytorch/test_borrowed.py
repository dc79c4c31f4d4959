"""Memory of other GPUs that holds what leaves this one."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("highspy", reason="plans of networks are solved by HiGHS")

from oocdnn.errors import InvalidProblem, OutOfMemory
from oocdnn.network.plan import Policy
from oocdnn.network.timeline import Link
from oocdnn.torch.limit import gpus, links, trials
from oocdnn.torch.limit.gpus import borrowed_of
from oocdnn.torch.limit.host_card import HostCard
from oocdnn.torch.limit.lenders import Lenders, whole_pages
from oocdnn.torch.limit.links import Links, joined
from oocdnn.torch.limit.session import memory_limit
from oocdnn.torch.limit.store import Store

HOST = Link(50e6, 40e6, 80e6, name="host")
OTHERS = Link(400e6, 300e6, 600e6, name="cuda:1")


class FakeSlab:
    def __init__(self, nbytes: int, lender: int) -> None:
        self.nbytes, self.lender = nbytes, lender


class FakeSwapper:
    """GPU 2 has no memory."""

    def slab(self, nbytes: int, lender: int) -> FakeSlab:
        if lender == 2:
            raise OutOfMemory("GPU 2 has none")
        return FakeSlab(nbytes, lender)


def test_gpus_lend_as_many_bytes_as_they_may() -> None:
    lenders = Lenders(FakeSwapper(), {2: 1000, 1: 100, 3: 60})  # type: ignore[arg-type]
    first = lenders.slab(60)
    second, third = lenders.slab(50), lenders.slab(40)
    assert first is not None
    assert second is not None
    assert third is not None
    assert [one.lender for one in (first, second, third)] == [1, 3, 1]  # type: ignore[attr-defined]
    assert lenders.slab(11) is None
    del first
    gc.collect()
    again = lenders.slab(60)
    assert again is not None
    assert again.lender == 1  # type: ignore[attr-defined]


def test_large_slabs_count_in_whole_pages() -> None:
    lenders = Lenders(FakeSwapper(), {1: 5 << 20})  # type: ignore[arg-type]
    held = [lenders.slab((2 << 20) + 1)]
    assert held[0] is not None
    assert lenders.slab((1 << 20) + 1) is None
    assert lenders.slab(1 << 20) is not None


@pytest.mark.parametrize("lent", [1, 1 << 20, 3 << 19, 2 << 20, 100_000_000])
def test_a_lender_has_a_slab_of_the_whole_pages_that_it_lends(lent: int) -> None:
    """With which its link is measured."""
    lenders = Lenders(FakeSwapper(), {1: lent})  # type: ignore[arg-type]
    assert 0 < whole_pages(lent) <= lent
    assert lenders.slab(whole_pages(lent)) is not None


def test_another_plan_begins_without_idle_slabs() -> None:
    card = HostCard()
    for borrowed in ({}, {1: 1 << 20}):
        card.borrowed = borrowed
        store = Store(card)
        first = store._slabs.take(4096)
        store._slabs.keep(first)
        store.renew()
        assert (store._slabs.take(4096) is first) == (not borrowed)
    card.close()


def test_a_joined_link_takes_the_time_of_all() -> None:
    link = joined([OTHERS, HOST], [250, 750])
    assert 1e6 / link.to_host == pytest.approx(0.25e6 / 400e6 + 0.75e6 / 50e6)
    assert 1e6 / link.from_host == pytest.approx(0.25e6 / 300e6 + 0.75e6 / 40e6)
    assert link.name == "cuda:1 and host"
    assert joined([OTHERS, HOST], [1, 0]) == OTHERS
    assert joined([OTHERS, HOST], [0, 0]) == HOST


@pytest.mark.parametrize(
    ("borrowed", "name"), [(0, "host"), (1 << 40, "cuda:1"), (20_000, "cuda:1 and host")]
)
def test_plans_have_the_rates_of_what_is_borrowed(
    borrowed: int, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Plans that are taken from a file have them too."""
    torch.manual_seed(1)
    layers = [
        layer
        for _ in range(8)
        for layer in (torch.nn.Conv1d(4, 4, 3, padding=1), torch.nn.Softsign())
    ]
    net = torch.nn.Sequential(*layers)
    x = torch.randn(8, 4, 256)
    card = HostCard(least_bytes=256)
    card.borrowed = {1: borrowed} if borrowed else {}
    found = [OTHERS, HOST] if borrowed else [HOST]
    monkeypatch.setattr(links, "measured_links", lambda _: list(found))
    monkeypatch.setattr(trials, "admit", lambda *_: "no recipes: only swaps fit, however slow")
    monkeypatch.setattr(card, "others", lambda: 0)
    for _ in range(2):
        run = memory_limit(400_000, planning=0.2, card=card, plan_file=tmp_path / "plans.json")
        with run:
            for _ in range(4):
                net(x).square().mean().backward()
                run.step()
        assert run.plan is not None
        assert any(one.policy is Policy.SWAP for one in run.plan.schedule.choices)
        assert run.plan.swapped_bytes > 20_000
        assert [link.name for link in run.plan.links] == [name]
        assert run.links == found
    card.close()


@pytest.mark.parametrize(
    ("borrow", "told"),
    [
        ({"cuda:0": "1GiB"}, "1073741824 bytes of cuda:0 for cuda:0: a GPU borrows bytes"),
        (["cuda:0"], "0 bytes of cuda:0 for cuda:0"),
        ({"cuda:1": -1}, "-1"),
        ({"cuda:1": 5, torch.device("cuda", 1): 6}, "each of them named once"),
        ({"cuda:1": "x"}, "what cuda:1 lends"),
    ],
)
def test_what_cannot_be_borrowed_is_told(
    borrow: dict[Any, Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = torch.device("cuda", 0)
    for text in ("cuda:1=1GiB", ""):
        with pytest.raises(InvalidProblem, match=f"borrow is '{text}'; it must be GPUs, as"):
            borrowed_of(gpu, text)  # type: ignore[arg-type]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(gpus, "driver_bytes", lambda _: (100, 200))
    with pytest.raises(InvalidProblem, match=told):
        borrowed_of(gpu, borrow)
    with pytest.raises(OutOfMemory, match="101 bytes are to be borrowed of cuda:1, and 100 are"):
        borrowed_of(gpu, {"cuda:1": 101})
    assert borrowed_of(gpu, {"cuda:1": 100}) == {1: 100}
    assert borrowed_of(gpu, ["cuda:1"]) == borrowed_of(gpu, {"cuda:1": 0}) == {1: 0}


def test_each_lender_is_measured_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """With as many bytes as it lends, and before anything is trained."""
    asked: list[tuple[int, int]] = []

    class Card(HostCard):
        def __init__(
            self,
            device: torch.device,
            borrowed: dict[int, int] | None = None,
            swapper: object = None,
        ) -> None:
            super().__init__()
            self.device, self.borrowed = device, borrowed or {}
            self.swapper = swapper or self
            self.probe_bytes = 1 << 28

        def slab(self, nbytes: int, lender: int | None = None) -> torch.Tensor:
            assert lender is not None
            asked.append((lender, nbytes))
            return torch.empty(0)

    def measured(card: Card, name: str = "host") -> Link:
        nbytes = sum(card.borrowed.values())
        return Link(1e9 + nbytes, 1e9, 2e9, name=name)

    monkeypatch.setattr(links, "CudaCard", Card)
    monkeypatch.setattr(links, "measured", measured)
    found = Links(Card(torch.device("cuda", 0), {2: 1 << 30, 3: 0, 1: 4096}))
    found.measure()
    assert [(link.name, link.to_host) for link in found.each] == [
        ("cuda:2", 1e9 + (1 << 30)),
        ("cuda:1", 1e9 + 4096),
        ("host", 1e9),
    ]
    assert asked == [(2, 1 << 28), (1, 2048)]
    assert found.joined_for(1 << 30).name == "cuda:2"
    assert found.joined_for((1 << 30) + 4096).name == "cuda:2 and cuda:1"
    assert found.joined_for(1 << 31).name == "cuda:2 and cuda:1 and host"
