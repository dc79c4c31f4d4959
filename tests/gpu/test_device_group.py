"""Contexts of several devices with a GPU among them. Two GPUs are taken where there are two.

On a machine without a GPU test_suites.py runs this file on a fake driver of two.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np
import pytest
from engine.cases import DEVICE, RandomDraw, random_case, run_case
from python.support import assert_equal, integers

import oocdnn

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import driver

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE == "cpu", reason="runs where OOCDNN_TEST_DEVICE is cuda"),
]


def gpus() -> int:
    count = ctypes.c_int()
    driver().cuInit(0)
    driver().cuDeviceGetCount(ctypes.byref(count))
    return count.value


GROUPS = [["cuda:0", "cpu"], ["cpu", "cuda:0"]]
if DEVICE != "cpu" and gpus() > 1:
    GROUPS += [["cuda:0", "cuda:1"], ["cuda:1", "cpu", "cuda:0"]]
X, W = integers((6, 8, 64, 65)), integers((12, 8, 3, 3), 1)


@pytest.fixture(params=GROUPS, ids=",".join)
def group(request):
    with oocdnn.Context(devices=request.param, budget="16MiB", profile="none") as context:
        yield context


@pytest.mark.parametrize("devices", GROUPS, ids=",".join)
@pytest.mark.parametrize("seed", range(30))
def test_random_problems(devices, seed: int) -> None:
    case = random_case(RandomDraw(np.random.default_rng(seed)))
    case = type(case)(**case.__dict__ | {"budget": 8 << 20})
    outcome = run_case(case, device=",".join(devices), profile="none", engine="direct")
    assert outcome.reports == []
    assert outcome.mismatches() == 0


@pytest.mark.parametrize("math", ["fp32", "tf32"])
def test_pinned_arrays(group, math: str) -> None:
    with oocdnn.Context("cuda:0", profile="none"):
        x, y = oocdnn.empty(X.shape, X.dtype), oocdnn.empty((6, 12, 62, 63), X.dtype)
    x[...] = X
    with oocdnn.Context("cpu", profile="none") as one:
        assert_equal(group.conv2d(x, W, out=y, math=math), one.conv2d(X, W))
        for direction in ("data", "filter"):
            operands = (y, W, X.shape) if direction == "data" else (x, y, W.shape)
            found, exact = (
                getattr(context, f"conv_backward_{direction}")(*operands, math=math)
                for context in (group, one)
            )
            assert_equal(found, exact)


def test_chains(group) -> None:
    links = [oocdnn.Link(W, activation="relu", pool=2), oocdnn.Link(integers((4, 12, 1, 1), 2))]
    with oocdnn.Context("cpu", profile="none") as one:
        assert_equal(group.conv_chain(X, links), one.conv_chain(X, links))


def test_an_array_of_a_gpu_is_refused(group) -> None:
    """By whichever device looks first: the CPU's does not know that it is one."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    with pytest.raises(oocdnn.Unsupported, match=r"take a context of one device|lies on GPU"):
        group.conv2d(torch.from_numpy(X).cuda(), torch.from_numpy(W).cuda())


def test_a_gpu_and_the_cpu_are_not_reproducible_together() -> None:
    with pytest.raises(oocdnn.Unsupported, match="devices of one kind"):
        oocdnn.Context(devices=["cuda:0", "cpu"], reproducible=True)


def test_a_gpu_is_not_named_twice() -> None:
    with pytest.raises(oocdnn.InvalidProblem, match="cuda:0 is named twice"):
        oocdnn.Context(devices=["cuda:0", "cuda:0"])
