"""Each study of a GPU from its command to its file, on the fake driver, with torch on the host."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from gpu.suite import FAKE_DRIVER, run_suite

import oocdnn
from oocdnn.bench.gpu import wires as gpu_wires
from oocdnn.bench.layers import layer
from oocdnn.bench.studies import STUDIES
from oocdnn.cli import main
from oocdnn.perfmodel.profile import Profile

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import FAKE

torch = pytest.importorskip("torch")

inside = pytest.mark.skipif(not FAKE, reason="runs in the suite below")
LAYERS = (
    layer("VGG16 conv1_2", (2, 4, 10, 12), 4, 3, padding=1),
    layer("depthwise 3x3", (2, 6, 9, 9), 6, 3, padding=1, groups=6),
    layer("volume 3x3x3", (1, 3, 6, 7, 8), 4, 3, padding=1),
)


@pytest.mark.skipif(FAKE or not FAKE_DRIVER.exists(), reason=f"{FAKE_DRIVER} is not there")
@pytest.mark.timeout(600)
def test_studies_on_a_gpu(tmp_path: Path) -> None:
    run_suite(tmp_path, "gpu/test_bench_studies.py")


@pytest.fixture
def run(monkeypatch, tmp_path):
    """A study's command, twice, the second time with nothing left to do; gives its document."""
    from host_card import HostCard

    monkeypatch.setattr("oocdnn.bench.gpu.card.Card", HostCard)
    monkeypatch.setattr(gpu_wires, "_SIZE", 1 << 12)
    before = torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark

    def made(name: str, *options: str) -> dict:
        out = ("--out", str(tmp_path / "found.json"))
        words = ["bench", "study", name, "--repeats", "1", *options, *out]
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, done.output + repr(done.exception)
        assert "DIFFER" not in done.output, done.output
        document = json.loads(Path(out[1]).read_text(encoding="utf-8"))
        again = CliRunner().invoke(main, [*words, "--resume"])
        assert again.exit_code == 0, again.output + repr(again.exception)
        assert json.loads(Path(out[1]).read_text(encoding="utf-8"))["lists"] == document["lists"]
        return document

    yield made
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = before


@inside
def test_floor(run, monkeypatch):
    from oocdnn.bench.studies import floor

    monkeypatch.setattr(floor, "GPU_LAYERS", LAYERS)
    found = run("floor", "--budget", "1MiB", "--only", "fwd", "--only", "bwd_filter")
    assert (found["gpu"], found["versions"]["torch"]) == ("the host", torch.__version__)
    rows = found["lists"]["rows"]
    assert len(rows) == len(LAYERS) * 2 * len(floor.KINDS)
    for row in rows:
        assert row["wrong"] == 0
        assert len(row["seconds"]) >= 1
        assert row["floors"].keys() == {"in", "out", "both", "arithmetic"}
    assert found["summary"]["elements that differ"] == 0
    assert found["wires"]["both"] > 0


@inside
def test_floor_takes_no_result_of_another_kind_for_its_own(run, monkeypatch):
    """The memory of results is the same for all kinds, and so are the elements."""
    from oocdnn.bench.studies import floor

    own = floor.call_of

    def call_of(*case, math):
        return own(*case, math=math) if math == "fp32" else lambda: None

    monkeypatch.setattr(floor, "call_of", call_of)
    monkeypatch.setattr(floor, "GPU_LAYERS", LAYERS[:1])
    with pytest.raises(AssertionError, match="DIFFER"):
        run("floor", "--budget", "1MiB", "--only", "fwd", "--math", "fp32", "--math", "tf32")


@inside
def test_in_core(run, monkeypatch):
    from oocdnn.bench.studies import in_core

    cases = ((LAYERS[2], "bf16"), (LAYERS[0], "tf32"))
    monkeypatch.setattr(in_core, "CASES", cases)
    monkeypatch.setattr(in_core, "FROM_HOST", cases[-1])
    monkeypatch.setattr(in_core, "PINNED", "pinned")
    found = run("in-core", "--budget", "1MiB", "--pinned")["lists"]["rows"]
    assert [row["case"] for row in found] == ["volume 3x3x3", "VGG16 conv1_2", "pinned"]
    for row in found:
        assert (row["ours"]["wrong"], row["torch"]["wrong"], row["ours"]["error"]) == (0, 0, "")
    assert found[2]["floors"]["arithmetic"] == found[1]["ours"]["seconds"]


@inside
def test_fused(run, monkeypatch):
    from oocdnn.bench.studies import fused

    monkeypatch.setattr(fused, "SIZE", 12)
    monkeypatch.setattr(fused, "CHANNELS", 4)
    found = run("fused", "--budget", "1MiB", "--images", "3", "--math", "fp32")["lists"]["rows"]
    assert [(row["math"], row["images"]) for row in found] == [("fp32", 3)]
    assert found[0]["wrong"] == dict.fromkeys(found[0]["wrong"], 0)
    assert found[0]["wrong"].keys() > {"torch", "separate calls", "separate dx", "torch's dx"}
    assert len(found[0]["separate"]) == 4


@inside
def test_chain(run, monkeypatch):
    from oocdnn.bench.studies import chain, chain_networks
    from oocdnn.bench.studies.chain_networks import Spec

    stem = Spec(4, 7, stride=2, pool=oocdnn.Pool("max", 3, 2, 1))
    block = Spec(3, 1), Spec(3, 3), Spec(4, 1, residual=0)
    last = Spec(3, 1), Spec(3, 3, stride=2), Spec(5, 1, pool=oocdnn.Pool("max", 2, 2))
    monkeypatch.setitem(chain_networks.NETWORKS, "resnet50", (stem, *block, *last))
    monkeypatch.setattr(chain_networks, "SIZE", 32)
    monkeypatch.setattr(chain, "COPIED", 1 << 12)
    monkeypatch.setattr(chain, "IMAGES_CHECKED", 2)
    found = run("chain", "--network", "resnet50", "--budget", "2MiB", "--images", "3")
    rows = found["lists"]["rows"]
    assert [(row["network"], row["math"]) for row in rows] == [
        ("resnet50", "tf32"), ("resnet50", "bf16"),
    ]  # fmt: skip
    for row in rows:
        assert row["wrong"] == {"torch": 0, "layer by layer": 0}
        assert len(row["layers"]) == len(row["in_core"]) == 7
    # What is added is read too: by the call of a layer, and not by that of the chain.
    read = rows[0]["layers"][3]["bytes_in"] - rows[0]["layers"][1]["bytes_in"]
    assert read == 4 * (3 * (3 - 4 + 4) * 8 * 8 + 1)  # and one bias more


@inside
def test_samples(run, monkeypatch):
    from oocdnn.bench.studies import samples
    from oocdnn.bench.studies.samples import Sample

    small = {
        "slide": Sample(2, (3, 4, 4), 64, ("tf32",)),
        "volume": Sample(3, (4, 4), 16, ("bf16",)),
    }
    monkeypatch.setattr(samples, "SAMPLES", small)
    monkeypatch.setattr(samples, "WINDOW", {2: 16, 3: 8})
    found = run("samples", "--budget", "1MiB")["lists"]["rows"]
    assert [(row["sample"], row["math"]) for row in found] == [
        ("slide", "tf32"),
        ("volume", "bf16"),
    ]
    for row in found:
        assert row["wrong"] == 0 < row["looked_at"]
        assert row["ratio"] > 0


@inside
def test_peers(run, monkeypatch):
    monkeypatch.setattr("oocdnn.bench.studies.peers.GPU_LAYERS", LAYERS)
    directions = ("--direction", "fwd", "--direction", "bwd_data")
    found = run("peers", "--budget", "1MiB", *directions)["lists"]["rows"]
    assert len(found) == 4
    for row in found:
        assert row["wrong"] == {"ours": 0, "zero copy": 0, "managed": 0}, row["failed"]
        assert row["floors"].keys() == {"in", "out", "both", "in core"}


@inside
def test_wires(run, monkeypatch):
    from oocdnn.bench.studies import wires

    small = (
        wires.Problem("plain", (2, 4, 12, 12), 4, 3),
        wires.Problem("bias", (2, 4, 12, 12), 4, 1, direction="bias"),
    )
    monkeypatch.setattr(wires, "PROBLEMS", small)
    found = run("wires", "--budget", "1MiB")
    assert found["wires"]["inward"] > 0
    assert [row["problem"] for row in found["lists"]["rows"]] == ["plain", "bias"]
    for row in found["lists"]["rows"]:
        assert row["same_bits"]
        assert row["seconds"].keys() == {"pinned", "pageable", "fresh", "once"}


@inside
def test_copies(run, monkeypatch):
    from oocdnn.bench.studies import copies

    small = {"WIDTHS": (64, 512), "PITCHES": (128, 1024), "SIZES": (1 << 10, 1 << 12)}
    small |= {"HOST_BYTES": 1 << 16, "COPY_BYTES": 1 << 14, "PIECES_BYTES": 1 << 14}
    for name, value in small.items():
        monkeypatch.setattr(copies, name, value)
    lists = run("copies")["lists"]
    assert [(row["width"], list(row["rates"])) for row in lists["rows"]] == [
        (64, ["128", "1024"]), (512, ["1024"]),
    ]  # fmt: skip
    assert [row["size"] for row in lists["pieces"]] == [1 << 10, 1 << 12]
    assert all(row["rates"].keys() == copies.BETWEEN.keys() for row in lists["pieces"])


@inside
def test_rows_arrive_where_they_belong():
    from oocdnn.bench.gpu.memory import Gpu

    gpu, memory = Gpu(), oocdnn.empty((3, 8, 16), "u1")
    memory[...] = np.arange(memory.size, dtype="u1").reshape(memory.shape)
    source, target = memory[0], memory[1]
    there, stream = gpu.allocate(64), gpu.new_stream()
    gpu.copy_rows((there, 8), (source.ctypes.data, 16), 8, 5, stream)
    gpu.copy_rows((target.ctypes.data, 16), (there, 8), 8, 5, stream)
    with gpu.current():
        gpu.call("cuStreamSynchronize", stream)
        gpu.call("cuStreamDestroy_v2", stream)
    gpu.free(there)
    expected = np.arange(128, 256, dtype="u1").reshape(8, 16)
    expected[:5, :8] = source[:5, :8]
    np.testing.assert_array_equal(target, expected)


@inside
def test_passes(run, monkeypatch, tmp_path):
    from oocdnn.bench.studies import passes

    monkeypatch.setattr(passes, "COPIED", 1 << 16)
    known = {"direct/nhwc/finish": 2e9, "direct/nchw/restore": 1e9}
    file, marks = tmp_path / "profile.txt", {"wire direct/nhwc/finish": "samples 5 spread 0.02"}
    others = {"direct/nchw/inside": 5e9, "page/fetch": 6e9}
    made = Profile(measured=True, wires=known | others, marks=marks)
    file.write_text(made.text(), encoding="utf-8")
    found = run("passes", "--profile", str(file))
    copy, rows = found["copy_bytes_per_second"], found["lists"]["rows"]
    names = [f"{row['engine']}/{row['order']}/{row['pass']}" for row in rows]
    assert dict(zip(names, [row["bytes_per_second"] for row in rows], strict=True)) == known
    assert [row["share"] * copy for row in rows] == pytest.approx([1e9, 2e9])
    assert [row["evidence"] for row in rows] == ["measured", "samples 5 spread 0.02"]


def test_every_study_of_a_gpu_is_run_by_a_test():
    """Six need no GPU; that of two GPUs and the two of workspace are in files of their own."""
    elsewhere = {"cpu", "planning", "call-cost", "devices", "spatial", "arithmetic"}
    elsewhere |= {"workspace", "shares", "links"}
    here = {name for name in STUDIES if f"test_{name.replace('-', '_')}" in globals()}
    assert here | elsewhere == STUDIES.keys()
