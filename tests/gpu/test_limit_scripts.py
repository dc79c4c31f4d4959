"""The scripts that measure training within a limit, where they run without a GPU: tiny networks on
the CPU's tensors as a device's, and a trace made by hand."""

from __future__ import annotations

import json
import os
import sys
import types
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("highspy", reason="plans of networks are solved by HiGHS")

sys.path.insert(0, str(Path(__file__).resolve().parent))

import limit_bits
from click.testing import CliRunner, Result

from oocdnn.bench.training import study
from oocdnn.bench.training.device import Host
from oocdnn.bench.training.models import MODELS, PlanePool, Training, WholePool, deterministic
from oocdnn.bench.training.page import page_of
from oocdnn.bench.training.profile import breakdown
from oocdnn.bench.training.rows import Rows
from oocdnn.cli.training import training

MIB = 1 << 20


def bench(*given: str) -> Result:
    before = environment()
    done = CliRunner().invoke(training, list(given))
    assert environment() == before
    return done


def environment() -> dict[str, str]:
    """Without what PyTorch sets when its compiler is imported."""
    return {name: value for name, value in os.environ.items() if "INDUCTOR" not in name}


def printed(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("name", ["small_unet3d", "tied"])
def test_bits_are_those_of_plain_pytorch(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    mode = "fp16" if name == "small_unet3d" else "fp32"
    given = [name, "--device", "cpu", "--steps", "4", "--mode", mode]
    assert limit_bits.main(given) == 0
    (row,) = printed(capsys.readouterr().out)
    assert row["equal"] is True
    assert row["state"] == "follow"
    assert row["peak_gib"] <= row["limit_gib"] < row["plain_peak_gib"]


def test_values_that_differ_are_named() -> None:
    zero = {"a": torch.zeros(3), "b": torch.zeros(3), "c": torch.tensor(0.0), "d": torch.ones(1)}
    other = {"a": torch.zeros(3), "b": -torch.zeros(3), "c": torch.tensor(torch.nan)}
    assert limit_bits.differences(other, zero) == ["b", "c", "d"]
    assert limit_bits.differences(other, other) == []


def test_networks_are_trained_plainly_within_limits_and_by_peers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "FIRST", 12)  # a plan is final after nine
    file = tmp_path / "training" / "rows.json"
    given = ["small_unet3d", "--device", "cpu", "--mode", "fp32", "--images", "4"]
    given += ["--planning", "0.1"]
    more = ["--limit", "0.6x", "--limit", "0.0001", "--peer", "accumulate", "--peer", "checkpoint"]
    more += ["--peer", "hooks", "--profile"]
    page = tmp_path / "page.html"
    done = bench(*given, *more, "--out", str(file), "--page", str(page))
    assert done.exit_code == 1
    rows = printed(done.output)
    plain, within, refused, halved, never, checkpointed, hooked = rows[:7]
    assert within["losses_equal"]
    assert within["within"]
    assert within["allocated_gib"] <= 0.6 * plain["needs_gib"]
    assert within["peak_of_predicted"] == pytest.approx(1, abs=0.01)
    calls = {name: one["calls"] for name, one in within["hooks"].items()}
    assert {name.split()[1].rstrip(",") for name in calls} > {"stays", "keep"}
    packed = sum(number for name, number in calls.items() if name.startswith("pack"))
    assert 2 * packed == sum(calls.values())
    assert all(one["ms"] > 0 for one in within["hooks"].values())
    assert "OutOfMemory" in refused["error"]
    assert refused["least_gib"] > refused["limit_gib"]
    assert halved["parts"] == 2
    assert "error" in never
    assert checkpointed["losses"] == plain["losses"][:5]
    assert checkpointed["allocated_gib"] < plain["allocated_gib"]
    assert hooked["losses"] == plain["losses"][:5]
    assert json.loads(file.read_text())["rows"] == rows
    root = ElementTree.fromstring(page.read_text(encoding="utf-8"))
    assert sum(one.tag.endswith("circle") for one in root.iter()) == sum(
        "seconds" in r for r in rows
    )
    words = "".join(root.itertext())
    assert all(row["way"] in words for row in rows)
    assert refused["error"] in words


def test_the_offloading_of_other_packages_is_a_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    class OffloadActivations(torch.autograd.graph.saved_tensors_hooks):
        packed = 0

        def __init__(self) -> None:
            super().__init__(self._pack, lambda one: one)

        def _pack(self, one: torch.Tensor) -> torch.Tensor:
            type(self).packed += 1
            return one

    module = types.SimpleNamespace(OffloadActivations=OffloadActivations)
    monkeypatch.setitem(sys.modules, "trl", types.SimpleNamespace())
    monkeypatch.setitem(sys.modules, "trl.models", types.SimpleNamespace())
    monkeypatch.setitem(sys.modules, "trl.models.activation_offloading", module)
    monkeypatch.setitem(sys.modules, "torchtune", None)
    given = ["small", "--device", "cpu", "--mode", "fp32", "--images", "2", "--only-peers"]
    done = bench(*given, "--peer", "trl-offload", "--peer", "torchtune-offload")
    assert done.exit_code == 1
    plain, offloaded, missing = printed(done.output)
    assert offloaded["losses"] == plain["losses"][: len(offloaded["losses"])]
    assert OffloadActivations.packed > 0
    assert "torchtune cannot be imported, install it by pip" in missing["error"]


def test_cases_and_peers_that_are_not_there_are_named() -> None:
    done = bench("--list")
    assert done.exit_code == 0
    assert "resnet1517-bf16" in done.output
    assert "save-on-cpu" in done.output
    done = bench("none", "--device", "cpu")
    assert done.exit_code == 1
    assert "there is no case none; there are resnet50-bf16," in done.output
    done = bench("small", "--peer", "none")
    assert done.exit_code == 2
    assert "there is no peer none; there are hooks," in done.output


def test_rows_of_several_files_make_one_page(tmp_path: Path) -> None:
    for name, way in (("one", "plain"), ("two", "limit")):
        row = {"case": "net", "way": way, "seconds": 1.0, "driver_gib": 2.0, "images": 8}
        row |= {"arithmetic": "fp32", "gpu": "some GPU", "torch": "2"}
        written = {"command": f"oocdnn bench training {name}", "rows": [row]}
        (tmp_path / f"{name}.json").write_text(json.dumps(written), encoding="utf-8")
    page = tmp_path / "page.html"
    assert bench("--rows", str(tmp_path), "--page", str(page)).exit_code == 0
    drawn = page.read_text(encoding="utf-8")
    assert drawn.count("<circle") == 2
    assert "bench training one; oocdnn bench training two" in drawn
    done = bench("small", "--rows", str(tmp_path), "--page", str(page))
    assert done.exit_code == 2
    assert "--rows takes --page or --picture, and no case" in done.output
    (tmp_path / "one.json").write_text("[]", encoding="utf-8")
    done = bench("--rows", str(tmp_path / "one.json"), "--page", str(page))
    assert done.exit_code == 1
    assert "one.json holds no rows of `oocdnn bench training --out`" in done.output


def test_a_picture_has_the_ways_of_one_case(tmp_path: Path) -> None:
    """Ways that take too long for it are named."""
    rows = [
        {"case": "net", "way": way, "seconds": seconds, "driver_gib": nbytes, "images": 8,
         "arithmetic": "fp32", "gpu": "some GPU", "model": "net"}
        for way, seconds, nbytes in (
            ("plain", 1.0, 8.0), ("limit", 1.1, 4.0), ("limit", 1.5, 2.0), ("save-on-cpu", 9.0, 3.0)
        )
    ]  # fmt: skip
    file, drawn = tmp_path / "rows.json", tmp_path / "picture.svg"

    def picture(rows: list[dict[str, Any]]) -> Any:
        file.write_text(json.dumps({"command": "oocdnn bench training net", "rows": rows}))
        return bench("--rows", str(file), "--picture", str(drawn))

    assert picture(rows).exit_code == 0
    root = ElementTree.fromstring(drawn.read_text(encoding="utf-8"))
    said = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "Time of a training step by GPU memory: net, 8 images, fp32, some GPU" in said
    assert {"oocdnn.torch.memory_limit", "PyTorch"} <= set(said)
    assert "Not shown: save_on_cpu 9.0 x in 3.0 GiB." in said
    assert drawn.read_text(encoding="utf-8").count("<circle") == 3
    done = picture([*rows, rows[0] | {"case": "other"}])
    assert done.exit_code == 1
    assert "a picture is of one case with its plain step" in done.output
    assert bench("small", "--picture", str(drawn)).exit_code == 2


def test_a_page_of_nothing_says_so() -> None:
    assert "Nothing was measured" in page_of([], "oocdnn bench training")


def test_a_page_has_compiled_steps_beside_the_compiled_one() -> None:
    def row(way: str, seconds: float) -> dict[str, Any]:
        return {"case": "a", "way": way, "seconds": seconds, "driver_gib": 1.0, "images": 1,
                "arithmetic": "fp32"}  # fmt: skip

    page = page_of([row("plain", 8.0), row("budget-0.4", 5.0), row("compiled", 4.0)], "")
    assert page.count("<td>1.250</td>") == 1
    assert page.count("<td>1.000</td>") == 1
    assert "<td>2.000</td>" not in page


def test_the_largest_batch_of_the_plain_step_is_found() -> None:
    device = Host()
    rows = Rows(device, "script", 100.0)
    made = study.Study(device, rows, study.Case("small_unet3d", 0), "one", study.Wish())
    with device.counted():
        images = made._largest_plain(5 * MIB)
        assert made._fits(images, 5 * MIB)
        assert not made._fits(images + 1, 5 * MIB)


def test_a_row_that_fails_is_said_and_nothing_begins_after_the_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = Rows(Host(), "script", 100.0)
    assert rows.attempt({"name": "a"}, lambda: {"x": 1 // 0}) is None
    assert rows.attempt({"name": "b"}, lambda: {"x": 1}) is not None
    rows._end = 0.0
    assert rows.attempt({"name": "c"}, lambda: {"x": 1}) is None
    failed, good, late = printed(capsys.readouterr().out)
    assert failed["error"].startswith("ZeroDivisionError")
    assert good["x"] == 1
    assert late["skipped"]
    assert rows.failed == 1


def test_replaced_pools_give_what_they_replace() -> None:
    x = torch.randn(2, 3, 14, 28)
    pool = torch.nn.AdaptiveAvgPool2d((7, 7))
    torch.testing.assert_close(WholePool((7, 7))(x), pool(x))
    assert WholePool((14, 28))(x) is x
    volume = torch.randn(2, 3, 7, 8, 6)
    assert torch.equal(PlanePool()(volume), torch.nn.MaxPool3d(2)(volume))
    net, replaced = deterministic(MODELS["small_unet3d"].make())
    assert replaced == ["MaxPool3d: pools of planes"]
    assert not any(isinstance(one, torch.nn.MaxPool3d) for one in net.modules())


def test_bytes_that_are_no_activations() -> None:
    training = Training(MODELS["small"], "fp32", "cpu", images=2, size=16)
    parameters = sum(4 * one.numel() for one in training.net.parameters())
    buffers = sum(one.nbytes for one in training.net.buffers())
    assert training.fixed_bytes() == parameters + buffers
    training.step(*training.batch())
    assert training.fixed_bytes() == 3 * parameters + buffers  # gradients and momentum


def event(cat: str, name: str, begin: float, spent: float, **args: Any) -> dict[str, Any]:
    return {"cat": cat, "name": name, "ts": begin, "dur": spent, "args": args}


def test_a_trace_tells_why_the_gpu_idles() -> None:
    trace = [
        event("cuda_runtime", "cudaLaunchKernel", 0, 1, correlation=1),
        event("cuda_runtime", "cudaLaunchKernel", 2, 1, correlation=2),
        event("cuda_runtime", "cudaHostRegister", 120, 70),
        event("cuda_runtime", "cudaLaunchKernel", 200, 1, correlation=3),
        event("kernel", "sm90_xmma_fprop", 10, 50, stream=7, correlation=1),
        event("kernel", "fused", 80, 20, stream=7, correlation=2),  # a stream was waited for
        event("kernel", "vectorized_elementwise_kernel", 210, 40, stream=7, correlation=3),
        event("gpu_memcpy", "Memcpy DtoH", 20, 55, stream=9, correlation=9, bytes=1 << 30),
    ]
    row = breakdown(trace, steps=2)
    assert row["span_ms"] == pytest.approx(0.12)
    assert row["busy_ms"] == pytest.approx(0.055)
    assert row["idle_waiting_ms"] == pytest.approx(0.01)
    assert row["idle_host_ms"] == pytest.approx(0.055)
    assert row["kernels_ms"] == {"convolution": 0.025, "elementwise": 0.02, "fused recipe": 0.01}
    assert row["copies"]["DtoH"] == {"ms": 0.0275, "gib": 0.5, "copies": 0.5}
    assert row["allocating_calls"] == {"cudaHostRegister": 1}
