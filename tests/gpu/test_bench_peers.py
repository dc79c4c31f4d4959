"""Who else computes on a GPU and needs no torch, on the fake driver."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from gpu.suite import FAKE_DRIVER, run_suite

from oocdnn.bench import network, results, suite
from oocdnn.bench.gpu.wires import Wires
from oocdnn.cli import main

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import FAKE

PROBLEMS = (
    "conv2d:fwd x4x6x12x11 w5x6x3x3 pad1 f32",
    "conv2d:bwd_data x4x6x12x11 w5x6x3x3 pad1 f32 nhwc",
    "conv2d:bwd_filter x4x6x12x11 w5x6x3x3 pad1 f64",
)
inside = pytest.mark.skipif(not FAKE, reason="runs in the suite below")


@pytest.fixture(autouse=True)
def no_result_passes_its_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of the fake driver tell nothing."""
    monkeypatch.setattr(suite, "LEAST_RATIO", 0.0)


@pytest.mark.skipif(FAKE or not FAKE_DRIVER.exists(), reason=f"{FAKE_DRIVER} is not there")
@pytest.mark.timeout(600)
def test_peers_on_a_gpu(tmp_path: Path) -> None:
    run_suite(tmp_path, "gpu/test_bench_peers.py")


@inside
@pytest.mark.parametrize("text", PROBLEMS)
def test_ours_with_its_arrays_on_the_gpu_gives_the_same(text: str) -> None:
    patience = suite.Patience(least=1, most=1)
    settings = suite.Settings("cuda:0", "1MiB", True, ("in-core",), patience)
    ours, in_core = suite.Bench(settings).rows(suite.case_of(text, "cuda:0"))
    assert (ours["check"], in_core["check"]) == ("pass", "pass")
    assert ours["bytes_h2d"] > 0
    assert in_core["peak_device_bytes"] >= in_core["data_bytes"]


@inside
def test_what_is_not_computed_in_core_says_so() -> None:
    text = "conv2d:fwd x4x6x12x12 w5x6x3x3 pad1 f32 +relu +maxpool2"
    settings = suite.Settings("cuda:0", "1MiB", True, ("in-core", "copies"), suite.ONCE)
    _, in_core, copies = suite.Bench(settings).rows(suite.case_of(text, "cuda:0"))
    assert in_core["check"] == "skipped: only plain convolutions are computed so here"
    assert copies["check"] in ("skipped: torch sees no GPU", "skipped: torch is not installed")


@inside
def test_a_network_trains_in_both_ways_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "VGG16", ((4, False), (6, True), (8, True)))
    patience = suite.Patience(least=1, most=1)
    settings = suite.Settings("cuda:0", "64MiB", True, ("layer-by-layer",), patience)
    text = "vgg16:train x3x3x32x32 f32"
    ours, apart = suite.Bench(settings).rows(suite.case_of(text, "cuda:0"))
    assert (ours["check"], apart["check"]) == ("pass", "pass")
    assert apart["floor_seconds"] >= ours["floor_seconds"] > 0  # type: ignore[operator]


@inside
def test_plans_are_those_of_pinned_arrays_and_of_no_less_than_every_problem_may_ask_for() -> None:
    settings = suite.Settings("cuda:0", None, True, (), suite.ONCE)
    for text in (
        PROBLEMS[0],
        "conv2d:bwd_data x4x6x12x12 w5x6x3x3 pad1 +maxpool2 +clipped +dw +db",
    ):
        (ours,) = suite.Bench(settings).rows(suite.case_of(text, "cuda:0"))
        assert (ours["check"], ours["budget"]) == ("pass", 64 << 20)
        assert ours["command"].count("@") == 0


@inside
def test_arithmetic_of_a_gpu_is_what_a_call_takes_there() -> None:
    assert suite.gpu_arithmetic("cuda:0", PROBLEMS[0]) > 1e5


@inside
def test_the_card_and_its_driver_are_named() -> None:
    about = suite.Bench(suite.Settings("cuda:0")).about
    assert "compute capability" in about["machine"]
    assert about["versions"]["driver"]


@inside
def test_the_command_writes_results_of_a_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "RICH", PROBLEMS[0].removesuffix(" f32"))
    monkeypatch.setattr(suite.gpu_wires, "measure", lambda _: Wires(50.0, 51.0, 90.0))
    options = ["--device", "cuda:0", "--budget", "1MiB", "--placement", "pinned", "--quick"]
    peers = ["--peer", "in-core", "--peer", "zero-copy"]
    done = CliRunner().invoke(
        main, ["bench", PROBLEMS[0], *options, *peers, "--out", str(tmp_path)]
    )
    assert done.exit_code == 0, done.output
    ours, in_core, zero_copy = results.read(tmp_path)
    assert [row["who"] for row in (ours, in_core, zero_copy)] == ["oocdnn", "in-core", "zero-copy"]
    assert zero_copy["check"].startswith("skipped: torch ")
    assert "wire, both ways at once: 90.0 GB/s" in (tmp_path / "index.html").read_text("utf-8")
