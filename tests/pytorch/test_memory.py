"""Tensors in pinned memory, and a pool whose blocks serve again."""

from __future__ import annotations

import gc

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import oocdnn.torch
from oocdnn.torch import _tensors

pytestmark = pytest.mark.usefixtures("ctx")
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool]
LARGE = 4 << 20  # bytes from which on a pool keeps blocks


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [7, (), (0, 3), (2, 3, 5), torch.Size([4, 1])], ids=str)
def test_empty(size, dtype):
    for make in (oocdnn.torch.empty, oocdnn.torch.host_pool().empty):
        tensor = make(size, dtype)
        assert tensor.dtype == dtype
        assert tensor.shape == torch.empty(size).shape
        assert tensor.is_contiguous()
        assert torch.equal(tensor.fill_(1), torch.ones(size, dtype=dtype))


def test_sizes_are_checked():
    with pytest.raises(oocdnn.InvalidProblem, match="negative"):
        oocdnn.torch.empty((2, -1))
    with pytest.raises(oocdnn.InvalidProblem, match="negative"):
        oocdnn.torch.host_pool(limit=-1)


def test_memory_outlives_who_made_it(ctx):
    with oocdnn.Context(ctx.device, "1MiB"), oocdnn.torch.host_pool() as pool:
        tensors = [oocdnn.torch.empty(LARGE // 4), pool.empty(LARGE // 4)]
        views = [tensor.zero_()[17:] for tensor in tensors]
        del tensors
    gc.collect()
    for view in views:
        view += 1
        assert view.sum().item() == LARGE // 4 - 17


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_blocks_serve_again(dtype):
    with oocdnn.torch.host_pool() as pool:
        length = LARGE // dtype.itemsize
        first = pool.empty(length, dtype).fill_(3)
        second = pool.empty((2, length // 2), dtype)
        places = {first.data_ptr(), second.data_ptr()}
        assert len(places) == 2
        view = first[1:]
        del first, second
        third = pool.empty(length, dtype)
        assert third.data_ptr() in places - {view.data_ptr() - dtype.itemsize}
        assert pool.empty(length, dtype).data_ptr() not in places
        assert view.eq(3).all()


def test_a_pool_has_a_limit():
    with oocdnn.torch.host_pool(limit=2 * LARGE) as pool:
        kept = [pool.empty(LARGE // 4) for _ in range(4)]
        held = {one.data_ptr() for one in kept[:2]}
        del kept
        assert {pool.empty(LARGE // 4).data_ptr()} <= held
        pool.release()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_place_keeps_order_and_values(dtype):
    tensor = torch.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).to(dtype)
    with oocdnn.torch.host_pool() as pool:
        for one in (
            tensor,
            tensor.to(memory_format=torch.channels_last),
            tensor.permute(3, 1, 0, 2),
            tensor[..., ::2],
            tensor[:1].expand(2, 3, 4, 5),
            torch.ones((), dtype=dtype),
            tensor.requires_grad_(),
        ):
            placed = pool.place(one)
            assert torch.equal(placed, one)
            assert not placed.requires_grad
            assert placed.data_ptr() != one.data_ptr()
            if one.numel() == tensor.numel() and 0 not in one.stride():
                assert placed.stride() == one.stride() or not one.is_non_overlapping_and_dense()


def test_placed_tensors_are_operands(ctx):
    x, w = torch.ones(2, 8, 64, 65), torch.ones(8, 8, 3, 3)
    with oocdnn.torch.host_pool() as pool:
        y = oocdnn.torch.conv2d(pool.place(x), pool.place(w), padding=1)
    assert torch.equal(y, torch.nn.functional.conv2d(x, w, padding=1))
    assert np.shares_memory(y.numpy(), y[0].numpy())


@pytest.mark.parametrize("dtype", DTYPES[:4], ids=str)
def test_results_that_leave_their_side_look_the_same(dtype):
    """In the memory for results, which a result of the core's own lies in too."""
    host, shape = torch.device("cpu"), (2, 8, 11, 12)
    rows = torch.ones(2, 4, 9, 10, dtype=dtype)
    columns = rows.to(memory_format=torch.channels_last)
    w = torch.ones(8, 4, 1, 1, dtype=dtype)
    for like in (rows, columns):
        moved = _tensors.empty_result(like, shape, host, keep_order=True)
        own = oocdnn.torch.conv2d(like, w, padding=1)
        assert (moved.shape, moved.dtype) == (own.shape, own.dtype)
        assert moved.stride() == own.stride()
        filters = _tensors.empty_result(like, w.shape, host, keep_order=False)
        assert filters.is_contiguous()
