"""The core library's schedules and searches, beside the scheduler in Python."""

from __future__ import annotations

import random
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from network import walk
from network.networks import H100_LINK, resnet, unet, vgg16
from network.steps import HOSTED_LINK, LINK, MIB, hosted_step, random_step

import oocdnn
from oocdnn._core.network import NativeScheduler, NativeStep
from oocdnn.network.plan import KEEP, SWAP, Choice, Policy
from oocdnn.network.planner import least_limit
from oocdnn.network.polish import HOT, polished
from oocdnn.network.schedule import Scheduler
from oocdnn.network.timeline import Link, Operation, Recipe, Saved, Timeline

NETWORKS = {
    "resnet50": resnet((3, 4, 6, 3), 256, composites=True),
    "vgg16": vgg16(64),
    "unet": unet(1, 96),
}


def ways(one: Saved) -> list[Choice]:
    """Every policy, those too that the planner never gives."""
    squeeze = [Choice(Policy.SQUEEZE)] if one.squeeze is not None else []
    recipes = [Choice(Policy.REBUILD, number) for number in range(len(one.recipes))]
    return [KEEP, SWAP, *squeeze, *recipes]


def drawn(timeline: Timeline, draw: random.Random) -> list[Choice]:
    kept = draw.random()
    return [KEEP if draw.random() < kept else draw.choice(ways(one)) for one in timeline.saved]


def limit_of(timeline: Timeline, share: float) -> int:
    return int(share * timeline.peak_bytes)


@given(
    seed=st.integers(0, 1 << 30),
    share=st.floats(-0.2, 1.1),
    most=st.sampled_from((4, 12, 60)),
    hosted=st.booleans(),
)
@settings(max_examples=500, deadline=None)
def test_schedules_of_random_steps_are_those_of_the_definition(
    seed: int, share: float, most: int, hosted: bool
) -> None:
    timeline = hosted_step(seed, most) if hosted else random_step(seed, most)
    link, draw = HOSTED_LINK if hosted else LINK, random.Random(seed)
    limit = limit_of(timeline, share)
    native, defined = Scheduler(timeline, link, limit), walk.Scheduler(timeline, link, limit)
    for _ in range(3):
        choices = drawn(timeline, draw)
        made = native.run(choices)
        assert made == defined.run(choices)
        *seconds, peak = native.totals(choices)
        assert seconds == [made.seconds, made.waiting, made.recomputing, made.late]
        assert peak == made.peak_bytes


@given(
    name=st.sampled_from(sorted(NETWORKS)),
    seed=st.integers(0, 1 << 30),
    share=st.floats(0.05, 1.0),
)
@settings(max_examples=60, deadline=None)
def test_schedules_of_networks_are_those_of_the_definition(
    name: str, seed: int, share: float
) -> None:
    timeline, draw = NETWORKS[name], random.Random(seed)
    limit, choices = limit_of(timeline, share), drawn(timeline, draw)
    made = Scheduler(timeline, H100_LINK, limit).run(choices)
    assert made == walk.Scheduler(timeline, H100_LINK, limit).run(choices)


@given(seed=st.integers(0, 1 << 30), share=st.floats(0.0, 1.0), warmth=st.floats(0.0, 0.1))
@settings(max_examples=100, deadline=None)
def test_a_search_is_never_worse_than_its_start(seed: int, share: float, warmth: float) -> None:
    step, draw = random.Random(seed).choice((random_step, hosted_step)), random.Random(seed)
    timeline = step(seed, most=20)
    scheduler = Scheduler(timeline, LINK, limit_of(timeline, share))
    choices = [
        choice if one.movable else KEEP
        for one, choice in zip(timeline.saved, drawn(timeline, draw), strict=True)
    ]

    def rank(found: list[Choice]) -> tuple[int, float]:
        made = scheduler.totals(found)
        return max(made.peak_bytes - scheduler.limit, 0), made.seconds

    found = searched(scheduler, choices, seed, warmth)
    assert rank(found) <= rank(choices)
    assert found == searched(scheduler, choices, seed, warmth)
    for one, choice in zip(timeline.saved, found, strict=True):
        assert one.movable or choice == KEEP


def searched(
    scheduler: Scheduler, choices: list[Choice], seed: int, warmth: float, trials: int = 300
) -> list[Choice]:
    warm = warmth * scheduler.timeline.seconds
    return scheduler.improved(choices, trials=trials, warmth=warm, seconds=3600.0, seed=seed)


def test_a_search_takes_recipes_that_read_what_is_last_used_where_they_run() -> None:
    operations = tuple(
        Operation(name, 1e-3, fixed)
        for name, fixed in (("x", 0), ("y", 0), ("large", 8 * MIB), ("backward", 0))
    )
    x = Saved("x", MIB, 0, 1, (3,))
    y = Saved("y", 8 * MIB, 1, 1, (3,), recipes=(Recipe((0,), 1e-4),))
    link = Link(to_host=1e9, from_host=1e9, both=2e9)
    scheduler = Scheduler(Timeline(operations, 3, (x, y)), link, 12 * MIB)
    assert searched(scheduler, [KEEP, SWAP], 0, 0.03) == [KEEP, Choice(Policy.REBUILD, 0)]


def test_more_trials_find_a_better_plan() -> None:
    timeline = NETWORKS["resnet50"]
    scheduler = Scheduler(timeline, H100_LINK, limit_of(timeline, 0.4))
    everything = [SWAP if one.movable else KEEP for one in timeline.saved]
    seconds = [
        scheduler.totals(searched(scheduler, everything, 0, 0.03, trials)).seconds
        for trials in (0, 300, 20000)
    ]
    assert seconds[0] > seconds[1] > seconds[2]


def test_a_search_lowers_each_peak_above_the_limit() -> None:
    """Near the least limit most schedules pass it at many positions."""
    timeline = NETWORKS["resnet50"]
    scheduler = Scheduler(timeline, H100_LINK, int(1.04 * least_limit(timeline)))
    moved = [SWAP if one.movable else KEEP for one in timeline.saved]
    warmth = 0.1 * timeline.seconds
    found = scheduler.improved(moved, trials=30_000, warmth=warmth, seconds=60.0)
    made = scheduler.run(found)
    assert made.peak_bytes <= scheduler.limit
    assert made.seconds <= 3.5 * timeline.seconds  # 5.7 where only the highest peak is counted


def test_equal_searches_find_equal_plans() -> None:
    scheduler = Scheduler(NETWORKS["unet"], H100_LINK, limit_of(NETWORKS["unet"], 0.7))
    start = scheduler.run([KEEP] * len(NETWORKS["unet"].saved))
    end = time.monotonic() + 3600
    first, second, other = (polished(scheduler, start, HOT, 0.02, end, seed) for seed in (1, 1, 2))
    assert first == second
    assert first.peak_bytes <= scheduler.limit
    assert other.peak_bytes <= scheduler.limit


def test_a_search_ends_with_its_time() -> None:
    timeline = NETWORKS["resnet50"]
    scheduler = Scheduler(timeline, H100_LINK, limit_of(timeline, 0.4))
    choices = [SWAP if one.movable else KEEP for one in timeline.saved]
    scheduler.improved(choices, trials=1 << 62, warmth=0.0, seconds=0.05)
    assert scheduler.improved(choices, trials=1 << 62, warmth=0.0, seconds=0.0) == choices


def test_a_search_ends_where_its_progress_raises() -> None:
    scheduler = NativeScheduler(a_step())
    told: list[int] = []

    def progress(done: int, trials: int) -> None:
        told.append(done)
        if len(told) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scheduler.improved(
            8, [0, 0], trials=1 << 62, seed=0, warmth=0.0, seconds=3600.0, progress=progress
        )
    assert len(told) == 3
    assert told == sorted(told)


def test_a_search_lets_other_threads_run() -> None:
    scheduler, began, ended = NativeScheduler(a_step()), threading.Event(), threading.Event()

    def progress(_done: int, _trials: int) -> None:
        began.set()
        if ended.is_set():
            raise KeyboardInterrupt

    def search() -> None:
        with pytest.raises(KeyboardInterrupt):
            scheduler.improved(
                8, [0, 0], trials=1 << 62, seed=0, warmth=0.0, seconds=3600.0, progress=progress
            )

    thread = threading.Thread(target=search)
    thread.start()
    assert began.wait(60)
    ended.set()
    thread.join(60)
    assert not thread.is_alive()


def test_a_scheduler_in_use_refuses_its_own_progress_function() -> None:
    scheduler = NativeScheduler(a_step())

    def progress(_done: int, _trials: int) -> None:
        with pytest.raises(oocdnn.InvalidProblem, match="in use"):
            scheduler.totals(8, [0, 0])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scheduler.improved(
            8, [0, 0], trials=1 << 62, seed=0, warmth=0.0, seconds=3600.0, progress=progress
        )


def a_step() -> NativeStep:
    """Two saved tensors, the second of which can be computed from the first."""
    return NativeStep(
        [(1e-3, 1e-4, 8, 8)] * 4,
        2,
        [(64, 0, 1, 3, 3, -1, 0.0, 0.0, 0, 1, 0), (32, 1, 1, 2, 3, -1, 0.0, 0.0, 1, 1, 0)],
        [(1e-4, 1e-4, 8, 1)],
        [0],
        (1e9, 1e9, 1e-6, 1e-6),
    )


def one_tensor(nbytes: int, produced: int, squeezed: int = -1, host: float = 0.0) -> list[object]:
    return [(nbytes, produced, 0, 3, 3, squeezed, 0.0, host, 0, 1, 0)]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"forward": 5}, "forward is 5"),
        ({"operations": [(float("nan"), 0.0, 0, 0)] * 4}, "operation 0 takes nan s"),
        ({"operations": [(0.0, -1.0, 0, 0)] * 4}, "-1 s of the host"),
        ({"operations": [(0.0, 0.0, 0, -1)] * 4}, "-1 at its beginning"),
        ({"link": (0.0, 1.0, 0.0, 0.0)}, "rates must be positive"),
        ({"link": (1.0, 1.0, 0.0, -1.0)}, "-1 s of the host"),
        ({"recipes": [(1e-4, float("inf"), 8, 1)]}, "inf s of the host"),
        ({"recipes": []}, "recipes are named, of which 0 are left"),
        ({"inputs": [1]}, "cannot be computed from number 1"),
        (
            {"tensors": one_tensor(1, 1)},
            "produced at 1, last used in forward",
        ),
        (
            {"tensors": one_tensor(1, 0, 1, -1.0)},
            "squeezed in 0 s, -1 s of the host",
        ),
        ({"tensors": one_tensor(1 << 61, 0)}, "more than 2\\^60 bytes"),
    ],
)
def test_a_step_that_is_none_is_refused(changed: dict[str, object], message: str) -> None:
    with pytest.raises(oocdnn.InvalidProblem, match=message):
        NativeScheduler(a_step()._replace(**changed))


@pytest.mark.parametrize("policies", [[-1, 0], [2, 0], [3, 0], [0, 4]])
def test_a_policy_that_a_tensor_lacks_is_refused(policies: list[int]) -> None:
    with pytest.raises(oocdnn.InvalidProblem, match="has no choice"):
        NativeScheduler(a_step()).totals(64, policies)
