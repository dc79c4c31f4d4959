"""How many calls are timed, and what is said of their median."""

from __future__ import annotations

import numpy as np
import pytest

from oocdnn.bench import measure
from oocdnn.bench.measure import Call, Patience


def test_calls_go_on_until_the_median_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([9.0, 1.0, 1.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    others = iter([0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])

    def timed(_: object) -> Call:
        return Call(next(seconds), 0.0, next(others))

    monkeypatch.setattr(measure, "timed", timed)
    times = measure.time_calls(lambda: None, Patience(least=3, most=8, noise=0.01, seconds=1e9))
    assert times.warm == [9.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert times.dropped == 1
    assert times.median == 1.0


def test_one_call_is_enough_where_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "timed", lambda _: Call(30.0, 0.0, 0.0))
    times = measure.time_calls(lambda: None, Patience(least=5, seconds=2.0))
    assert times.warm == [30.0]
    assert times.noise == 0.0


def test_a_first_call_that_takes_all_the_time_is_the_only_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter([0.0, 60.0])
    monkeypatch.setattr(measure.time, "perf_counter", lambda: next(clock))
    times = measure.time_calls(lambda: None, Patience(seconds=2.0))
    assert (times.cold, times.warm) == (60.0, [60.0])


def test_intervals_hold_the_median_as_often_as_they_say() -> None:
    random, held = np.random.default_rng(5), 0
    for _ in range(2000):
        low, high = measure.interval(list(random.exponential(1.0, 21)))
        held += low <= np.log(2.0) <= high
    assert 0.94 < held / 2000 < 0.99
    assert measure.interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
