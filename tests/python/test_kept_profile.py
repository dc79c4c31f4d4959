"""The file of a machine's profile: what must not be kept is not, and what is a user's stays."""

from __future__ import annotations

import ctypes
import dataclasses
import fcntl
import functools
import os
import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest
from geometry import core
from model import planner

import oocdnn
from oocdnn.perfmodel.profile import UNMEASURED, parse

PROBLEM = "conv2d:{} x1x1x8x8 w1x1x3x3"
FETCH = "fetch_bytes_per_second"
FILE_ERROR, INTERRUPTED, OUT_OF_MEMORY, DEVICE_ERROR = 7, 6, 3, 5


@pytest.fixture
def profile(tmp_path):
    return tmp_path / "profile.txt"


def read(file):
    return parse(file.read_text(encoding="utf-8"))


def machine(file, what="plan", device="cpu:direct", direction="fwd", steps=0) -> tuple[int, str]:
    """One thing done with the device's profile: its code and text."""
    text = ctypes.create_string_buffer(4096)
    problem = core.parse(PROBLEM.format(direction))
    code = planner.library().oocdnn_testing_machine_profile(
        device.encode(), str(file).encode(), what.encode(), ctypes.byref(problem),
        ctypes.c_int(steps), text, ctypes.c_int64(len(text)),
    )  # fmt: skip
    return code, text.value.decode()


@contextmanager
def another_measures(file):
    with file.with_name(f"{file.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run(body: str, tmp_path, **variables: str) -> list[str]:
    """What another process logs meanwhile."""
    program = f"import oocdnn\n{body}"
    environment = os.environ | {"OOCDNN_LOG_FILE": str(tmp_path / "log")}
    environment.pop("OOCDNN_PROFILE", None)
    environment |= variables
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, cwd="/", env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    log = tmp_path / "log"
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def test_a_program_has_what_all_its_nodes_need_measured(profile):
    """The gradients of a chain too, whose first node is a forward convolution."""
    images = np.ones((1, 3, 8, 8), np.float32)
    links = [oocdnn.Link(np.ones((c, k, 3, 3), np.float32), padding=1) for c, k in ((4, 3), (4, 4))]
    with oocdnn.Context("cpu", "256MiB", profile=profile, engine="direct"):
        z = oocdnn.conv_chain(images, links)
        assert directions(profile) == {"fwd"}
        oocdnn.conv_chain_backward(np.ones_like(z), images, links)
    assert directions(profile) >= {"fwd", "bwd_data", "bwd_filter"}


def directions(file) -> set[str]:
    """Of the engine's measured rates."""
    lines = file.read_text(encoding="utf-8").splitlines()
    names = (line.split(" = ")[0].split("/") for line in lines if line.startswith("flops "))
    return {one for name in names for one in name if one in ("fwd", "bwd_data", "bwd_filter")}


# What a user calls a profile, and is none.


@pytest.mark.parametrize("text", ["my notes\n", "oocdnn-profile 8\nend\n"])
def test_a_file_that_is_no_profile_is_never_replaced(profile, text):
    profile.write_text(text, encoding="utf-8")
    with oocdnn.Context("cpu", "1MiB", profile=profile, engine="direct") as context:
        assert context.plan(PROBLEM.format("fwd")).unmeasured == []
        for call in (context.calibrate, lambda: context.refine(PROBLEM.format("fwd"), [1.0])):
            with pytest.raises(oocdnn.FileError, match="name another file"):
                call()
    assert profile.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("call", ["plan", "refine", "calibrate"])
def test_a_profile_of_another_machine_that_appears_meanwhile_stays(profile, call):
    """Two hosts share a home."""
    with oocdnn.Context("cpu", "1MiB", profile=profile, engine="direct") as context:
        context.plan(PROBLEM.format("fwd"))
        text = dataclasses.replace(read(profile), machine="another").text()
        profile.write_text(text, encoding="utf-8")
        if call == "plan":
            context.plan(PROBLEM.format("bwd_data"))
        else:
            refine = functools.partial(context.refine, PROBLEM.format("fwd"), [1.0])
            with pytest.raises(oocdnn.InvalidProblem, match="speaks of another machine"):
                {"refine": refine, "calibrate": context.calibrate}[call]()
    assert profile.read_text(encoding="utf-8") == text


@pytest.mark.skipif(os.getuid() != 0, reason="who is nobody else reads his own files")
def test_a_file_that_cannot_be_read_is_never_replaced(profile, tmp_path):
    profile.write_text("my notes\n", encoding="utf-8")
    profile.chmod(0)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o777)
    body = (
        "import os\n"
        "oocdnn.Context('cpu', profile='none').close()\n"  # loads what another user may not read
        "os.setuid(65534)\n"
        "with oocdnn.Context('cpu', '1MiB', engine='direct') as context:\n"
        "    context.plan('conv2d:fwd x1x1x8x8 w1x1x3x3')\n"
    )
    run(body, tmp_path, OOCDNN_PROFILE=str(profile))
    profile.chmod(0o600)
    assert profile.read_text(encoding="utf-8") == "my notes\n"


def test_a_folder_is_no_profile(profile):
    profile.mkdir()
    with oocdnn.Context("cpu", "1MiB", profile=profile, engine="direct") as context:
        assert context.plan(PROBLEM.format("fwd")).unmeasured == []
        with pytest.raises(oocdnn.FileError, match="it cannot be read as a file"):
            context.calibrate()
    assert list(profile.iterdir()) == []


def test_the_cache_keeps_each_version_of_the_format(tmp_path):
    """A library of another version shares the folder, and measures only once too."""
    body = f'with oocdnn.Context("cpu", "1MiB") as context: context.plan("{PROBLEM}")'
    run(body.format("fwd"), tmp_path, XDG_CACHE_HOME=str(tmp_path))
    (file,) = (tmp_path / "oocdnn").glob("profile-*.txt")
    version = file.read_text(encoding="utf-8").splitlines()[0].removeprefix("oocdnn-profile ")
    assert file.name.startswith(f"profile-{version}-")
    file.write_text("damaged", encoding="utf-8")
    logged = run(body.format("fwd"), tmp_path, XDG_CACHE_HOME=str(tmp_path))
    assert read(file).flops
    assert [line for line in logged if "is measured again" in line]


# Another machine's.


def test_a_given_profile_of_another_machine_is_used_with_one_warning(profile, tmp_path):
    machine(profile)
    text = profile.read_text(encoding="utf-8").replace("machine = ", "machine = another ")
    profile.write_text(text, encoding="utf-8")
    directions = "for direction in ('fwd', 'bwd_data'): context.plan(problem.format(direction))"
    body = (
        f"problem = {PROBLEM!r}\n"
        f"with oocdnn.Context('cpu', '1MiB', engine='direct') as context:\n    {directions}"
    )
    (line,) = run(body, tmp_path, OOCDNN_PROFILE=str(profile))
    assert "speaks of another machine" in line
    assert profile.read_text(encoding="utf-8") == text


# What no profile can hold.


@pytest.mark.parametrize("seconds", [[1e-320], [1e-320, 1.0], [1e300]])
def test_a_profile_that_was_refined_by_odd_times_can_be_read(profile, seconds):
    """A rate of inf was written, and a calibration was lost with the file."""
    with oocdnn.Context("cpu", "1MiB", profile=profile, engine="direct") as context:
        made = context.refine(PROBLEM.format("fwd"), seconds)
    after = read(profile)
    assert planner.reprint(profile.read_text(encoding="utf-8"))
    assert 1e6 <= after.rates()[made.rate] <= 1e16
    assert after.mark(made.rate).startswith(f"samples {len(seconds)} ")


# While another measures.


def test_who_has_no_turn_writes_nothing(profile):
    """What it wrote was lost when who had the turn wrote."""
    machine(profile)
    before = profile.read_bytes()
    with another_measures(profile):
        assert machine(profile, "plan", direction="bwd_data") == (0, "")
        code, text = machine(profile, "refine")
        assert code == FILE_ERROR
        assert "another process measures this machine" in text
        assert profile.read_bytes() == before
        profile.unlink()
        assert machine(profile) == (0, "")
        assert not profile.exists()
    assert machine(profile, "refine") == (0, "")
    assert profile.exists()


# Of system calls, flock fails with ENOLCK.
NO_LOCKS = """
import ctypes, platform, struct
number = {"x86_64": 73, "aarch64": 32}[platform.machine()]
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, 0x50000 | 37), (6, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = ctypes.create_string_buffer(struct.pack("@HP", len(rules), ctypes.addressof(code)))
libc = ctypes.CDLL(None)
if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, program, 0, 0) != 0:
    raise SystemExit("no filter of system calls is possible here")
"""


def test_a_file_system_without_locks_has_nobody_wait(profile, tmp_path):
    """Nobody was there to give the lock back, and `oocdnn calibrate` waited for ever."""
    body = NO_LOCKS + (
        "def progress(done, total):\n"
        "    assert done > 0, 'it waits for another process'\n"
        "    raise KeyboardInterrupt\n"
        "with oocdnn.Context('cpu', '1MiB', engine='direct') as context:\n"
        "    try:\n"
        "        context.calibrate(progress)\n"
        "    except KeyboardInterrupt:\n"
        "        pass\n"
    )
    try:
        run(body, tmp_path, OOCDNN_PROFILE=str(profile))
    except AssertionError as error:
        if "no filter of system calls" in str(error):
            pytest.skip("no filter of system calls is possible here")
        raise


def test_that_another_is_waited_for_is_logged_once(profile, tmp_path):
    machine(profile)
    body = (
        "looks = []\n"
        "def progress(done, total):\n"
        "    looks.append(done)\n"
        "    if len(looks) == 4:\n"
        "        raise KeyboardInterrupt\n"
        "with oocdnn.Context('cpu', '1MiB', engine='direct') as context:\n"
        "    try:\n"
        "        context.calibrate(progress)\n"
        "    except KeyboardInterrupt:\n"
        "        pass\n"
        "assert len(looks) == 4\n"
    )
    with another_measures(profile):
        logged = run(body, tmp_path, OOCDNN_PROFILE=str(profile))
    assert len([line for line in logged if "is waited for" in line]) == 1


def test_that_nothing_is_kept_without_a_turn_is_logged(profile, capfd):
    with another_measures(profile):
        assert machine(profile) == (0, "")
    assert "what was measured is not kept" in capfd.readouterr().err


@pytest.mark.long
def test_a_stopped_process_that_holds_the_lock_delays_others_for_seconds(profile, tmp_path):
    body = "with oocdnn.Context('cpu', '1MiB', engine='direct') as context: context.plan({!r})"
    with another_measures(profile):
        begin = time.monotonic()
        logged = run(body.format(PROBLEM.format("fwd")), tmp_path, OOCDNN_PROFILE=str(profile))
        assert time.monotonic() - begin < 40
    assert [line for line in logged if "is waited for" in line]
    assert [line for line in logged if "is not kept" in line]
    assert not profile.exists()


# A device that fails.


@pytest.mark.parametrize(
    ("fault", "code"),
    [("run:1+", DEVICE_ERROR), ("event:1", DEVICE_ERROR), ("allocate:1+", OUT_OF_MEMORY)],
)
def test_a_calibration_during_which_the_device_fails_can_be_completed(profile, fault, code):
    """It was complete, without the rates that had failed."""
    assert machine(profile, "calibrate", steps=2)[0] == INTERRUPTED
    begun = read(profile)
    assert set(begun.flops) == {"direct/f32/fwd", "direct/f32/bwd_data"}
    found, text = machine(profile, "calibrate", f"fault:{fault}(cpu:direct)")
    assert (found, "direct/f32/bwd_filter" in text) == (code, True), text
    assert read(profile).calibration == "begun"
    assert read(profile).flops == begun.flops
    assert machine(profile, "calibrate") == (0, "")
    assert read(profile).calibration == "complete"
    assert {"direct/f32/bwd_filter", "direct/f64/bwd_bias"} <= read(profile).flops.keys()


@pytest.mark.parametrize("nth", range(1, 9))
def test_a_first_call_keeps_nothing_of_copies_that_could_not_be_measured(profile, nth):
    """The wires were never measured afterwards."""
    assert machine(profile, "plan", f"fault:allocate:{nth}(cpu:direct)") == (0, "")
    assert not profile.exists() or read(profile).mark(FETCH).startswith("samples ")
    assert machine(profile) == (0, "")
    assert read(profile).mark(FETCH).startswith("samples ")


@pytest.mark.parametrize("calibration", ["none", "begun", "complete"])
def test_a_kept_profile_without_copies_is_measured_again(profile, calibration):
    """Older libraries kept some."""
    machine(profile)
    marks = {**read(profile).marks, FETCH: UNMEASURED}
    lacking = dataclasses.replace(read(profile), marks=marks, calibration=calibration)
    profile.write_text(lacking.text(), encoding="utf-8")
    machine(profile)
    assert read(profile).mark(FETCH).startswith("samples ")


# Calibrations.


def test_a_file_that_was_deleted_is_measured_anew(profile):
    """Who had a context open brought the old rates back."""
    with oocdnn.Context("cpu", "1MiB", profile=profile, engine="direct") as context:
        context.calibrate()
        odd = dataclasses.replace(read(profile), flops={"direct/f32/fwd": 125.0})
        profile.write_text(odd.text(), encoding="utf-8")
        context.calibrate()
        assert read(profile).flops["direct/f32/fwd"] == 125.0
        profile.unlink()
        context.calibrate()
    assert read(profile).flops["direct/f32/fwd"] != 125.0


def test_guesses_beside_a_refined_tile_rest_on_what_is_measured(profile):
    """Of a calibration that is not complete; they hid the rates that it measured later."""
    key = "direct/f32/bwd_filter"
    assert machine(profile, "calibrate", steps=2)[0] == INTERRUPTED
    guesses = {f"8 128 {key}": 125.0, f"8 8192 {key}": 125.0}
    refined, marks = f"8 1024 {key}", {f"tile {name}": UNMEASURED for name in guesses}
    known = {f"tile {refined}": "samples 5 spread 0.1"}
    begun = read(profile)
    told = dataclasses.replace(
        begun,
        tiles=begun.tiles | guesses | {refined: 2e9},
        marks={**begun.marks, **marks, **known},
    )
    profile.write_text(told.text(), encoding="utf-8")
    assert machine(profile, "calibrate") == (0, "")
    after = read(profile)
    assert after.tiles[refined] == 2e9
    assert {after.tiles[name] for name in guesses} == {after.flops[key]}
    assert {after.mark(name) for name in marks} == {UNMEASURED}
