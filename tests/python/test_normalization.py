"""Prologues and sums as a user meets them: statistics, errors, arrays of all types and places; and
convolutions of what is upsampled."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from python.support import SMALL, assert_close, assert_equal, channels_last, integers

import oocdnn


def sums_of(y: np.ndarray) -> oocdnn.Sums:
    """As a call gives them that writes y: a filter of one tap passes it on."""
    channels = y.shape[1]
    w = np.eye(channels, dtype=y.dtype).reshape(channels, channels, *[1] * (y.ndim - 2))
    sums = oocdnn.Sums()
    with oocdnn.Context("cpu", SMALL):
        getattr(oocdnn, f"conv{y.ndim - 2}d")(y, w, sums=sums)
    return sums


def applied(prologue: oocdnn.Prologue, y: np.ndarray) -> np.ndarray:
    """What the next convolution reads."""
    channels = y.shape[1]
    w = np.eye(channels, dtype=y.dtype).reshape(channels, channels, *[1] * (y.ndim - 2))
    with oocdnn.Context("cpu", SMALL):
        return getattr(oocdnn, f"conv{y.ndim - 2}d")(y, w, prologue=prologue)


def test_sums_are_of_samples_and_channels():
    y = integers((3, 5, 7, 9))
    sums = sums_of(y)
    wide = y.astype(np.float64)
    np.testing.assert_array_equal(sums.table[..., 0], wide.sum((2, 3)))
    np.testing.assert_array_equal(sums.table[..., 1], (wide**2).sum((2, 3)))
    assert sums.count == 63
    assert sums.table.dtype == np.float64


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_norm(groups):
    rng = np.random.default_rng(1)
    y = rng.standard_normal((2, 6, 5, 9, 4), np.float32) * 3 + 7
    weight, bias = rng.standard_normal((2, 6), np.float32)
    each = y.astype(np.float64).reshape(2, groups, -1)
    normed = (each - each.mean(2, keepdims=True)) / np.sqrt(each.var(2, keepdims=True) + 1e-5)
    wanted = normed.reshape(y.shape) * weight[:, None, None, None] + bias[:, None, None, None]
    prologue = oocdnn.group_norm(sums_of(y), groups, weight, bias, "relu")
    assert_close(applied(prologue, y), np.maximum(wanted, 0))


def two_passes(y: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The mean and the variance over the axes, in long double."""
    wide = y.astype(np.longdouble)
    mean = wide.mean(axes, keepdims=True)
    return mean, ((wide - mean) ** 2).mean(axes, keepdims=True)


def group_normed(y: np.ndarray, groups: int) -> np.ndarray:
    each = y.reshape(y.shape[0], groups, -1)
    mean, variance = two_passes(each, (2,))
    return ((each - mean) / np.sqrt(variance + 1e-5)).reshape(y.shape)


@pytest.mark.parametrize(
    ("offset", "dtype", "tolerance"),
    [
        (1e8, np.float64, 2e-7), (-1e8, np.float64, 2e-7), (1e6, np.float64, 2e-9),
        (0, np.float64, 1e-14), (1e4, np.float32, 5e-3), (1e3, np.float32, 5e-4),
    ],
)  # fmt: skip
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_group_norm_far_from_zero(offset, dtype, tolerance, groups):
    """The remaining error is the rounding of x * scale, as in PyTorch."""
    y = (np.random.default_rng(3).standard_normal((2, 4, 37, 43)) + offset).astype(dtype)
    prologue = oocdnn.group_norm(sums_of(y), groups, dtype=np.dtype(dtype).name)
    np.testing.assert_allclose(applied(prologue, y), group_normed(y, groups), 0, tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [1e4, 0.1, -1e4 / 3, 3e-30])
def test_equal_elements_have_no_variance(value, dtype):
    """Normalised, every element is exactly 0."""
    y = np.full((3, 4, 19, 23), value, dtype)
    sums = sums_of(y)
    mean, variance = oocdnn.batch_statistics(sums)
    np.testing.assert_array_equal(mean, y[0, :, 0, 0])
    np.testing.assert_array_equal(variance, 0.0)
    for prologue in (
        oocdnn.group_norm(sums, 2, dtype=np.dtype(dtype).name),
        oocdnn.instance_norm(sums, dtype=np.dtype(dtype).name),
        oocdnn.batch_norm(mean, variance, samples=3, dtype=np.dtype(dtype).name),
    ):
        np.testing.assert_array_equal(applied(prologue, y), 0.0)


@settings(max_examples=60, deadline=None)
@given(
    offset=st.sampled_from([0.0, 1.0, -3e3, 1e6, 1e8, -1e12]),
    scale=st.sampled_from([0.0, 1e-3, 1.0, 1e3]),
    outlier=st.sampled_from([None, 0.0, 1e9]),
    dtype=st.sampled_from([np.float32, np.float64]),
    extent=st.tuples(st.integers(1, 2), st.integers(1, 20), st.integers(1, 40)),
    budget=st.sampled_from(["12KiB", "64KiB", "16MiB"]),
    last=st.booleans(),
    seed=st.integers(0, 99),
)
def test_variances_are_those_of_two_passes(
    offset, scale, outlier, dtype, extent, budget, last, seed
):
    """For any tiling, never negative; per sample and channel, and per channel."""
    rng = np.random.default_rng(seed)
    shape = (extent[0], 3, *extent[1:])
    y = (rng.standard_normal(shape) * scale + offset).astype(dtype)
    if outlier is not None:
        y[tuple(rng.integers(0, shape) * rng.integers(0, 2))] = outlier
    y = channels_last(y) if last else y
    sums, w = oocdnn.Sums(), np.eye(3, dtype=dtype).reshape(3, 3, 1, 1)
    with oocdnn.Context("cpu", budget, wrap="check") as ctx:
        ctx.conv2d(y, w, sums=sums)
        assert ctx.check_reports() == []
    room = np.finfo(np.float64).eps * (abs(offset) + 4 * scale + (outlier or 0)) * 8
    for axes, (mean, variance) in (
        ((2, 3), (sums.entries[..., 3], sums.entries[..., 4] / sums.count)),
        ((0, 2, 3), oocdnn.batch_statistics(sums)),
    ):
        true_mean, true_variance = (np.squeeze(value, axes) for value in two_passes(y, axes))
        assert (variance >= 0).all()
        np.testing.assert_allclose(mean.astype(np.longdouble), true_mean, 1e-14, room)
        np.testing.assert_allclose(variance, true_variance, 1e-10, room * (scale + room))


def test_pairs_alone_are_still_given(monkeypatch):
    """C callers may pass a table of the first two numbers."""
    monkeypatch.setattr(oocdnn._calls.operation, "SUM_NUMBERS", 2)
    for shape in ((2, 3, 9, 11), (1, 1, 9, 11)):
        y = integers(shape)
        sums = sums_of(y)
        assert sums.entries.shape == (*shape[:2], 2)
        np.testing.assert_array_equal(sums.table[..., 0], y.sum((2, 3)))
        np.testing.assert_array_equal(sums.table[..., 1], (y * y).sum((2, 3)))
    monkeypatch.setattr(oocdnn._calls.operation, "SUM_NUMBERS", 3)
    with pytest.raises(oocdnn.InvalidProblem, match="2 x 3 x 5, samples and channels; or x 2"):
        sums_of(integers((2, 3, 9, 11)))


def test_instance_norm_is_group_norm_of_single_channels():
    sums = sums_of(integers((2, 4, 6, 6)))
    one, other = oocdnn.instance_norm(sums, eps=0.5), oocdnn.group_norm(sums, 4, eps=0.5)
    np.testing.assert_array_equal(one.table, other.table)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_batch_norm_by_running_statistics(dtype):
    y = integers((3, 4, 6, 5), dtype=dtype)
    mean, variance = np.array([1, -2, 0, 3.0]), np.array([3, 0, 8, 15.0])
    prologue = oocdnn.batch_norm(mean, variance, samples=3, eps=1.0, dtype=dtype)
    scale = np.array([0.5, 1, 1 / 3, 0.25])[:, None, None]
    assert_close(applied(prologue, y), (y - mean[:, None, None]) * scale)


def test_batch_statistics():
    y = integers((3, 4, 6, 5))
    mean, variance = oocdnn.batch_statistics(sums_of(y))
    assert_close(mean, y.mean((0, 2, 3)))
    assert_close(variance, y.astype(np.float64).var((0, 2, 3)))


def test_the_variance_of_equal_elements_is_not_negative():
    y = np.full((1, 2, 8, 8), 0.1, np.float32)
    table = oocdnn.group_norm(sums_of(y), 2, eps=1e-12).table
    assert np.isfinite(table).all()


def test_concatenated_channels_are_slices_of_one_array():
    x, y = integers((2, 3, 8, 8), 1), integers((2, 5, 8, 8), 2)
    both = np.empty((2, 8, 8, 8), np.float32)
    first, second = oocdnn.Sums(), oocdnn.Sums()
    v, w = integers((4, 3, 3, 3), 3), integers((4, 5, 3, 3), 4)
    with oocdnn.Context("cpu", SMALL):
        oocdnn.conv2d(x, v, padding=1, out=both[:, :4], sums=first)
        oocdnn.conv2d(y, w, padding=1, out=both[:, 4:], sums=second)
        prologue = oocdnn.concatenate(
            [
                oocdnn.group_norm(first, 2, activation="relu"),
                oocdnn.group_norm(second, 1, activation="relu"),
            ]
        )
        got = oocdnn.conv2d(both, integers((2, 8, 3, 3), 5), padding=1, prologue=prologue)
    np.testing.assert_array_equal(both[:, :4], oracle.forward(x, v, padding=1))
    table = prologue.table[:, :, :, None, None]
    normed = np.maximum(both * table[:, :, 0] + table[:, :, 1], 0)
    assert_close(got, oracle.forward(normed, integers((2, 8, 3, 3), 5), padding=1), 1e-4)


def test_torch_tensors_are_normalised():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torch.manual_seed(0)
    x, v, w = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.randn(2, 4, 3, 3)
    norm = torch.nn.GroupNorm(2, 4)
    sums = oocdnn.Sums()
    with oocdnn.Context("cpu", SMALL):
        y = oocdnn.conv2d(x, v, sums=sums)
        prologue = oocdnn.group_norm(sums, 2, norm.weight, norm.bias, "relu")
        z = oocdnn.conv2d(y, w, prologue=prologue)
    assert isinstance(sums.table, torch.Tensor)
    with torch.no_grad():
        wanted = torch.conv2d(torch.relu(norm(torch.conv2d(x, v))), w)
    assert_close(z, wanted.numpy(), 1e-4)


def test_prologues_that_differ_are_not_joined():
    sums = sums_of(integers((1, 2, 4, 4)))
    relu, none = oocdnn.group_norm(sums, 1, activation="relu"), oocdnn.group_norm(sums, 1)
    with pytest.raises(oocdnn.InvalidProblem, match="different activations"):
        oocdnn.concatenate([relu, none])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_sums_are_of_rounded_elements(dtype):
    x = np.full((1, 1, 40), 2049.0 / 16, np.float32).astype(dtype)
    w = np.full((1, 1, 1), 16.125, np.float32).astype(dtype)
    sums = oocdnn.Sums()
    with oocdnn.Context("cpu", SMALL):
        y = oocdnn.conv1d(x, w, sums=sums)
    assert sums.table[0, 0, 0] == y.astype(np.float64).sum()


@pytest.mark.parametrize("arrange", [lambda a: a, channels_last], ids=["first", "last"])
def test_a_pool_behind_a_prologue(arrange):
    x, w = arrange(integers((2, 8, 12, 12))), integers((8, 8, 3, 3), 1)
    table = np.stack([integers((2, 8), 2), integers((2, 8), 3)], 2)
    with oocdnn.Context("cpu", SMALL):
        z = oocdnn.conv_bias_act_pool(
            x, w, padding=1, pool=2, prologue=oocdnn.Prologue(table, "relu")
        )
    pairs = table[:, :, :, None, None]
    y = oracle.forward(np.maximum(x * pairs[:, :, 0] + pairs[:, :, 1], 0), w, padding=1)
    assert_equal(z, y.reshape(2, 8, 6, 2, 6, 2).max((3, 5)))


def test_files_and_memory_are_read_and_written_alike(tmp_path):
    x, w = integers((1, 4, 16, 16, 16)), integers((4, 4, 3, 3, 3), 1)
    table = np.stack([integers((1, 4), 2), integers((1, 4), 3)], 2)
    file = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, x.shape)
    file[...] = x
    out = np.lib.format.open_memmap(tmp_path / "y.npy", "w+", np.float32, x.shape)
    in_memory, in_file = oocdnn.Sums(), oocdnn.Sums()
    with oocdnn.Context("cpu", "64KiB"):
        prologue = oocdnn.Prologue(table, "relu")
        y = oocdnn.conv3d(x, w, padding=1, prologue=prologue, sums=in_memory)
        oocdnn.conv3d(file, w, padding=1, prologue=prologue, sums=in_file, out=out)
    np.testing.assert_array_equal(out, y)
    np.testing.assert_array_equal(in_file.table, in_memory.table)


def test_the_callers_arrays_are_left_alone():
    """Where a tile could be the caller's own memory, a prologue has one of its own."""
    x, w = integers((2, 4, 6, 6)), integers((4, 4, 3, 3), 1)
    before = x.copy()
    oocdnn.conv2d(x, w, prologue=oocdnn.Prologue(None, "relu"))
    np.testing.assert_array_equal(x, before)


def test_an_empty_batch_has_no_sums():
    sums = oocdnn.Sums()
    y = oocdnn.conv2d(np.empty((0, 2, 5, 5), np.float32), integers((3, 2, 3, 3)), sums=sums)
    assert y.shape == (0, 3, 3, 3)
    assert sums.table.shape == (0, 3, 2)


X, W = integers((2, 3, 5, 5)), integers((4, 3, 3, 3))
TABLE = np.ones((2, 3, 2), np.float32)
TURNED = np.ones((2, 2, 3), np.float32).swapaxes(1, 2)


@pytest.mark.parametrize(
    ("keywords", "error", "says"),
    [
        ({"prologue": TABLE}, oocdnn.InvalidProblem, "pass a Prologue"),
        ({"prologue": oocdnn.Prologue(TABLE[:1])}, oocdnn.InvalidProblem, "samples and channels"),
        ({"prologue": oocdnn.Prologue(TABLE.astype(np.float64))}, oocdnn.InvalidDtype, "float32"),
        ({"prologue": oocdnn.Prologue(None, "gelu")}, oocdnn.InvalidProblem, "gelu"),
        (
            {"prologue": oocdnn.Prologue(np.ones((2, 2, 3), np.float32).swapaxes(1, 2))},
            oocdnn.InvalidProblem,
            "dense",
        ),
        ({"sums": TABLE}, oocdnn.InvalidProblem, "pass a Sums"),
    ],
)
def test_what_is_wrong_is_said(keywords, error, says):
    with pytest.raises(error, match=says):
        oocdnn.conv2d(X, W, **keywords)


def test_reproducible_contexts_give_no_sums():
    with (
        oocdnn.Context("cpu", reproducible=True) as ctx,
        pytest.raises(oocdnn.Unsupported, match="depend on the tiles"),
    ):
        ctx.conv2d(X, W, sums=oocdnn.Sums())


def test_gradients_behind_a_prologue_are_refused():
    with pytest.raises(oocdnn.Unsupported, match="normalise x beforehand"):
        oocdnn.conv_bias_act_pool(X, W, prologue=oocdnn.Prologue(TABLE), save_for_backward=True)


def test_sums_of_no_call():
    with pytest.raises(oocdnn.InvalidProblem, match="in no call"):
        oocdnn.group_norm(oocdnn.Sums(), 1)


def upsampled(x: np.ndarray, factors) -> np.ndarray:
    for axis, factor in enumerate(factors, 2):
        x = x.repeat(factor, axis)
    return x


@st.composite
def upsampling(draw):
    rank = draw(st.integers(1, 3))
    per_axis = lambda low, high: [draw(st.integers(low, high)) for _ in range(rank)]  # noqa: E731
    groups = draw(st.integers(1, 2))
    return {
        "x": (draw(st.integers(1, 2)), groups * draw(st.integers(1, 3)), *per_axis(3, 6)),
        "k": groups * draw(st.integers(1, 3)),
        "taps": per_axis(1, 4),
        "factor": per_axis(1, 3),
        "dilation": per_axis(1, 2),
        "padding": list(zip(per_axis(0, 4), per_axis(0, 4), strict=True)),
        "groups": groups,
    }


@settings(max_examples=60, deadline=None)
@given(upsampling(), st.booleans(), st.booleans())
def test_upsampling_is_a_transposed_convolution(drawn, flip, normed):
    """Equal to upsampling and then convolving, whatever the factors and the padding."""
    groups, dilation, padding = (drawn[name] for name in ("groups", "dilation", "padding"))
    x = integers(drawn["x"])
    big = upsampled(x, drawn["factor"])
    w = integers((drawn["k"], x.shape[1] // groups, *drawn["taps"]), 1)
    for extent, taps, gap, pads in zip(big.shape[2:], w.shape[2:], dilation, padding, strict=True):
        if extent + sum(pads) < (taps - 1) * gap + 1:
            return
    prologue = oocdnn.Prologue(None, "relu") if normed else None
    sums = oocdnn.Sums()
    y = oocdnn.conv_upsample(
        x, w, factor=drawn["factor"], padding=padding, dilation=dilation, groups=groups,
        mode="convolution" if flip else "cross_correlation", prologue=prologue, sums=sums,
    )  # fmt: skip
    read = np.maximum(big, 0) if normed else big
    wanted = oracle.forward(read, w, padding=padding, dilation=dilation, groups=groups, flip=flip)
    assert_equal(y, wanted)
    np.testing.assert_array_equal(sums.table[..., 0], wanted.reshape(*y.shape[:2], -1).sum(2))


def test_upsampling_moves_each_byte_once():
    """x as it is goes to the device, not what it is upsampled to."""
    x, w = integers((1, 4, 20, 20, 20)), integers((2, 4, 3, 3, 3), 1)
    with oocdnn.Context("cpu", "512KiB") as ctx:
        y = ctx.conv_upsample(x, w, padding=1)
        assert y.shape == (1, 2, 40, 40, 40)
        assert ctx.stats.bytes_h2d < x.nbytes * 1.5
        assert ctx.stats.bytes_d2h == y.nbytes


@pytest.mark.parametrize("groups", [3, 5, 8])
def test_groups_that_do_not_divide_the_channels(groups):
    with pytest.raises(oocdnn.InvalidProblem, match=f"{groups} groups do not divide 4 channels"):
        oocdnn.group_norm(sums_of(integers((2, 4, 5, 5))), groups)


def test_upsampling_errors():
    for factor, says in itertools.product([0], ["factor"]):
        with pytest.raises(oocdnn.InvalidProblem, match=says):
            oocdnn.conv_upsample(X, W, factor=factor)
    with pytest.raises(oocdnn.InvalidProblem, match="groups do not divide"):
        oocdnn.conv_upsample(X, W, groups=3)
    for shape in [(0, *W.shape[1:]), (W.shape[0], 0, *W.shape[2:]), (*W.shape[:-1], 0)]:
        with pytest.raises(oocdnn.InvalidProblem, match=r"w has no elements \(shape"):
            oocdnn.conv_upsample(X, np.ones(shape, X.dtype))
