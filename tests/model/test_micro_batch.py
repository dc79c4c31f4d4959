"""A batch in micro-batches: every division worth having, and none that another beats."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oocdnn import InvalidProblem, OutOfMemory, Unsupported
from oocdnn.workspace import (
    Division,
    MicroBatch,
    divide_batch,
    even,
    micro_batch_sizes,
    pareto,
)

MIB = 1 << 20

# Sums of these seconds are exact, so that what is equal compares as equal.
choices_of_all_kinds = st.lists(
    st.builds(
        MicroBatch,
        samples=st.integers(1, 14),
        seconds=st.integers(0, 64).map(lambda eighths: eighths / 8),
        workspace_bytes=st.integers(0, 6),
    ),
    min_size=1,
    max_size=5,
)


def fronts(points) -> list[tuple[float, int]]:
    """The (seconds, bytes) that no other is at least as good as, fastest first."""
    kept: list[tuple[float, int]] = []
    for seconds, size in sorted(points):
        if not kept or size < kept[-1][1]:
            kept.append((seconds, size))
    return kept


def every_division(choices: list[MicroBatch], batch: int) -> set[tuple[float, int]]:
    """By trying all counts of all choices."""
    points = set()
    ranges = [range(math.ceil(batch / choice.samples) + 1) for choice in choices]
    for counts in itertools.product(*ranges):
        used = [(choice, n) for choice, n in zip(choices, counts, strict=True) if n > 0]
        if sum(choice.samples * n for choice, n in used) >= batch:
            seconds = sum(choice.seconds * n for choice, n in used)
            points.add((seconds, max((c.workspace_bytes for c, _ in used), default=0)))
    return points


def check(division: Division) -> None:
    """What a division says of itself is true, and no part is superfluous."""
    parts, sizes = division.parts, division.samples
    assert sum(sizes) == division.batch
    assert all(size > 0 for size in sizes)
    measured = [part.choice.samples for part in parts for _ in range(part.count)]
    assert measured == sorted(measured, reverse=True)
    assert sizes[:-1] == measured[:-1]
    assert division.seconds == sum(part.count * part.choice.seconds for part in parts)
    needed = max((part.choice.workspace_bytes for part in parts), default=0)
    assert division.workspace_bytes == needed


def two_engines(sizes: list[int]) -> list[MicroBatch]:
    """The times of µ-cuDNN's own test: 0.1 b + 0.01 ms in b MiB, and 10 b + 0.1 ms in b bytes."""
    fast = [MicroBatch(b, (0.1 * b + 0.01) * 1e-3, b * MIB, "fast") for b in sizes]
    slow = [MicroBatch(b, (10 * b + 0.1) * 1e-3, b, "slow") for b in sizes]
    return fast + slow


def told(division: Division) -> str:
    ms, parts = division.seconds * 1e3, len(division.samples)
    return f"{ms:.2f} ms {division.workspace_bytes} bytes {parts} parts"


GOLDEN = [
    "25.68 ms 33554432 bytes 8 parts",
    "25.76 ms 16777216 bytes 16 parts",
    "25.92 ms 8388608 bytes 32 parts",
    "26.24 ms 4194304 bytes 64 parts",
    "26.88 ms 2097152 bytes 128 parts",
    "28.16 ms 1048576 bytes 256 parts",
    "2560.10 ms 256 bytes 1 parts",
    "2560.20 ms 128 bytes 2 parts",
    "2560.40 ms 64 bytes 4 parts",
    "2560.80 ms 32 bytes 8 parts",
    "2561.60 ms 16 bytes 16 parts",
    "2563.20 ms 8 bytes 32 parts",
    "2566.40 ms 4 bytes 64 parts",
    "2572.80 ms 2 bytes 128 parts",
    "2585.60 ms 1 bytes 256 parts",
]


def test_the_divisions_of_micro_cudnn():
    """Its test keeps what needs less than 64 MiB; a limit of ours is a number that is allowed."""
    choices = two_engines(micro_batch_sizes(256))
    below = [choice for choice in choices if choice.workspace_bytes < 64 * MIB]
    found = pareto(below, 256)
    assert [told(division) for division in found] == GOLDEN
    assert told(divide_batch(choices, 256, 64 * MIB - 1)) == GOLDEN[0]
    assert told(divide_batch(choices, 256, 64 * MIB)) == "25.64 ms 67108864 bytes 4 parts"
    for division in found:
        check(division)


@settings(deadline=None)
@given(choices_of_all_kinds, st.integers(0, 14))
def test_pareto_is_what_trying_everything_gives(choices, batch):
    found = pareto(choices, batch)
    points = [(division.seconds, division.workspace_bytes) for division in found]
    assert points == fronts(every_division(choices, batch))
    for division in found:
        check(division)


@given(choices_of_all_kinds, st.integers(1, 14))
def test_a_limit_of_a_divisions_bytes_allows_it(choices, batch):
    found = pareto(choices, batch)
    for division, smaller in itertools.zip_longest(found, found[1:]):
        assert divide_batch(choices, batch, division.workspace_bytes) == division
        if smaller is not None:
            assert divide_batch(choices, batch, division.workspace_bytes - 1) == smaller
            continue
        least = division.workspace_bytes
        with pytest.raises(OutOfMemory, match=f"workspace of {least - 1} bytes") as refused:
            divide_batch(choices, batch, least - 1)
        assert refused.value.least == least


def test_of_equal_workspaces_the_fastest_counts():
    """µ-cuDNN's set of configurations dropped a faster one that needed just as much memory."""
    slow, fast = MicroBatch(4, 2.0, 100), MicroBatch(4, 1.0, 100)
    for choices in itertools.permutations([slow, fast, MicroBatch(4, 1.5, 100)]):
        (division,) = pareto(choices, 8)
        assert (division.seconds, division.workspace_bytes) == (2.0, 100)
        assert division.parts[0].choice == fast


def test_the_last_part_takes_what_is_left():
    measured = MicroBatch(32, 1.0, 10)
    (division,) = pareto([measured], 100)
    assert division.samples == [32, 32, 32, 4]
    assert division.seconds == 4.0


def test_a_batch_smaller_than_what_was_measured_is_one_part():
    """µ-cuDNN ended the process at the last batch of an epoch."""
    (division,) = pareto([MicroBatch(256, 1.0, 10)], 40)
    assert division.samples == [40]
    assert division.seconds == 1.0


def test_a_remainder_has_a_choice_of_its_own_where_one_was_measured():
    choices = [MicroBatch(32, 1.0, 10), MicroBatch(4, 0.25, 20), MicroBatch(8, 0.5, 10)]
    assert [division.samples for division in pareto(choices, 100)] == [
        [32, 32, 32, 4],
        [32, 32, 32, 4],
    ]
    fast, small = pareto(choices, 100)
    assert [part.choice.samples for part in fast.parts] == [32, 4]
    assert [part.choice.samples for part in small.parts] == [32, 8]


def fastest_within(choices: list[MicroBatch], batch: int, limit: int) -> float:
    """By the textbook's table."""
    allowed = [choice for choice in choices if choice.workspace_bytes <= limit]
    table = [0.0]
    for n in range(1, batch + 1):
        table.append(min(c.seconds + table[max(n - c.samples, 0)] for c in allowed))
    return table[batch]


def test_every_size_of_a_large_batch():
    sizes = micro_batch_sizes(512, "all")
    assert sizes == list(range(1, 513))
    choices = two_engines(sizes)
    found = pareto(choices, 512)
    assert len(found) > 50
    for division in (found[0], found[len(found) // 3], found[-2], found[-1]):
        check(division)
        expected = fastest_within(choices, 512, division.workspace_bytes)
        assert division.seconds == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("policy", "batch", "sizes"),
    [
        ("undivided", 100, [100]),
        ("powers_of_two", 100, [1, 2, 4, 8, 16, 32, 64, 100]),
        ("powers_of_two", 64, [1, 2, 4, 8, 16, 32, 64]),
        ("powers_of_two", 1, [1]),
        ("all", 5, [1, 2, 3, 4, 5]),
        ("all", 0, []),
    ],
)
def test_sizes_worth_measuring(policy, batch, sizes):
    assert micro_batch_sizes(batch, policy) == sizes


def test_what_makes_no_sense_is_refused():
    good = MicroBatch(1, 1.0, 0)
    bad = [(0, 1.0, 0), (1, -1.0, 0), (1, math.nan, 0), (1, math.inf, 0), (1, 1.0, -1)]
    for numbers in bad:
        with pytest.raises(InvalidProblem, match="choice 1 of"):
            pareto([good, MicroBatch(*numbers)], 8)
    with pytest.raises(InvalidProblem, match="measure at least one"):
        pareto([], 8)
    with pytest.raises(InvalidProblem, match="-1 samples"):
        divide_batch([good], -1, 100)
    with pytest.raises(Unsupported, match="1048576 are the most"):
        pareto([good], 2**20 + 1)
    with pytest.raises(InvalidProblem, match="no policy 'some'"):
        micro_batch_sizes(8, "some")


@given(choices_of_all_kinds, st.integers(1, 30))
def test_even_divisions_are_the_best_of_one_choice_each(choices, batch):
    found = even(choices, batch)
    points = [
        (math.ceil(batch / choice.samples) * choice.seconds, choice.workspace_bytes)
        for choice in choices
    ]
    assert [(one.seconds, one.workspace_bytes) for one in found] == fronts(points)
    for division in found:
        check(division)
        assert len(division.parts) == 1
    # No mixture of choices is slower than the best of one.
    assert pareto(choices, batch)[0].seconds <= found[0].seconds


def test_an_empty_batch_is_even():
    (division,) = even([MicroBatch(2, 1.0, 3)], 0)
    assert division.samples == []
    with pytest.raises(InvalidProblem, match="no micro-batch to choose"):
        even([], 4)
