"""The suites of the CPU device on the CUDA device: here on the fake driver, on a GPU by run.sh."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from gpu.suite import FAKE_CUDNN, FAKE_DRIVER, TESTS, run_suite

pytestmark = [
    pytest.mark.skipif(not FAKE_DRIVER.exists(), reason=f"{FAKE_DRIVER} is not there"),
    pytest.mark.timeout(600),
]

from_outside = pytest.mark.skipif(
    bool(os.environ.get("OOCDNN_TEST_DEVICE")), reason="this is such a process"
)

SUITES = {
    "conformance": ("conformance/test_conformance.py", "-k", "cuda"),
    "operands": ("gpu/test_operands.py", "gpu/test_prepared.py", "gpu/test_batches.py"),
    "pins": ("gpu/test_pins.py", "gpu/test_call_pins.py", "gpu/test_results.py"),
    "swap": ("gpu/test_swap.py",),
    "many calls": ("gpu/test_many_calls.py",),
    "several devices": ("gpu/test_device_group.py",),
    "borrowed links": ("gpu/test_borrowed_links.py",),
    "functions": ("python/test_functions.py", "python/test_arrays.py", "python/test_files.py"),
    "plans": ("python/test_remembered.py", "-k", "next_context or follow or timed or fits"),
    "calibration": ("gpu/test_calibration.py", "gpu/test_beside.py"),
    "torch": ("pytorch/test_exact.py", "pytorch/test_memory.py"),
    "exact": ("engine/test_exact.py", "engine/test_nan.py"),
    "depthwise": ("engine/test_depthwise.py",),
    "fp32x3": ("engine/test_fp32x3.py",),
    "fused": ("engine/test_fused.py", "gpu/test_fused.py"),
    "slopes": ("engine/test_slopes.py",),
    "fused backward": ("engine/test_fused_backward.py", "-k", "not random_chains"),
    "together": ("engine/test_gradients_together.py", "gpu/test_gradients_together.py"),
    "normalization": ("engine/test_normalization.py", "gpu/test_normalization.py"),
    "gradual": ("gpu/test_gradual.py",),
    "layers": ("nn/test_convolution.py", "nn/test_fused_layer.py"),
    "faults": ("engine/test_faults.py",),
    "schedules": ("engine/test_schedules.py", "engine/test_joint.py"),
    "chains": (
        "engine/test_chains.py",
        "engine/test_chain_calls.py",
        "engine/test_chain_residuals.py",
        "gpu/test_chain.py",
    ),
    "gradients of chains": (
        "engine/test_chain_backward.py",
        "engine/test_chain_saved.py",
        "nn/test_policies.py",
        "nn/test_recomputed.py",
    ),
}


@pytest.mark.parametrize("suite", SUITES)
@from_outside
def test_on_the_fake_driver(suite: str, tmp_path: Path) -> None:
    if suite == "torch":
        pytest.importorskip("torch")  # its files are skipped whole then, and nothing passes
    two = suite in ("several devices", "borrowed links", "swap")
    gpus = {"OOC_FAKE_TWO_GPUS": "1"} if two else {}
    if suite == "borrowed links":  # what copies take is said, and not measured
        gpus |= {"OOC_FAKE_THREE_GPUS": "1", "OOC_FAKE_CLOCK": "still"}
    run_suite(tmp_path, *SUITES[suite], **gpus)


BORROWING = (
    "conformance",
    "operands",
    "pins",
    "swap",
    "exact",
    "fused",
    "schedules",
    "chains",
    "normalization",
)


@pytest.mark.parametrize("suite", BORROWING)
@from_outside
def test_over_borrowed_links_on_the_fake_driver(suite: str, tmp_path: Path) -> None:
    """In small pieces, whose streams are as late as they may be."""
    links = {"OOCDNN_BORROW": "cuda:1", "OOCDNN_BORROW_PIECE": "4KiB"}
    run_suite(tmp_path, *SUITES[suite], **links, OOC_FAKE_TWO_GPUS="1")


@from_outside
def test_kernels_by_wgmma_on_the_fake_driver(tmp_path: Path) -> None:
    """Kernels that are compiled for GPUs with wgmma have other launches, and blocks that take
    several tiles."""
    run_suite(tmp_path, *SUITES["fp32x3"], OOC_FAKE_KERNELS="90")


def test_on_a_gpu_all_of_them_run() -> None:
    script = (TESTS / "gpu/run.sh").read_text(encoding="utf-8")
    steps = re.findall(r"tests/([\w./]+)", script)
    files = {one for suite in SUITES.values() for one in suite if one.endswith(".py")}
    missed = {file for file in files if not any(Path(file).is_relative_to(step) for step in steps)}
    assert not missed


@from_outside
def test_gradients_together_on_the_fake_cudnn(tmp_path: Path) -> None:
    """Whose engines want tiles of dy in other layouts than the one that computes db."""
    libraries = (FAKE_DRIVER, FAKE_CUDNN)
    run_suite(tmp_path, *SUITES["together"], "engine/test_joint.py", libraries=libraries)


@from_outside
def test_chains_on_the_fake_cudnn(tmp_path: Path) -> None:
    """Whose engines finish their sums."""
    chosen = ("-k", "not forgotten")
    run_suite(tmp_path, *SUITES["chains"], *chosen, libraries=(FAKE_DRIVER, FAKE_CUDNN))


@pytest.mark.long
@from_outside
def test_gradients_of_chains_on_the_fake_cudnn(tmp_path: Path) -> None:
    """Whose engines lay tensors that problems share out in several ways."""
    libraries = (FAKE_DRIVER, FAKE_CUDNN)
    chosen = ("engine/test_chain_backward.py", "-k", "not those_of_a_call")
    run_suite(tmp_path, *chosen, libraries=libraries)
