"""What else computes on a GPU, on a card made of host memory: what it does and in which order."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import oocdnn
from oocdnn.bench import suite
from oocdnn.bench.peers import card as card_peers
from oocdnn.bench.peers.card import CARD_PEERS
from oocdnn.bench.peers.peer import Absent, give_back
from oocdnn.bench.results import Row
from oocdnn.bench.task import Convolution
from oocdnn.bench.tensor import tensor

torch = pytest.importorskip("torch")

ONCE = dataclasses.replace(suite.QUICK, least=1, most=1)
FORWARD = "conv2d:fwd x4x16x24x23 w32x16x3x3 pad1 f32"
PROBLEMS = (
    FORWARD,
    "conv2d:bwd_data x2x8x12x11 w6x8x3x3 pad1 bf16",
    "conv2d:bwd_data x2x8x12x11 w6x8x3x3 pad1 f32 +maxpool2 +clipped +dw +db",
)


class HostBlock:
    """Managed memory that remembers where it was sent."""

    def __init__(self, name: str, array: Any, moves: list[str]) -> None:
        self.name, self.moves = name, moves
        memory = np.full(array.shape, 0, array.dtype)
        self.tensor, self.host = tensor(torch, memory), memory.reshape(-1).view(np.uint8)

    def prefetch(self, to_gpu: bool) -> None:
        self.moves.append(f"{self.name} {'in' if to_gpu else 'out'}")

    def close(self) -> None:
        self.moves.append(f"{self.name} freed")


class HostCard:
    torch, device = torch, "cpu"

    def __init__(self) -> None:
        self.moves = list[str]()

    def reached(self, array: Any) -> Any:
        return tensor(torch, array)

    def managed(self, arrays: Mapping[str, Any]) -> dict[str, HostBlock]:
        return {name: HostBlock(name, array, self.moves) for name, array in arrays.items()}


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> HostCard:
    made = HostCard()
    monkeypatch.setattr(card_peers, "card_of", lambda device, tf32: made)
    return made


def row_of(text: str, who: str, pinned: bool = True) -> Row:
    made = suite.Bench(suite.Settings("cpu", "1MiB", pinned, (who,), ONCE))
    ours, row = made.rows(suite.case_of(text, "cpu"))
    assert (ours["check"], row["who"]) == ("pass", who)
    return row


@pytest.mark.parametrize("text", PROBLEMS)
@pytest.mark.parametrize("who", CARD_PEERS)
def test_each_leaves_the_right_result(card: HostCard, who: str, text: str) -> None:
    assert row_of(text, who)["check"] == "pass"


def assert_each_call(moves: list[str], one: list[str]) -> None:
    """The moves of each of two calls, or of more where some did not count, and then the end."""
    *calls, a, b, c = moves
    assert [a, b, c] == ["y freed", "w freed", "x freed"]
    assert len(calls) >= 2 * len(one)
    assert calls == one * (len(calls) // len(one))


def test_pages_are_fetched_on_demand_and_begin_in_the_host(card: HostCard) -> None:
    row_of(FORWARD, "managed")
    assert_each_call(card.moves, ["x out", "w out", "y out"])


def test_what_is_prefetched_is_moved_before_and_the_result_after(card: HostCard) -> None:
    row_of(FORWARD, "prefetch")
    begin, call = ["x out", "w out", "y out"], ["x in", "w in", "y in", "y out"]
    assert_each_call(card.moves, [*begin, *call])


def test_zero_copy_needs_pinned_arrays(card: HostCard) -> None:
    assert row_of(FORWARD, "zero-copy", pinned=False)["check"] == (
        "skipped: its arrays have to be pinned: --placement pinned"
    )


def test_managed_memory_that_is_too_large_is_a_reason(
    card: HostCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: HostCard, arrays: object) -> None:
        raise MemoryError("9 bytes of managed memory, 8 are free on the GPU")

    monkeypatch.setattr(HostCard, "managed", refuse)
    assert row_of(FORWARD, "prefetch")["check"].startswith("skipped: 9 bytes of managed memory")


@pytest.mark.parametrize("who", CARD_PEERS)
def test_without_a_gpu_each_says_so(who: str) -> None:
    assert row_of(FORWARD, who)["check"] == "skipped: it is for GPUs, and the device is the CPU"


def test_without_a_gpu_that_torch_sees_each_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with oocdnn.Context("cpu", "1MiB") as context:
        task = Convolution(FORWARD).task(context, pinned=True)
    with pytest.raises(Absent, match="torch sees no GPU"), CARD_PEERS["copies"](task, "cuda:0"):
        pass


def test_what_torch_keeps_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    emptied = list[int]()
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(1))
    give_back("cpu")
    assert emptied == []
    give_back("cuda:0")
    assert emptied == [1]
