"""Threads that allocate and free at once, watched by the thread sanitizer."""

import subprocess

import pytest
from dropin.building import ROOT, compiler
from spill.scene import CLIENTS, MIB, build_runtime, play, variables

WATCH = ["-std=c11", "-D_GNU_SOURCE", "-fsanitize=thread", "-g", "-O1", f"-I{ROOT / 'native'}"]


def works(folder) -> bool:
    """Whether there is a thread sanitizer, and it bears this kernel's addresses."""
    (folder / "empty.c").write_text("int main(void) { return 0; }\n")
    built = subprocess.run(
        ["gcc", "-fsanitize=thread", "-o", folder / "empty", folder / "empty.c"],
        capture_output=True, check=False,
    )  # fmt: skip
    return built.returncode == 0 and subprocess.run([folder / "empty"], check=False).returncode == 0


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """The client, linked with a spill library in both of which every access is seen."""
    folder = tmp_path_factory.mktemp("races")
    if not works(folder):
        pytest.skip("gcc has no thread sanitizer that runs here")
    runtime, spill, program = build_runtime(folder, 13), folder / "libspill.so", folder / "requests"
    sources = sorted(map(str, (ROOT / "native" / "spill").glob("*.c")))
    script = ROOT / "native" / "spill" / "spill.map"
    compiler([*WATCH, "-shared", "-fPIC", "-o", str(spill), *sources,
              f"-Wl,--version-script={script}", "-pthread", "-ldl"])  # fmt: skip
    compiler([*WATCH, "-o", str(program), str(CLIENTS / "requests.c"), str(spill), str(runtime),
              f"-Wl,-rpath,{folder}", "-pthread", "-ldl"])  # fmt: skip
    return program


def without_preload(**more):
    return {k: v for k, v in (variables() | more).items() if k != "LD_PRELOAD"}


@pytest.mark.parametrize("place", ["device", "host"])
def test_threads_do_not_race(watched, place):
    """For blocks, the ledger and, with a card that has no room, slabs: their locks are needed."""
    card = 4096 if place == "host" else 2**40
    loops = [f"{thread} l {10 + thread} {MIB}" for thread in range(4)]
    outcome = play(watched, loops, together=True, FAKE_CARD=str(card), **without_preload())
    assert not [line for line in outcome.said if "WARNING" in line]
    figures = outcome.figures
    assert (figures.host_bytes, figures.device_bytes, figures.used) == (0, 0, 0)
    assert (figures.host_peak > 0) == (place == "host")


def test_captures_and_frees_do_not_race(watched):
    """The list of what is freed during captures: each thread has one of its own, then none."""
    lines = []
    for thread, stream in ((0, 5), (1, 6)):
        loop = f"l {stream} {64 << 10}"
        steps = (f"b {stream}", "r 2", loop, f"e {stream}", "r 0", loop)
        lines += [f"{thread} {step}" for step in steps]
    outcome = play(watched, lines, together=True, FAKE_CARD="4096", **without_preload())
    assert not [line for line in outcome.said if "WARNING" in line]
    assert outcome.figures.registered == outcome.figures.pinned_bytes > 100 * (64 << 10)
