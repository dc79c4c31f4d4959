"""Steering of PyTorch's allocator in compiled steps: with a model of it, and points in graphs."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("highspy", reason="plans of networks are solved by HiGHS")

from torch import nn
from torch._inductor.utils import run_and_get_code

from oocdnn.torch.compiled import points as points_of_graphs
from oocdnn.torch.compiled import steering
from oocdnn.torch.compiled.backend import oocdnn
from oocdnn.torch.compiled.room import Room
from oocdnn.torch.compiled.steering import Steered
from oocdnn.torch.limit.heap.allocator import Allocator, Block, Heap
from oocdnn.torch.limit.heap.reading import Log
from oocdnn.torch.limit.host_card import HostCard

MIB = 1 << 20
Items = Sequence[tuple[int, int]]  # a number, and MiB that are allocated for it, or 0: it is freed
# Number 2 lies behind 1, so that 3 does not fit where 1 was.
STEP: tuple[Items, ...] = ([], [(1, 40)], [(2, 20)], [(1, 0), (3, 100)], [(3, 0), (2, 0)])
NATURAL, LIMIT = 180, 145  # MiB that are reserved, and that suffice


class Modelled(HostCard):
    """Whose driver counts what a model of PyTorch's allocator reserves."""

    def __init__(self, *, expandable: bool = True) -> None:
        super().__init__()
        self.allocator = Allocator(expandable=expandable)
        self.entries: list[tuple[bool, int, int]] | None = None
        self.reserved = self.most = 0  # since `trim`, and in a step
        self.library = 0
        self._blocks: dict[int, Block] = {}
        self.allocate(-1, 20)  # a parameter

    def allocate(self, number: int, mib: int) -> None:
        self._blocks[number] = self._made(mib * MIB)

    def free(self, number: int) -> None:
        self._ended(self._blocks.pop(number))

    def _made(self, nbytes: int) -> Block:
        block = self.allocator.allocate(nbytes)
        self.reserved = max(self.reserved, self.allocator.reserved)
        self.most = max(self.most, self.allocator.reserved)
        if self.entries is not None:
            self.entries.append((True, block.address, nbytes))
        return block

    def _ended(self, block: Block) -> None:
        if self.entries is not None:
            self.entries.append((False, block.address, block.size))
        self.allocator.free(block)

    def trim(self) -> None:
        self.allocator.trim()
        self.reserved = self.allocator.reserved

    def taken(self) -> int:
        return self.reserved + self.library

    def watch(self) -> bool:
        self.entries = []
        return True

    def note(self, nbytes: int) -> int:
        block = self._made(nbytes)
        self._ended(block)
        return block.address

    def watched(self) -> Log | None:
        entries, self.entries = self.entries, None
        heap = self.heap()
        return None if entries is None else Log(entries, heap)

    def heap(self) -> Heap:
        return Heap(self.allocator.extents(), self.allocator.expandable)

    def take(self, nbytes: int) -> int:
        return self._made(nbytes).address

    def give(self, address: int) -> None:
        self._ended(Block(address, 0))


@pytest.fixture
def card() -> Iterator[Modelled]:
    made = Modelled()
    yield made
    made.close()


def run(card: Modelled, steered: Steered | None, operations: Sequence[Items] = STEP) -> int:
    """MiB reserved in a step."""
    card.most = 0
    for number, items in enumerate(operations):
        if steered is not None:
            steered.at(number)
        for name, mib in items:
            if mib:
                card.allocate(name, mib)
            else:
                card.free(name)
    return card.most // MIB


def test_steps_are_steered_where_gaps_would_pass_the_limit(card: Modelled) -> None:
    assert run(card, None) == NATURAL
    steered = Steered(card, LIMIT * MIB, len(STEP))
    found = [run(card, steered) for _ in range(6)]
    assert found[0] == NATURAL
    assert max(found[3:]) <= LIMIT
    steered.stop("the test ends")
    assert card.allocator.allocated == 20 * MIB


def test_steps_that_fit_are_left_alone(card: Modelled) -> None:
    steered = Steered(card, (NATURAL + 1) * MIB, len(STEP))
    first, watched, *others = (run(card, steered) for _ in range(5))
    assert first == NATURAL
    assert watched == NATURAL + 2  # a page for what is noted
    assert others == [NATURAL] * 3
    assert steered.is_unsteered
    assert card.entries is None  # the history of allocations is off


def test_what_an_optimizer_keeps_is_out_of_the_way(card: Modelled) -> None:
    steps = ([], [(1, 100)], [(4, 10)], [(5, 30)], [(1, 0), (5, 0)])  # 4 is a gradient
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    steered = Steered(card, LIMIT * MIB, len(steps))
    run(card, steered, steps)
    optimizer.step()
    card.allocate(-2, 20)  # that would fit behind the gradient, too
    card.free(4)
    run(card, steered, steps)
    assert card._blocks[-2].address == card._blocks[-1].address + 20 * MIB
    optimizer.step()
    before = card.allocator.allocated
    steered.stop("the test ends")
    assert card.allocator.allocated == before == 50 * MIB


def test_what_fails_before_an_optimizer_reaches_no_program(
    card: Modelled, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def fails() -> Heap:
        asked.append(1)
        raise RuntimeError("an allocator of tomorrow's")

    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    steered = Steered(card, LIMIT * MIB, len(STEP))
    run(card, steered)
    monkeypatch.setattr(card, "heap", fails)
    optimizer.step()
    assert asked
    assert not steered.is_unsteered


def test_another_search_is_made_where_one_finds_nothing(
    card: Modelled, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches: list[int] = []

    def second(step: Any, heap: Heap, limit: int, end: float, number: int) -> Any:
        searches.append(number)
        return plain(step, heap, limit, end, number) if len(searches) == 2 else None

    plain = steering.steer
    monkeypatch.setattr(steering, "steer", second)
    steered = Steered(card, LIMIT * MIB, len(STEP))
    for _ in range(4):
        run(card, steered)
    assert run(card, steered) <= LIMIT
    assert searches == [1, 2]


def test_steps_that_reserve_more_than_expected_are_steered(
    card: Modelled, caplog: pytest.LogCaptureFixture
) -> None:
    steered = Steered(card, (NATURAL + 1) * MIB, len(STEP))
    for _ in range(3):
        run(card, steered)
    assert steered.is_unsteered
    card.library = 2 * MIB  # that a library allocates for itself
    for _ in range(6):
        last = run(card, steered)
    assert not steered.is_unsteered
    assert last <= NATURAL - 1
    assert not caplog.records


def test_steering_goes_on_after_something_else_ran(card: Modelled) -> None:
    steered = Steered(card, LIMIT * MIB, len(STEP))
    for _ in range(4):
        run(card, steered)
    assert run(card, steered) <= LIMIT
    for operations in (STEP[:2], [*STEP, [(7, 60), (7, 0)]]):  # backward is missing; an evaluation
        run(card, steered, operations)
        for number in [n for n in card._blocks if n > 0]:
            card.free(number)
        for _ in range(3):
            last = run(card, steered)
        assert last <= LIMIT
    for number in (0, 1, 2, 3, 4, 3, 4):  # backward runs twice
        steered.at(number)
    assert card.allocator.allocated == 20 * MIB
    for _ in range(3):
        last = run(card, steered)
    assert last <= LIMIT


def test_steps_that_always_differ_are_given_up(card: Modelled) -> None:
    steered = Steered(card, LIMIT * MIB, len(STEP))
    for number in range(60):
        more = [(8, 2 + number), (9, 90 - number), (8, 0), (9, 0)]
        run(card, steered, [*STEP[:2], more, *STEP[2:]][: len(STEP)])
        for left in [n for n in card._blocks if n > 0]:
            card.free(left)
    assert steered.is_unsteered
    assert card.allocator.allocated == 20 * MIB


def test_of_several_graphs_none_is_steered(card: Modelled) -> None:
    first = Steered(card, LIMIT * MIB, len(STEP))
    for _ in range(4):
        run(card, first)
    second = Steered(card, LIMIT * MIB, len(STEP))
    assert first.is_unsteered
    assert second.is_unsteered
    assert card.allocator.allocated == 20 * MIB
    del first, second
    gc.collect()
    third = Steered(card, LIMIT * MIB, len(STEP))  # the others' graphs are gone
    for _ in range(4):
        run(card, third)
    assert run(card, third) <= LIMIT


def test_what_fails_ends_the_steering_and_not_the_program(
    card: Modelled, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(nbytes: int) -> int:
        raise RuntimeError(f"an allocator of tomorrow's, {nbytes > 0}")

    monkeypatch.setattr(card, "note", fails)
    steered = Steered(card, LIMIT * MIB, len(STEP))
    for _ in range(3):
        assert run(card, steered) == NATURAL
    assert caplog.text.count("steps are not steered: RuntimeError: an allocator of tomorrow's") == 1


def test_what_fails_at_the_end_reaches_no_program(
    card: Modelled, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []

    def fails(address: int) -> None:
        given.append(address)
        raise RuntimeError("an allocator of tomorrow's")

    steered = Steered(card, LIMIT * MIB, len(STEP))
    for _ in range(4):
        run(card, steered)
    monkeypatch.setattr(card, "give", fails)
    run(card, steered)
    assert steered.is_unsteered
    assert len(given) == len(set(given)) == 1  # nothing is given back twice


@pytest.mark.parametrize("steps", [1, 4])
def test_graphs_that_go_in_the_midst_of_a_step_leave_nothing(card: Modelled, steps: int) -> None:
    for points in range(1, len(STEP)):
        steered = Steered(card, LIMIT * MIB, len(STEP))
        for _ in range(steps):
            run(card, steered)
        run(card, steered, STEP[:points])
        del steered
        for number in [n for n in card._blocks if n > 0]:
            card.free(number)
        assert card.allocator.allocated == 20 * MIB
        assert card.entries is None


@pytest.mark.parametrize(
    ("steers", "hint"), [(True, "compile with a limit that is so much less"), (False, "expandable")]
)
def test_a_limit_that_is_not_kept_is_said_once(
    card: Modelled, caplog: pytest.LogCaptureFixture, steers: bool, hint: str
) -> None:
    limit = 130 * MIB  # 140 are in use at once
    steered = Steered(card, limit, len(STEP), steers=steers)
    for _ in range(2):
        run(card, steered)
    assert not caplog.records
    for _ in range(8):
        run(card, steered)
    (said,) = caplog.messages
    assert f"the driver counts {50 * MIB} bytes more than the limit of {limit}" in said
    assert hint in said


class Layer(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.norm(self.first(x)))


def test_graphs_reach_their_points_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[int] = []
    made: list[int] = []
    plain: Callable[..., Any] = Steered.__init__

    def began(self: Steered, card: Any, limit: int, points: int, **given: bool) -> None:
        plain(self, card, limit, points, **given)
        made.append(points)

    monkeypatch.setattr(Room, "allocates", lambda _: True)
    monkeypatch.setattr(points_of_graphs, "_LARGE", 1 << 10)
    monkeypatch.setattr(Steered, "__init__", began)
    monkeypatch.setattr(Steered, "at", lambda _, number: reached.append(number))
    torch.manual_seed(0)
    torch._dynamo.reset()
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *(Layer(8) for _ in range(4)))
    call = torch.compile(net, backend=oocdnn, options={"memory_limit": 1 << 40})
    x = torch.randn(4, 3, 16, 16)

    def step(call: Any) -> None:
        with torch.autocast("cpu", torch.bfloat16):
            loss = call(x).float().square().mean()
        loss.backward()

    _, graphs = run_and_get_code(step, call)
    step(call)
    for code in graphs:  # all that a graph allocates belongs to its step
        body = code.partition("def call(")[2]
        assert 0 < body.index("oocdnn_compiled.point.default(") < body.index("cpp_fused")
    (points,) = made
    assert len(steering._steered) == 1
    torch._dynamo.reset()
    del call
    gc.collect()
    assert not steering._steered
    assert points > 20
    assert reached == [*range(points)] * 2
