"""Profiles that come to agree with calls: only the tile that was run changes, and what is kept is
what is said."""

from __future__ import annotations

import re
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oocdnn
from oocdnn.cli import main
from oocdnn.perfmodel.profile import UNMEASURED, Profile, parse

PROBLEM = "conv2d:fwd x8x8x40x40 w8x8x3x3 pad1"
OPTIONS = {"engine": "direct", "link_gb_per_s": 8.0}


def read(file) -> Profile:
    return parse(file.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    """Behind a wire, where the rates of tiles are refined; what its profile holds of this machine
    was measured without one, which takes a second instead of half a minute."""
    file = tmp_path_factory.mktemp("refine") / "profile.txt"
    with oocdnn.Context("cpu", "128KiB", profile=file, engine="direct") as context:
        context.plan(PROBLEM)
    text = re.sub(r"(machine = .*)", r"\1, behind a wire of 8 GB/s", file.read_text("utf-8"))
    text = text.replace("shared_engines = true", "shared_engines = false")
    file.write_text(text, encoding="utf-8")
    return file


@contextmanager
def refining(profile):
    """A context with a copy of the profile, so that what one call has refined is no other's."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "profile.txt"
        file.write_bytes(profile.read_bytes())
        with oocdnn.Context("cpu", "128KiB", profile=file, **OPTIONS) as context:
            context.profile_file = file
            yield context


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.floats(2, 300), st.lists(st.floats(1, 3), max_size=6))
def test_the_profile_agrees_afterwards(profile, factor, slower):
    """The call's arithmetic is told to have taken so many times as long; no clock is read."""
    with refining(profile) as context:
        check_refined(context, factor, slower)


def check_refined(context, factor, slower) -> None:
    plan, before = context.plan(PROBLEM), read(context.profile_file)
    seconds = factor * plan.seconds_by_engine["compute"]
    made = context.refine(PROBLEM, [seconds * one for one in [1, *slower]])
    assert made.measured_seconds == pytest.approx(seconds / plan.tiles)
    assert made.predicted_seconds * plan.tiles == pytest.approx(plan.seconds_by_engine["compute"])
    assert made.refined_seconds == pytest.approx(made.measured_seconds, rel=1e-3)
    assert made.before > made.after
    check_kept(before, read(context.profile_file), made)
    assert made.samples == len(slower) + 1
    middle = sorted([1, *slower])[made.samples // 2]
    assert made.spread == pytest.approx(middle - 1, abs=1e-6)
    again = context.price(PROBLEM, plan.plan)
    assert again.seconds_by_engine["compute"] == pytest.approx(seconds, rel=1e-3)
    assert again.unmeasured == []


def check_kept(before: Profile, after: Profile, made: oocdnn.plans.Refinement) -> None:
    """The rate itself; beside it nothing that was known has changed."""
    assert after.rates()[made.rate] == pytest.approx(made.after, rel=1e-4)
    assert after.mark(made.rate).startswith(f"samples {made.samples} spread ")
    for name, rate in before.rates().items():
        if name != made.rate:
            assert (after.rates()[name], after.mark(name)) == (rate, before.mark(name))
    added = after.rates().keys() - before.rates().keys() - {made.rate}
    assert all(after.mark(name) == UNMEASURED for name in added)


@pytest.mark.parametrize("seconds", [[], [1.0, 0.0], [-1.0], [float("nan")], [float("inf")]])
def test_without_times_nothing_changes(profile, seconds):
    with refining(profile) as context:
        context.plan(PROBLEM)
        before = context.profile_file.read_bytes()
        with pytest.raises(oocdnn.InvalidProblem, match="no run was timed"):
            context.refine(PROBLEM, seconds)
        assert context.profile_file.read_bytes() == before


def test_where_nothing_is_kept_nothing_is_refined():
    with (
        oocdnn.Context("cpu", "1MiB", profile="none") as context,
        pytest.raises(oocdnn.InvalidProblem, match="nothing is kept"),
    ):
        context.refine(PROBLEM, [1.0])


def test_what_is_no_problem_is_one_message(tmp_path):
    options = ["--device", "cpu", "--profile", str(tmp_path / "profile.txt")]
    done = CliRunner().invoke(main, ["calibrate", "--refine", "nonsense", *options])
    assert done.exit_code == 1
    assert done.output.startswith("Error: ")


@pytest.mark.parametrize("direction", ["fwd", "bwd_data", "bwd_filter", "bwd_bias"])
def test_the_command_says_what_has_changed(direction, tmp_path):
    file = tmp_path / "profile.txt"
    problem = PROBLEM.replace("fwd", direction)
    if direction == "bwd_bias":
        problem = "conv2d:bwd_bias y8x8x40x40"
    options = ["--device", "cpu", "--budget", "256KiB", "--profile", str(file)]
    done = CliRunner().invoke(main, ["calibrate", "--refine", problem, *options])
    assert done.exit_code == 0, done.output
    said = re.search(r"; (tile \d+ \d+ \S+) was (\S+) and is (\S+) operations", done.output)
    assert said[1].endswith(f"/f32/{direction}")
    profile = read(file)
    assert profile.rates()[said[1]] == pytest.approx(float(said[3]), rel=1e-3)  # both are rounded
    assert profile.mark(said[1]).startswith("samples 5 ")
