"""The ways of writing a call that torch.nn.functional has."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from pytorch.cases import Case
from torch.nn import functional as F

import oocdnn.torch

pytestmark = pytest.mark.usefixtures("ctx")
X = Case(2, False, (), (), None, {}).filled((2, 4, 12, 13), 0)
W = Case(2, False, (), (), None, {}).filled((4, 4, 3, 2), 1)
NAMES = [f"conv{kind}{rank}d" for kind in ("", "_transpose") for rank in (1, 2, 3)]


def test_the_package_does_without_torch():
    program = "import sys, oocdnn; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("name", NAMES)
def test_arguments_are_torchs(name):
    """As its documentation has them: the functions themselves have no signature."""
    ours = list(inspect.signature(getattr(oocdnn.torch, name)).parameters.values())
    text = getattr(F, name).__doc__.split("(", 1)[1].split(")", 1)[0]
    torchs = [word.split("=")[0].strip() for word in text.split(",")]
    assert [p.name for p in ours if p.kind is p.POSITIONAL_OR_KEYWORD] == torchs
    assert [p.name for p in ours if p.kind is p.KEYWORD_ONLY] == ["device"]


@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d"])
@pytest.mark.parametrize(
    "keywords",
    [
        {"stride": 2, "padding": 1},
        {"stride": (2,), "padding": [1]},
        {"stride": torch.Size([2, 3]), "padding": (1, 0)},
        {"dilation": 2, "groups": 2},
        {"bias": torch.arange(4.0)},
    ],
    ids=repr,
)
def test_keywords(name, keywords):
    w = W[:, : 4 // keywords.get("groups", 1)]
    ours = getattr(oocdnn.torch, name)(X, w, **keywords)
    assert torch.equal(ours, getattr(F, name)(X, w, **keywords))


@pytest.mark.parametrize("padding", ["same", "valid"])
def test_padding_by_name(padding):
    ours = oocdnn.torch.conv2d(X, W, padding=padding)
    assert torch.equal(ours, F.conv2d(X, W, padding=padding))


def test_a_single_sample():
    assert torch.equal(oocdnn.torch.conv2d(X[0], W), F.conv2d(X[0], W))
    ours = oocdnn.torch.conv_transpose2d(X[0], W, stride=2)
    assert torch.equal(ours, F.conv_transpose2d(X[0], W, stride=2))


def test_an_empty_batch():
    x, w = X[:0].clone().requires_grad_(), W.clone().requires_grad_()
    y = oocdnn.torch.conv2d(x, w)
    y.sum().backward()
    assert y.shape == (0, 4, 10, 12)
    assert torch.equal(w.grad, torch.zeros_like(w))
    assert x.grad.shape == x.shape


def test_channels_last_stays():
    y = oocdnn.torch.conv2d(X.to(memory_format=torch.channels_last), W)
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert oocdnn.torch.conv2d(X, W).is_contiguous()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype):
    w = W.clone().requires_grad_()
    with torch.autocast("cpu", dtype):
        y = oocdnn.torch.conv2d(X, w, torch.ones(4))
        again = oocdnn.torch.conv_transpose2d(y, w)
        wide = oocdnn.torch.conv2d(X.double(), w.double())
    assert (y.dtype, again.dtype, wide.dtype) == (dtype, dtype, torch.float64)
    assert torch.equal(y, F.conv2d(X, W, torch.ones(4)).to(dtype))
    again.float().sum().backward()
    assert w.grad.dtype == torch.float32


def test_the_result_goes_where_it_is_said_to():
    assert oocdnn.torch.conv2d(X, W, device="cpu").device.type == "cpu"
    assert torch.equal(oocdnn.torch.conv2d(X, W, device=torch.device("cpu")), F.conv2d(X, W))


@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d"])
def test_shapes_without_data(name):
    """Models are often made on the meta device first."""
    ours, torchs = (getattr(at, name)(X.to("meta"), W.to("meta")) for at in (oocdnn.torch, F))
    assert (ours.shape, ours.stride(), ours.device) == (
        torchs.shape,
        torchs.stride(),
        torchs.device,
    )
