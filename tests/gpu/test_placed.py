"""Predicted against measured with operands on the device, on the fake driver."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from gpu.driver import FAKE
from gpu.suite import FAKE_DRIVER, run_suite

import oocdnn
from oocdnn.bench.gpu.memory import DeviceArray, Gpu
from oocdnn.cli.problems import parse, random_call
from oocdnn.perfmodel import validate
from oocdnn.perfmodel.__main__ import main
from oocdnn.perfmodel.cases import Case
from oocdnn.perfmodel.runs import PinnedPool, place

inside = pytest.mark.skipif(not FAKE, reason="runs in the suite below")

SMALL = [
    Case("conv2d:fwd x4x8x24x24 w8x8x3x3 pad1 f32 x@dev w@dev y@dev", "1MiB"),
    Case("conv2d:bwd_data x4x8x24x24 w8x8x3x3 pad1 f32 nhwc dy@dev", "128KiB"),
    Case("conv2d:bwd_filter x4x8x24x24 w8x8x3x3 pad1 f32 nhwc dy@dev dw@dev", "128KiB"),
    Case("conv2d:fwd x4x8x24x24 w8x8x3x3 pad1 bf16", "128KiB"),
]


@pytest.mark.skipif(FAKE or not FAKE_DRIVER.exists(), reason=f"{FAKE_DRIVER} is not there")
@pytest.mark.timeout(600)
def test_placed_operands(tmp_path: Path) -> None:
    run_suite(tmp_path, "gpu/test_placed.py")


@inside
def test_cases_with_operands_everywhere(tmp_path, monkeypatch):
    monkeypatch.setattr(validate, "cases", lambda device, count, seed: SMALL[:count])
    out = tmp_path / "found.json"
    options = ["--device", "cuda:0", "--plans", "3", "--repeats", "1", "--out", str(out)]
    done = CliRunner().invoke(main, ["validate", *options, "--cases", "4", "--regret", "4"])
    assert done.exit_code == 0, done.output + repr(done.exception)
    found = json.loads(out.read_text(encoding="utf-8"))
    rows, regrets = found["lists"]["cases"], found["lists"]["regrets"]
    assert [row["placement"] for row in rows] == ["device", "mixed", "mixed", "host"]
    for row in rows:
        assert row["seconds"] > 0
        assert row["booked_bytes"] == row["peak_bytes"]
    assert rows[0]["bound"] == "compute"
    for one in regrets:
        assert len(one["plans"]) == len(one["seconds"]) > 1
    assert found["summary"]["operands: mixed: cases"] == 2


@inside
@pytest.mark.parametrize("case", SMALL)
def test_placed_arrays_give_the_same_result(case):
    """Where operands lie, and only there, and what they hold."""
    gpu = Gpu()
    with oocdnn.Context("cuda", case.budget) as ctx:
        call = random_call(parse(case.problem), ctx, PinnedPool(0))
        call()
        expected = call.keywords["out"].copy()
        call.keywords["out"][...] = np.nan
        placed = place(call, case.problem, gpu)
        words = [word for word in case.problem.split() if "@dev" in word]
        arrays = [*placed.args[:2], placed.keywords["out"]]
        assert sum(isinstance(array, DeviceArray) for array in arrays) == len(words)
        placed()
        out = placed.keywords["out"]
        if isinstance(out, DeviceArray):
            here = call.keywords["out"]
            gpu.synchronize()
            gpu.copy(here.ctypes.data, out.address, out.nbytes)
            gpu.synchronize()
            out = here
        np.testing.assert_array_equal(out, expected)


@inside
def test_candidates_are_for_where_the_operands_are():
    problem = SMALL[1].problem
    with oocdnn.Context("cuda", "128KiB") as ctx:
        for other in ctx.candidates(problem, best=3, random=3):
            assert ctx.price(problem, other["plan"]).predicted_seconds == other["predicted_seconds"]
        chosen, elsewhere = (
            ctx.candidates(text, best=1, random=0)[0]["predicted_seconds"]
            for text in (problem, problem.replace(" dy@dev", ""))
        )
    assert chosen < elsewhere
