"""Plans in a file: found again for steps of the same structure, and for no others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("highspy", reason="plans of networks are solved by HiGHS")

from network.steps import LINK, MIB, chain_of, random_step

from oocdnn.errors import FileError, OutOfMemory
from oocdnn.network.plan import Schedule
from oocdnn.network.plan_file import PlanFile, key_of
from oocdnn.network.planner import Plan, least_limit, plan, planned
from oocdnn.network.timeline import Timeline

STEP = chain_of([MIB] * 6, [1e-3] * 6, recipes=True)
LIMIT = 7 * MIB


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "plans.json"


def made(step: Timeline = STEP, limit: int = LIMIT) -> Plan:
    return plan(step, [LINK], limit, seconds=0.5)


def kept(path: Path, step: Timeline = STEP) -> Plan:
    found = made(step)
    PlanFile(path).keep(found)
    return found


def test_a_plan_is_found_again(path: Path) -> None:
    first = kept(path)
    again = PlanFile(path).find(STEP, [LINK], LIMIT)
    assert again is not None
    assert again.schedule.choices == first.schedule.choices
    assert again.schedule.movements == first.schedule.movements
    assert (again.seconds, again.peak_bytes) == (first.seconds, first.peak_bytes)
    assert again.bound == pytest.approx(first.bound)
    assert not again.fits


class Reserves:
    """An allocator without gaps, for which other bytes are counted where they are given."""

    def __init__(self, *nbytes: int) -> None:
        self._nbytes = list(nbytes)

    def __call__(self, schedule: Schedule) -> int:
        return self._nbytes.pop(0) if self._nbytes else schedule.peak_bytes

    def searched(self, schedule: Schedule, seconds: float) -> int:
        del seconds
        return self(schedule)

    def trimmed(self, schedule: Schedule) -> int | None:
        del schedule
        return None

    def acting(self, schedule: Schedule) -> dict[int, float]:
        del schedule
        return {}

    stalls = acting


def with_faster(path: Path) -> tuple[Plan, Plan]:
    """A plan in the file, and one that keeps everything as its faster one."""
    first, faster = made(), made(limit=12 * MIB)
    first.faster = faster
    PlanFile(path).keep(first)
    return first, faster


def test_a_faster_plan_that_passes_the_limit_stays_beside_the_other(path: Path) -> None:
    first, faster = with_faster(path)
    again = PlanFile(path).find(STEP, [LINK], 12 * MIB, Reserves(13 * MIB))
    assert again is not None
    assert again.schedule.choices == first.schedule.choices
    assert again.faster is not None
    assert again.faster.schedule.choices == faster.schedule.choices
    assert (again.faster.seconds, again.faster.reserved) == (faster.seconds, None)
    assert again.faster.bound == pytest.approx(faster.bound)


def test_a_faster_plan_is_found_where_it_keeps_to_the_limit(path: Path) -> None:
    _, faster = with_faster(path)
    again = PlanFile(path).find(STEP, [LINK], 12 * MIB, Reserves())
    assert again is not None
    assert again.schedule.choices == faster.schedule.choices
    assert (again.reserved, again.faster) == (faster.peak_bytes, None)


def test_a_faster_plan_for_a_larger_limit_is_not_found(path: Path) -> None:
    first, _ = with_faster(path)
    again = PlanFile(path).find(STEP, [LINK], LIMIT, Reserves())
    assert again is not None
    assert again.schedule.choices == first.schedule.choices
    assert again.faster is None


def test_no_faster_plan_is_found_where_nothing_tells_what_it_reserves(path: Path) -> None:
    first, _ = with_faster(path)
    again = PlanFile(path).find(STEP, [LINK], 12 * MIB)
    assert again is not None
    assert again.schedule.choices == first.schedule.choices
    assert again.faster is None


def test_a_plan_leaves_no_faster_one_of_its_step(path: Path) -> None:
    first, _ = with_faster(path)
    first.faster = None
    file = PlanFile(path)
    file.keep(first)
    for one in (file, PlanFile(path)):
        again = one.find(STEP, [LINK], 12 * MIB, Reserves())
        assert again is not None
        assert again.schedule.choices == first.schedule.choices
        assert again.faster is None


def test_tensors_take_the_bytes_that_the_plan_was_made_for(path: Path) -> None:
    """A plan that leaves a part of the limit to an allocator's gaps leaves it again."""
    step = random_step(5, 12)
    least, most = least_limit(step), step.peak_bytes
    limit = (least + most) // 2
    found = replace(plan(step, [LINK], least + (limit - least) // 4, seconds=0.5), limit=limit)
    PlanFile(path).keep(found)
    again = PlanFile(path).find(step, [LINK], limit)
    assert again is not None
    assert again.limit == limit
    assert again.schedule.movements == found.schedule.movements
    larger = planned(step, [LINK], limit, found.schedule.choices)
    assert larger is not None
    assert larger.peak_bytes > found.peak_bytes


@pytest.mark.parametrize("seed", [4, 5, 9, 11])
def test_tensors_take_more_bytes_within_a_larger_limit(path: Path, seed: int) -> None:
    step = random_step(seed, 12)
    least, most = least_limit(step), step.peak_bytes
    found = plan(step, [LINK], least + (most - least) // 10, seconds=0.5)
    PlanFile(path).keep(found)
    limit = least + (most - least) * 7 // 10
    again = PlanFile(path).find(step, [LINK], limit)
    larger = planned(step, [LINK], limit, found.schedule.choices)
    assert again is not None
    assert larger is not None
    assert found.peak_bytes < again.peak_bytes
    assert again.seconds <= 1.01 * larger.seconds


@pytest.mark.parametrize("choices", [[], [["swap", 0]], [[1, 2]] * 12])
def test_a_faster_plan_that_the_step_does_not_have_is_not_taken(
    path: Path, choices: object
) -> None:
    first, _ = with_faster(path)
    content = json.loads(path.read_bytes())
    content["plans"][key_of(STEP)]["faster"]["choices"] = choices
    path.write_text(json.dumps(content))
    again = PlanFile(path).find(STEP, [LINK], 12 * MIB, Reserves())
    assert again is not None
    assert again.schedule.choices == first.schedule.choices
    assert again.faster is None


def slower(step: Timeline, times: float) -> Timeline:
    operations = tuple(replace(one, seconds=one.seconds * times) for one in step.operations)
    return replace(step, operations=operations)


def test_times_and_links_may_differ(path: Path) -> None:
    first = kept(path)
    link = replace(LINK, to_host=20e9)
    again = PlanFile(path).find(slower(STEP, 1.5), [link], LIMIT)
    assert again is not None
    assert again.schedule.choices == first.schedule.choices
    assert again.seconds > first.seconds


def other_recipe(step: Timeline) -> Timeline:
    last = step.saved[-1]
    return replace(step, saved=(*step.saved[:-1], replace(last, recipes=())))


@pytest.mark.parametrize(
    "other",
    [
        chain_of([MIB] * 5, [1e-3] * 5, recipes=True),
        chain_of([MIB] * 5 + [2 * MIB], [1e-3] * 6, recipes=True),
        chain_of([MIB] * 6, [1e-3] * 6, recipes=False),
        other_recipe(STEP),
    ],
)
def test_another_step_has_none(path: Path, other: Timeline) -> None:
    kept(path)
    assert PlanFile(path).find(other, [LINK], 1 << 40) is None


def test_a_plan_that_passes_a_smaller_limit_is_not_taken(path: Path) -> None:
    kept(path)
    least = least_limit(STEP)
    assert PlanFile(path).find(STEP, [LINK], least - 1) is None
    step = chain_of([MIB] * 6, [1e-3] * 6, recipes=True)
    everything = plan(step, [LINK], 1 << 40)
    PlanFile(path).keep(everything)
    assert PlanFile(path).find(step, [LINK], everything.peak_bytes) is not None
    assert PlanFile(path).find(step, [LINK], everything.peak_bytes - 1) is None


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.0, 1.0))
def test_plans_of_random_steps_are_found_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, seed: int, share: float
) -> None:
    step = random_step(seed)
    limit = max(int(share * step.peak_bytes), 1)
    try:
        first = made(step, limit)
    except OutOfMemory:
        return
    path = tmp_path_factory.mktemp("plans") / "plans.json"
    PlanFile(path).keep(first)
    again = PlanFile(path).find(step, [LINK], limit)
    assert again is not None
    assert again.schedule.choices == first.schedule.choices
    assert again.seconds == pytest.approx(first.seconds)


def test_what_a_program_makes_is_for_the_next_one(path: Path) -> None:
    """A plan that is improved during a program is not held up by the first."""
    file = PlanFile(path)
    file.keep(made())
    assert file.find(STEP, [LINK], LIMIT) is None


def test_programs_write_one_file(path: Path) -> None:
    first, second = PlanFile(path), PlanFile(path)
    other = chain_of([MIB] * 5, [1e-3] * 5, recipes=True)
    first.keep(made())
    second.keep(made(other, 6 * MIB))
    file = PlanFile(path)
    assert file.find(STEP, [LINK], LIMIT) is not None
    assert file.find(other, [LINK], 6 * MIB) is not None
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_the_oldest_leave(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from oocdnn.network import plan_file

    monkeypatch.setattr(plan_file, "_MOST", 2)
    steps = [chain_of([MIB] * n, [1e-3] * n, recipes=True) for n in (4, 5, 6)]
    file = PlanFile(path)
    for step in steps:
        file.keep(made(step, 1 << 40))
    found = [PlanFile(path).find(step, [LINK], 1 << 40) is not None for step in steps]
    assert found == [False, True, True]


@pytest.mark.parametrize(
    "content",
    [
        *(b"no JSON", b'{"plans": 1}', b"[]", b'{"format": "another", "plans": {}}', b"\xff"),
        b"[" * 100_000 + b"]" * 100_000,
    ],
    ids=["text", "number", "list", "format", "encoding", "nested"],
)
def test_a_file_of_something_else_stays(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(FileError, match="plans"):
        PlanFile(path)
    assert path.read_bytes() == content


def test_a_file_that_becomes_something_else_is_written_over_by_nobody_else(path: Path) -> None:
    file = PlanFile(path)
    path.write_text("Dear all,\n")
    with pytest.raises(FileError, match="stays as it is"):
        file.keep(made())
    assert path.read_text() == "Dear all,\n"


@pytest.mark.parametrize(
    "choices",
    [
        [],
        [["swap", -1]] * 11,
        [["no policy", -1]] * 12,
        [["rebuild", 7]] * 12,
        [["squeeze", -1]] * 12,
        [["keep"]] * 12,
        [["swap", float("inf")]] * 12,
        [[1, 2]] * 12,
    ],
)
def test_choices_that_the_step_does_not_have_are_not_taken(path: Path, choices: object) -> None:
    kept(path)
    content = json.loads(path.read_bytes())
    content["plans"][key_of(STEP)]["choices"] = choices
    path.write_text(json.dumps(content))
    assert PlanFile(path).find(STEP, [LINK], 1 << 40) is None


@pytest.mark.parametrize(
    "entry",
    [
        1,
        {},
        {"choices": 1, "bound": 1},
        {"choices": [], "bound": 2},
        {"choices": [], "bound": 1, "limit": 1, "peak": "1"},
        {"choices": [], "bound": 1, "limit": "1"},
        {"choices": [["keep", -1]] * 12, "bound": 1, "limit": 1 << 70, "peak": 0},
        {"choices": [["keep", -1]] * 12, "bound": 1, "limit": 0, "peak": -(1 << 70)},
        {"choices": [], "bound": 1, "peak": 1},
        {"choices": [], "bound": 1, "faster": 1},
    ],
)
def test_entries_that_are_no_plans_are_not_taken(path: Path, entry: object) -> None:
    kept(path)
    content = json.loads(path.read_bytes())
    content["plans"][key_of(STEP)] = entry
    path.write_text(json.dumps(content))
    assert PlanFile(path).find(STEP, [LINK], 1 << 40) is None


def test_keys_are_of_the_structure() -> None:
    assert key_of(STEP) == key_of(slower(STEP, 3.0))
    renamed = replace(STEP.operations[0], name="another")
    assert key_of(STEP) != key_of(replace(STEP, operations=(renamed, *STEP.operations[1:])))


def test_a_folder_that_is_not_there_is_said(path: Path) -> None:
    with pytest.raises(FileError, match="cannot be written to"):
        PlanFile(path.parent / "none" / "plans.json").keep(made())
