"""Measuring the machine: what is measured is kept, also by who interrupts it, and never again."""

from __future__ import annotations

import dataclasses
import fcntl
import itertools
import os
import re
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from click.testing import CliRunner

import oocdnn
from oocdnn.cli import main
from oocdnn.perfmodel.profile import UNMEASURED, parse

KINDS = 7 * 4  # types with their arithmetics, and directions
KINDS_OF_DIRECT = ("f32", "f16", "bf16", "f64"), ("fwd", "bwd_data", "bwd_filter", "bwd_bias")
KINDS_OF_ONEDNN = ("f32",), ("fwd", "bwd_data", "bwd_filter")  # the others where it has the means


@pytest.fixture
def profile(tmp_path):
    return tmp_path / "profile.txt"


def rates(profile) -> dict[str, str]:
    lines = profile.read_text(encoding="utf-8").splitlines()
    return dict(line.split(" = ") for line in lines if line.startswith(("flops ", "tile ")))


def engines() -> tuple[str, ...]:
    """Of the CPU device, those that are measured, the fastest first."""
    try:
        oocdnn.Context("cpu", "1MiB", engine="onednn", profile="none").close()
    except oocdnn.Unsupported:
        return ("direct",)
    return ("onednn", "direct")


# Behind a wire the copies are apart from the arithmetic, and the sizes of tiles are measured; of
# one engine, because copies are timed while it computes.
@pytest.mark.timeout(600)
@pytest.mark.parametrize("link", [None, 8.0])
def test_it_goes_on_where_it_was_interrupted(profile, link):
    names = engines() if link is None else engines()[:1]
    options = {"link_gb_per_s": link, "engine": names[0] if link else None}

    def stop(done, total):
        assert total == KINDS
        if done == 2:
            raise KeyboardInterrupt

    with oocdnn.Context("cpu", "1MiB", profile=profile, **options) as context:
        with pytest.raises(KeyboardInterrupt):
            context.calibrate(stop)
        kept = rates(profile)
        assert {key.rsplit("/", 1)[1] for key in kept} == {"fwd", "bwd_data"}
        steps = []
        assert context.calibrate(lambda done, total: steps.append(done)) == profile
        assert steps == list(range(1, KINDS + 1))
        found = rates(profile)
        assert kept.items() <= found.items()
        for name in names:
            kinds = itertools.product(*(KINDS_OF_ONEDNN if name == "onednn" else KINDS_OF_DIRECT))
            for dtype, direction in kinds:
                assert f"flops {name}/{dtype}/{direction}" in found
                sums = dtype in ("f16", "bf16") and direction != "bwd_bias"
                assert (f"flops {name}/{dtype}+sums/{direction}" in found) == sums
        context.calibrate()
        assert rates(profile) == found
        assert any(key.startswith("tile ") for key in found) == (link is not None)
        check_provenance(profile, link is not None)
        assert (context.conv2d(*ones()) == 72).all()
    check_older(profile, options)


def check_older(profile, options) -> None:
    """Of a profile without them, only the times of preparing are measured."""
    before = parse(profile.read_text(encoding="utf-8"))
    older = dataclasses.replace(before, once={})
    profile.write_text(older.text(), encoding="utf-8")
    with oocdnn.Context("cpu", "1MiB", profile=profile, **options) as context:
        context.calibrate()
    after = parse(profile.read_text(encoding="utf-8"))
    assert after.once.keys() == before.once.keys()
    assert dataclasses.replace(after, once={}).rates() == older.rates()


# Rates of convolutions, of staging, and of passes over tiles, which may take long.
LONG = ("flops ", "tile ", "wire page/", "wire file/")
PASSES = ("/finish", "/pool", "/restore", "/normalize")


def check_provenance(profile, apart: bool) -> None:
    """Who was measured, and how well: each rate is the best of five runs or, of long tiles, of
    two or more; that of two copies at the same time the best of the slower eight of fifteen."""
    read = parse(profile.read_text(encoding="utf-8"))
    assert "threads" in read.machine
    assert "GiB" not in read.machine, "free memory, by which no call would know the machine again"
    assert read.driver == "none"
    all_or_one = r"onednn \(oneDNN \d+\.\d+\.\d+\)(, direct, reference)?|direct(, reference)?"
    assert re.fullmatch(all_or_one, read.engines)
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", read.date)
    marks = {name: read.mark(name) for name in read.rates()}
    assert [name for name, mark in marks.items() if mark == UNMEASURED] == ["flops_fallback"]
    known = {name: mark.split() for name, mark in marks.items() if mark.startswith("samples")}
    unclear = marks.keys() - known.keys() - {"flops_fallback"}
    assert all(name.endswith(("hop", "hop_seconds")) for name in unclear)
    assert not (apart and unclear), "what does not overlap has nothing to wait for"
    wires = {name for name in known if not name.startswith(LONG)}
    pairs = {name for name in wires if apart and re.search(r"\bboth(_|$)", name)}
    assert {known[name][1] for name in pairs} <= {"8"}
    runs = {name: words[1] for name, words in known.items() if name not in pairs}
    once = {name for name in runs if name.startswith("once ")}
    assert {name.rsplit("/", 1)[1] for name in once} == {"prepare"}, "nothing there is pinned"
    prepared = {name.removeprefix("once ").removesuffix("/prepare") for name in once}
    assert prepared == {key.replace("+sums", "") for key in read.flops}
    runs = {name: count for name, count in runs.items() if name not in once}
    short = [name for name in runs if not name.startswith(LONG) and not name.endswith(PASSES)]
    assert {runs[name] for name in short} == {"5"}
    assert set(runs.values()) <= {"2", "3", "4", "5"}
    assert {f"wire file/{rate}" for rate in ("fetch", "drain", "both")} <= known.keys()
    assert not any(name.startswith("wire page/") for name in known), "the device reaches all memory"
    for name, words in known.items():
        if name.startswith(LONG):
            assert 0 <= float(words[3]) < 1e3


def ones():
    import numpy as np

    return np.ones((4, 8, 40, 40), np.float32), np.ones((8, 8, 3, 3), np.float32)


def test_what_others_have_measured_meanwhile_stays(profile):
    problem = "conv2d:{} x1x8x32x32 w8x8x3x3"
    options = {"profile": profile, "engine": "direct"}
    with oocdnn.Context("cpu", "1MiB", **options) as one:
        one.plan(problem.format("fwd"))
        with oocdnn.Context("cpu", "1MiB", **options) as other:
            other.plan(problem.format("fwd"))
            one.plan(problem.format("bwd_data"))
            other.plan(problem.format("bwd_filter"))
    read = parse(profile.read_text(encoding="utf-8"))
    for direction in ("fwd", "bwd_data", "bwd_filter"):
        assert read.mark(f"flops direct/f32/{direction}").startswith("samples ")


def test_rates_of_first_calls_are_measured_anew_by_who_calibrates(profile):
    """They may be of a device that others used; those of an earlier calibration stay."""
    odd = {"fetch_bytes_per_second": 1.25e12, "flops": {"direct/f32/fwd": 125.0}}
    with oocdnn.Context("cpu", "1MiB", profile=profile, engine="direct") as context:
        context.plan("conv2d:fwd x1x1x8x8 w1x1x3x3")
        first = parse(profile.read_text(encoding="utf-8"))
    assert first.calibration == "none"
    kept = {}
    for calibration in ("none", "begun"):
        spoiled = dataclasses.replace(first, calibration=calibration, **odd)
        profile.write_text(spoiled.text(), encoding="utf-8")
        with oocdnn.Context("cpu", "1MiB", profile=profile, engine="direct") as context:
            context.calibrate()
        kept[calibration] = parse(profile.read_text(encoding="utf-8"))
        assert kept[calibration].calibration == "complete"
    assert kept["begun"].fetch_bytes_per_second == 1.25e12
    assert kept["begun"].flops["direct/f32/fwd"] == 125.0
    assert kept["none"].fetch_bytes_per_second != 1.25e12
    assert kept["none"].flops["direct/f32/fwd"] != 125.0


def test_a_first_call_takes_what_was_calibrated_meanwhile(profile):
    options = {"profile": profile, "engine": "direct"}
    with (
        oocdnn.Context("cpu", "1MiB", **options) as one,
        oocdnn.Context("cpu", "1MiB", **options) as other,
    ):
        one.plan("conv2d:fwd x1x1x8x8 w1x1x3x3")
        other.calibrate()
        calibrated = profile.read_text(encoding="utf-8")
        one.plan("conv2d:bwd_data x1x1x8x8 w1x1x3x3")
    assert profile.read_text(encoding="utf-8") == calibrated


def interrupt(done: int, total: int) -> None:
    raise KeyboardInterrupt


def test_what_a_calibration_that_was_interrupted_lacks_is_measured_and_not_kept(profile):
    """A first call had measured it, and takes the calibration's rates: its own went with them."""
    problem = "conv2d:bwd_filter x1x1x{0}x{0} w1x1x3x3"
    options = {"profile": profile, "engine": "direct"}
    with (
        oocdnn.Context("cpu", "1MiB", **options) as one,
        oocdnn.Context("cpu", "1MiB", **options) as other,
    ):
        one.plan(problem.format(8))
        with pytest.raises(KeyboardInterrupt):
            other.calibrate(interrupt)
        begun = profile.read_text(encoding="utf-8")
        assert parse(begun).calibration == "begun"
        assert "flops direct/f32/bwd_filter" not in begun
        one.plan("conv2d:bwd_data x1x1x8x8 w1x1x3x3")
        assert one.plan(problem.format(9)).unmeasured == []
        assert profile.read_text(encoding="utf-8") == begun


def test_who_goes_on_calibrating_takes_what_is_kept_and_no_more(profile):
    """What a first call measures of a machine of which a calibration has begun is in no file."""
    with oocdnn.Context("cpu", "1MiB", profile=profile, engine="direct") as context:
        context.plan("conv2d:fwd x1x1x8x8 w1x1x3x3")
    first = parse(profile.read_text(encoding="utf-8"))
    begun = dataclasses.replace(first, calibration="begun")
    more = dataclasses.replace(begun, flops=begun.flops | {"direct/f32/bwd_filter": 125.0})
    profile.write_text(more.text(), encoding="utf-8")
    with oocdnn.Context("cpu", "1MiB", profile=profile, engine="direct") as context:
        context.plan("conv2d:bwd_filter x1x1x8x8 w1x1x3x3")
        profile.write_text(begun.text(), encoding="utf-8")
        context.calibrate()
    after = parse(profile.read_text(encoding="utf-8"))
    assert after.flops["direct/f32/fwd"] == begun.flops["direct/f32/fwd"]
    assert after.flops["direct/f32/bwd_filter"] != 125.0


def test_a_child_of_who_measures_does_not_keep_others_waiting(profile):
    """It has the lock's file open, and may live for long."""
    reads, writes = os.pipe()
    children: list[int] = []

    def fork(done: int, total: int) -> None:
        child = os.fork()
        if child == 0:
            os.read(reads, 1)
            os._exit(0)
        children.append(child)
        raise KeyboardInterrupt

    with (
        oocdnn.Context("cpu", "1MiB", profile=profile, engine="direct") as context,
        pytest.raises(KeyboardInterrupt),
    ):
        context.calibrate(fork)
    try:
        with profile.with_name("profile.txt.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.write(writes, b".")
        os.waitpid(children[0], 0)


def test_who_waits_to_calibrate_can_be_interrupted(profile):
    with oocdnn.Context("cpu", "1MiB", profile=profile, engine="direct") as context:
        context.plan("conv2d:fwd x1x1x8x8 w1x1x3x3")
        before = profile.read_text(encoding="utf-8")
        with profile.with_name("profile.txt.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with pytest.raises(KeyboardInterrupt):
                context.calibrate(interrupt)
    assert profile.read_text(encoding="utf-8") == before


def test_who_waits_for_another_that_measures_takes_what_it_kept(profile):
    """A first call finds the lock taken; by when it has it, the rates are there."""
    with oocdnn.Context("cpu", "1MiB", profile=profile, engine="direct") as context:
        context.plan("conv2d:fwd x1x1x8x8 w1x1x3x3")
    first = parse(profile.read_text(encoding="utf-8"))
    profile.unlink()
    problem = "conv2d:bwd_data x1x1x8x8 w1x1x3x3"

    def plan():
        with oocdnn.Context("cpu", "1MiB", profile=profile, engine="direct") as context:
            context.plan(problem)

    with ThreadPoolExecutor(1) as pool, profile.with_name("profile.txt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waits = pool.submit(plan)
        wait([waits], 1)  # it measures within that time if it may
        assert not profile.exists()
        told = dataclasses.replace(first, fetch_bytes_per_second=1.25e12)
        profile.write_text(told.text(), encoding="utf-8")
        fcntl.flock(lock, fcntl.LOCK_UN)
        waits.result()
    after = parse(profile.read_text(encoding="utf-8"))
    assert after.fetch_bytes_per_second == 1.25e12
    assert "direct/f32/bwd_data" in after.flops


def test_who_lacks_nothing_takes_no_turn(profile):
    """Another process may calibrate, which takes half a minute on a GPU."""
    lock, problem = profile.with_name("profile.txt.lock"), "conv2d:{} x1x1x8x8 w1x1x3x3"
    options = {"profile": profile, "engine": "direct"}
    with oocdnn.Context("cpu", "1MiB", **options) as context:
        context.plan(problem.format("fwd"))
    lock.unlink()
    with oocdnn.Context("cpu", "1MiB", **options) as context:
        context.plan(problem.format("fwd"))
        assert not lock.exists()
        context.plan(problem.format("bwd_data"))
        assert lock.exists()


def test_where_nothing_is_kept_nothing_is_measured():
    with (
        oocdnn.Context("cpu", "1MiB", profile="none") as context,
        pytest.raises(oocdnn.InvalidProblem, match="nothing is kept"),
    ):
        context.calibrate()


def test_a_profile_of_another_machine_is_left_alone(profile):
    with oocdnn.Context("cpu", "1MiB", profile=profile) as context:
        context.plan("conv2d:fwd x1x1x8x8 w1x1x3x3")
    text = profile.read_text(encoding="utf-8").replace("machine = ", "machine = another ")
    profile.write_text(text, encoding="utf-8")
    with (
        oocdnn.Context("cpu", "1MiB", profile=profile) as context,
        pytest.raises(oocdnn.InvalidProblem, match="speaks of another"),
    ):
        context.calibrate()
    assert profile.read_text(encoding="utf-8") == text


def test_the_command_says_that_what_it_has_is_kept(profile, monkeypatch):
    def interrupted(self, progress):
        raise KeyboardInterrupt

    monkeypatch.setattr(oocdnn.Context, "calibrate", interrupted)
    done = CliRunner().invoke(main, ["calibrate", "--device", "cpu", "--profile", str(profile)])
    assert done.exit_code == 1
    assert "run it again for the rest" in done.output


def test_the_command_says_what_is_complete_and_how_to_begin_anew(profile, monkeypatch):
    monkeypatch.setenv("OOCDNN_ENGINE", "direct")
    for _ in range(2):
        done = CliRunner().invoke(main, ["calibrate", "--device", "cpu", "--profile", str(profile)])
        assert done.exit_code == 0, done.output
        assert done.output.startswith(f"{profile}: cpu is measured, and the profile complete; ")
        assert "delete the file" in done.output


def test_a_file_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "no folder").touch()
    with (
        oocdnn.Context("cpu", "1MiB", profile=tmp_path / "no folder" / "p.txt") as context,
        pytest.raises(oocdnn.FileError, match="cannot be written"),
    ):
        context.calibrate()
