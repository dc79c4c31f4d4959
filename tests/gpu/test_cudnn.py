"""The cuDNN engines without a GPU: on the fake driver, with a fake cuDNN (fake_cudnn.cpp).

It computes what its graphs describe, and offers engines that must not be taken and would give wrong
sums.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
NATIVE = HERE.parents[1] / "native"
LIBRARY = os.environ.get("OOCDNN_TESTING_LIBRARY", "")
BUILD = Path(LIBRARY).resolve().parents[1] if os.path.exists(LIBRARY) else Path()
# Not from the working folder, which may be the source tree.
INFO = "import sys; sys.path.remove(''); from oocdnn.cli import main; main()"
DRIVER, CUDNN = BUILD / "fake_cuda", BUILD / "fake_cudnn"
pytestmark = pytest.mark.skipif(
    not (CUDNN / "libcudnn.so.9").exists(),
    reason="OOCDNN_TESTING_LIBRARY names no testing library; `make test` does",
)


def script(name: str, *arguments: str, **options: Any) -> str:
    return python(str(HERE / name), *arguments, **options)


def python(*arguments: str, folders: tuple[Path, ...] = (DRIVER, CUDNN), **variables: str) -> str:
    environment: Mapping[str, str] = {
        **os.environ,
        "LD_LIBRARY_PATH": ":".join(map(str, folders)),
        **({"OOCDNN_CUDNN_LIBRARY": str(CUDNN / "libcudnn.so.9")} if CUDNN in folders else {}),
        **variables,
    }
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        cwd=HERE,  # the installed package, not the tree
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def answers(device: str, **options: Any) -> list[dict[str, Any]]:
    lines = script("choices.py", LIBRARY, device, **options).splitlines()
    return [json.loads(line) for line in lines]


def refusal(device: str, **options: Any) -> str:
    (answer,) = answers(device, **options)
    return str(answer["open"])


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, Any]]:
    cache = str(tmp_path_factory.mktemp("cache"))
    # Engines take no time, so that of equals the first is taken, and not the fastest by a clock.
    seen = answers("cuda:0", XDG_CACHE_HOME=cache, OOC_FAKE_CLOCK="still")
    return {(answer["case"], answer["engine"]): answer for answer in seen}


def test_every_convolution_is_right() -> None:
    options = ("--library", LIBRARY, "--quick", "--cases", "60", "--device", "cuda:0:cudnn")
    printed = script("smoke.py", *options)
    assert "engines cudnn-nhwc cudnn-nchw" in printed
    for direction in ("forward", "backward_data", "backward_filter"):
        for order in ("nhwc", "nchw"):
            (line,) = re.findall(f"^ok +{direction}, cudnn-{order}: .*", printed, re.MULTILINE)
            refused = re.search(r"refused:(\d+)", line)
            assert refused is None or (order == "nhwc" and int(refused[1]) < 15), line


def test_tensor_cores_only_where_they_may_be(chosen: Any) -> None:
    for order in ("nhwc", "nchw"):
        engine = f"cudnn-{order}"
        for case in ("tf32", "bf16 native", "f16 native", "bf16 0 sums", "f64 1 sums"):
            assert chosen[case, engine]["taken"] == f"{engine} e48 k2=7"
        for direction in range(3):
            taken = chosen[f"f32 {direction} sums", engine]["taken"]
            assert taken in (f"{engine} e28 k2=7", f"{engine} e1 k2=7")


def test_transforms_only_where_they_may_be(chosen: Any) -> None:
    """An engine whose notes tell of one, and one without notes that is known to be one."""
    for order in ("nhwc", "nchw"):
        taken = [chosen[f"fp32_fast {d}", f"cudnn-{order}"]["taken"] for d in (0, 2)]
        assert taken == [f"cudnn-{order} e3 k2=7", f"cudnn-{order} e17 k2=7"]


def test_sums_of_half_types_come_out_in_float(chosen: Any) -> None:
    for order in ("nhwc", "nchw"):
        for dtype in ("f16", "bf16"):
            for direction in range(3):
                tiles = chosen[f"{dtype} {direction} sums", f"cudnn-{order}"]["tiles"]
                assert {tile["dtype"] for tile in tiles.values()} == {"f32"}
            tiles = chosen[f"{dtype} native", f"cudnn-{order}"]["tiles"]
            assert {tile["dtype"] for tile in tiles.values()} == {dtype}


def test_large_filter_gradients_are_worth_compiling_for(chosen: Any) -> None:
    for order in ("nhwc", "nchw"):
        answer = chosen["bf16 large filter", f"cudnn-{order}"]
        assert " e70 " in answer["taken"]
        assert [tile["dtype"] for tile in answer["tiles"].values()] == ["bf16", "f32", "bf16"]
        # cuDNN's own, rounded up, and a second filter to add from
        assert answer["workspace"] == 768 + 4 * 512 * 512 * 9


@pytest.mark.parametrize(
    ("direction", "types"), [(0, ["bf16", "bf16", "f32"]), (1, ["f32", "bf16", "bf16"])]
)
def test_float_sums_of_16_bit_tiles_are_compiled_for_who_runs_them_often(
    chosen: Any, direction: int, types: list[str]
) -> None:
    for order in ("nhwc", "nchw"):
        answer = chosen[f"bf16 {direction} compiled sums", f"cudnn-{order}"]
        assert " e70 " in answer["taken"]
        assert [tile["dtype"] for tile in answer["tiles"].values()] == types


def test_a_handle_belongs_to_its_gpu() -> None:
    printed = script("each_gpu.py", OOC_FAKE_TWO_GPUS="1")
    assert re.findall("cuda:. cudnn", printed) == ["cuda:1 cudnn", "cuda:0 cudnn"]


def test_the_order_of_the_channels(chosen: Any) -> None:
    rows = chosen["tf32", "cudnn-nhwc"]["tiles"]
    assert rows["x"]["stride"][2:] == [1, 100, 20, 4]
    assert rows["w"]["stride"][2:] == [1, 36, 12, 4]
    planes = chosen["tf32", "cudnn-nchw"]["tiles"]
    assert planes["x"]["stride"][2:] == [25, 25, 5, 1]
    assert planes["w"]["stride"][2:] == [9, 9, 3, 1]


def test_the_workspace_stays_within_its_limit(chosen: Any) -> None:
    for order in ("nhwc", "nchw"):
        answer = chosen["tight", f"cudnn-{order}"]
        assert answer["workspace"] == 0
        assert " e1 " in answer["taken"]


def test_trials_of_engines_stay_within_the_budget(tmp_path: Path) -> None:
    """A new plan tries engines out in memory of its own, when the context may hold much already."""
    log = tmp_path / "log"
    lines = script("budget_peak.py", OOCDNN_LOG="debug", OOCDNN_LOG_FILE=str(log)).splitlines()
    calls = [json.loads(line) for line in lines]
    assert len(re.findall(r"cuDNN e\d+.*: \d+\.\d+ ms", log.read_text(encoding="utf-8"))) > 8
    assert max(seen["own"] for seen in calls) > 1 << 19
    for seen in calls:
        assert seen["prepared"] > 0
        assert seen["peak"] - seen["arrays"] <= 1 << 20, seen


def trials(tmp_path: Path, **variables: str) -> tuple[list[str], list[tuple[str, float]]]:
    """What each tile was prepared for, and the engines tried with their milliseconds.

    The clock counts only what the fake says that runs take.
    """
    log = tmp_path / "log"
    lines = script(
        "trials.py",
        LIBRARY,
        OOCDNN_LOG="debug",
        OOCDNN_LOG_FILE=str(log),
        OOC_FAKE_CLOCK="still",
        **variables,
    ).splitlines()
    tried = re.findall(r"cuDNN (e\d+).*: (\d+\.\d+) ms", log.read_text(encoding="utf-8"))
    return lines, [(engine, float(milliseconds)) for engine, milliseconds in tried]


def test_what_was_hopeless_on_a_small_tile_is_not_tried_on_a_larger(tmp_path: Path) -> None:
    """Once is enough of it even there; other kinds of tiles are no reason to pass it over."""
    lines, seen = trials(tmp_path, OOC_FAKE_SLOW_ENGINE="1")
    tried = [engine for engine, _ in seen]
    small, larger, other = ["e28", "e1"], ["e28"], ["e28", "e1"]
    assert tried[:5] == small + larger + other
    assert all(" e28 " in line for line in lines[:3]), lines


COLD = 40  # milliseconds, see fake_engines.hpp


def test_the_loading_of_code_is_no_part_of_what_an_engine_takes(tmp_path: Path) -> None:
    """Nor where other code of the same engine has run before."""
    _, seen = trials(tmp_path, OOC_FAKE_COLD="1")
    assert len(seen) > 6
    assert max(milliseconds for _, milliseconds in seen) < COLD


def test_a_gpu_that_has_waited_costs_the_first_engine_nothing(tmp_path: Path) -> None:
    """It is timed again before another one takes its place."""
    lines, seen = trials(tmp_path, OOC_FAKE_WAITED="1")
    assert seen[:2] == [("e28", 8), ("e1", 4)]
    assert " e28 " in lines[0], lines


def slow_engines(
    tmp_path: Path, rates: str, least: str = "", tiles: tuple[str, ...] = ("groups",)
) -> tuple[list[str], list[tuple[str, int]]]:
    """The plans of a tile of groups with 31 x 31 taps and of one of half as many samples more,
    and the runs of it all: engines and milliseconds on the fake clock."""
    took = tmp_path / "took"
    took.write_text("")
    lines = script(
        "trials.py",
        LIBRARY,
        *tiles,
        OOC_FAKE_CLOCK="still",
        OOC_FAKE_RATES=rates,
        OOC_FAKE_LEAST=least,
        OOC_FAKE_TOOK=str(took),
    ).splitlines()
    runs = [line.split() for line in took.read_text(encoding="utf-8").splitlines()]
    return lines, [(engine, int(milliseconds)) for engine, milliseconds in runs]


@pytest.mark.parametrize(
    "rates", ["28=2e10 1=1e12", "28=1e9 1=1e12", "28=1e12 1=2e10", "28=1e14 1=4e10"]
)
def test_an_engine_that_is_slow_on_large_tiles_is_tried_on_a_small_one(
    tmp_path: Path, rates: str
) -> None:
    """A running kernel cannot be cancelled. The slow engine would take seconds at each run, and the
    fast one is found whether it is offered first or last."""
    lines, runs = slow_engines(tmp_path, rates)
    fast = "e1" if rates.endswith("1e12") else "e28"
    assert len(lines) == 2
    assert all(f" {fast} " in line for line in lines), lines
    assert max(milliseconds for _, milliseconds in runs) < 400
    assert sum(milliseconds for _, milliseconds in runs) < 1000


@pytest.mark.parametrize(
    ("rates", "least"),
    [
        ("28=1e9 1=1e12", "28=5e8"),
        ("28=1e12 1=1e9", "1=5e8"),
        ("28=1e9 1=1e12", "28=5e9"),
        ("28=1e9 1=1e12", "28=2e10"),
    ],
)
def test_an_engine_that_only_larger_tiles_have_is_not_run(
    tmp_path: Path, rates: str, least: str
) -> None:
    """It takes seconds at each run. From the second probe on it is offered, from the third, or only
    for the tile; first or last."""
    lines, runs = slow_engines(tmp_path, rates, least)
    slow, _ = least.split("=")
    assert len(lines) == 2
    assert {engine for engine, _ in runs} == {"e1", "e28"} - {f"e{slow}"}
    assert not any(f" e{slow} " in line for line in lines), lines


def test_an_engine_that_the_smallest_tile_does_not_have_may_be_the_fastest(tmp_path: Path) -> None:
    lines, runs = slow_engines(tmp_path, "28=1e11 1=1e12", "1=1e8")
    assert all(" e1 " in line for line in lines), lines
    assert max(milliseconds for _, milliseconds in runs) < 400


def test_engines_that_no_smaller_tile_has_are_not_run(tmp_path: Path) -> None:
    lines, runs = slow_engines(tmp_path, "28=1e9 1=1e9", "28=2e10 1=2e10")
    assert all(" e28 " in line for line in lines), lines
    assert runs == []


def test_another_stride_or_dilation_is_another_kind_of_tile(tmp_path: Path) -> None:
    """What an engine takes of the one tells nothing of the other."""
    _, runs = slow_engines(tmp_path, "28=2e10 1=1e12")
    lines, more = slow_engines(tmp_path, "28=2e10 1=1e12", tiles=("groups", "dilated"))
    assert len(lines) == 3
    assert [one for one, _ in more].count("e28") > [one for one, _ in runs].count("e28")


def test_engines_that_are_all_slow_are_chosen_by_what_a_small_tile_took(tmp_path: Path) -> None:
    """None runs on the large tiles, neither the first nor the second of their kind."""
    lines, runs = slow_engines(tmp_path, "28=1e10 1=2e10")
    assert all(" e1 " in line for line in lines), lines
    assert max(milliseconds for _, milliseconds in runs) < 400
    assert sum(milliseconds for _, milliseconds in runs) < 1000


SECONDS_LONG = """
import numpy as np, oocdnn
w, dy = np.ones((128, 2, 31, 31), np.float32), np.ones((16, 128, 56, 56), np.float32)
with oocdnn.Context("cuda:0") as context:
    for _ in range(2):
        context.conv_backward_data(dy, w, dy.shape, padding=15, groups=64)
        print(sum(int(line.split()[1]) for line in open({took!r})), flush=True)
"""


@pytest.mark.parametrize("least", ["", "28=1e10 1=1e10"])
def test_a_kernel_that_takes_seconds_is_not_run_for_its_time(tmp_path: Path, least: str) -> None:
    """The first call takes little more than the second, of the fake clock. Also where no engine is
    offered for a smaller tile."""
    took = tmp_path / "took"
    first, both = map(
        int,
        python(
            "-c",
            SECONDS_LONG.format(took=str(took)),
            OOC_FAKE_CLOCK="still",
            OOC_FAKE_RATES="28=1e10 1=1e10",
            OOC_FAKE_LEAST=least,
            OOC_FAKE_TOOK=str(took),
            OOCDNN_PROFILE=str(HERE.parent / "profile.txt"),
            OOCDNN_PLANS="none",
            OOCDNN_ENGINE="cudnn-nchw",
        ).split(),
    )
    second = both - first
    assert second > 2000
    assert first - second < 500


def test_who_wants_the_first_choice_gets_it_or_nothing(chosen: Any) -> None:
    """An engine whose workspace no GPU has is none; one whose workspace is over the limit is."""
    for order in ("nhwc", "nchw"):
        answer = chosen["tight first choice", f"cudnn-{order}"]
        assert answer["code"] == 3
        assert "workspace of 640" in answer["text"]
        assert chosen["tf32 first choice", f"cudnn-{order}"]["taken"] == f"cudnn-{order} e48 k2=7"


def test_the_plain_loop_serves_over_planes_only(chosen: Any) -> None:
    assert "only a plain loop" in chosen["depthwise", "cudnn-nhwc"]["text"]
    assert chosen["depthwise", "cudnn-nchw"]["taken"] == "cudnn-nchw e0 k2=7"


def test_refusals_say_why(chosen: Any) -> None:
    for order in ("nhwc", "nchw"):
        assert chosen["bias", f"cudnn-{order}"]["code"] == 4
        assert "bias" in chosen["bias", f"cudnn-{order}"]["text"]
        assert chosen["large", f"cudnn-{order}"]["code"] == 4
        assert "x has 2147483648" in chosen["large", f"cudnn-{order}"]["text"]


def test_driver_and_libraries_are_told_by_version() -> None:
    """As profiles need them; the kernel module's version only where there is one."""
    core = json.loads(python("-c", INFO, "info", "--json", "--device", "cuda:0"))["core"]
    assert re.fullmatch(r"(\d[\d.]+ )?for CUDA \d+\.\d", core["driver"])
    assert {engine["name"]: engine["library"] for engine in core["engines"]} == {
        "depthwise": "",
        "fp32x3": "",
        "cudnn-nhwc": "cuDNN 9.19.0",
        "cudnn-nchw": "cuDNN 9.19.0",
        "direct": "",
    }


def test_without_cudnn_our_own_engines_serve() -> None:
    seen = answers("cuda:0", folders=(DRIVER,))
    assert {answer["engine"] for answer in seen} == {"depthwise", "fp32x3", "direct"}
    assert "pip install nvidia-cudnn-cu13" in refusal("cuda:0:cudnn", folders=(DRIVER,))


def test_kernels_for_older_gpus_have_no_tf32() -> None:
    """They run on newer ones too, and have no code for it."""
    seen = answers("cuda:0", folders=(DRIVER,), OOC_FAKE_KERNELS="75")
    assert {answer["engine"] for answer in seen} == {"depthwise", "direct"}


def test_another_major_version_is_refused() -> None:
    for version in ("8902", "100100"):
        text = refusal("cuda:0:cudnn", OOC_FAKE_CUDNN_VERSION=version)
        assert f"has version {version}, and cuDNN 9" in text


def test_what_cudnn_cannot_do_without_is_looked_for_first(tmp_path: Path) -> None:
    (tmp_path / "libcudnn.so.9").symlink_to(CUDNN / "libcudnn.so.9")
    text = refusal("cuda:0:cudnn", folders=(DRIVER, tmp_path))
    assert "cuBLASLt, which cuDNN needs," in text
    assert "pip install nvidia-cublas" in text


def test_an_unknown_engine_is_named_with_the_known() -> None:
    assert "known are cudnn" in refusal("cuda:0:fastest")


def header() -> Path:
    found = [
        Path(folder) / "nvidia/cudnn/include/cudnn_graph.h"
        for folder in sys.path
        if (Path(folder) / "nvidia/cudnn/include/cudnn_graph.h").exists()
    ]
    return found[0] if found else pytest.skip("no cuDNN wheel to compare with")


def test_numbers_agree_with_cudnns(tmp_path: Path) -> None:
    toolkit = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"
    if not (toolkit / "cuda_runtime_api.h").exists():
        pytest.skip("cuDNN's header needs a toolkit's")
    files = [NATIVE / "abi" / f"cudnn_{part}.h" for part in ("types", "backend")]
    ours = "".join(file.read_text(encoding="utf-8") for file in files)
    names = re.findall(r"(CUDNN_\w+) = \d+", ours)
    assert len(names) > 90
    lines = "".join(f'  printf("{name} %d\\n", {name});\n' for name in names)
    texts = []
    for include, folders in (
        ("cudnn_graph.h", [header().parent, toolkit]),
        ("abi/cudnn_backend.h", [NATIVE]),
    ):
        source = tmp_path / "numbers.c"
        program = source.with_suffix("")
        source.write_text(
            f'#include <stdio.h>\n#include "{include}"\nint main(void) {{\n{lines}}}\n',
            encoding="utf-8",
        )
        flags = [f"-I{folder}" for folder in folders]
        subprocess.run(["gcc", *flags, str(source), "-o", str(program)], check=True)
        texts.append(subprocess.run([str(program)], check=True, capture_output=True).stdout)
    assert texts[0] == texts[1]
