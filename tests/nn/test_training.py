"""Training on images of handwritten digits goes as PyTorch's does, in little device memory."""

from __future__ import annotations

import numpy as np
import pytest
from nn.training import BATCH, EPOCHS, losses, losses_of_torch, net, net_of_torch
from python.support import SMALL

import oocdnn


@pytest.fixture(scope="module")
def digits():
    datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed")
    found = datasets.load_digits()
    return (found.images[:, None] - 5) / 6, found.target.astype(np.int64)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("dtype", "lr", "tolerance", "falls_to"),
    # Larger steps make float32 chaotic: a rounding that flips one winner of a pool, as sums of
    # other threads may, shows in later steps.
    [(np.float64, 0.05, 1e-9, 0.2), (np.float32, 0.015, 1e-3, 0.95)],
    ids=["float64", "float32"],
)
def test_losses_are_pytorchs(ctx, torch, digits, dtype, lr, tolerance, falls_to):
    """In five epochs and at each step, with a budget below the tensors of one layer."""
    images, classes = digits[0].astype(dtype), digits[1]
    chain = net(dtype)
    values = [parameter.data.copy() for parameter in chain.parameters()]
    wanted = losses_of_torch(torch, net_of_torch(torch, values), images, classes, lr)
    peaks = []
    run = ctx.run
    ctx.run = lambda *call: (run(*call), peaks.append(ctx.stats.peak_device_bytes))[0]
    found = losses(chain, images, classes, lr)
    del ctx.run
    x_and_y = 2 * dtype().itemsize * BATCH * 8 * 8 * 8  # of the second layer
    assert 0 < max(peaks) <= ctx.stats.budget_bytes < x_and_y
    np.testing.assert_allclose(found, wanted, rtol=tolerance)
    means, means_of_torch = (np.reshape(each, (EPOCHS, -1)).mean(1) for each in (found, wanted))
    np.testing.assert_allclose(means, means_of_torch, rtol=1e-4)
    assert means[-1] < falls_to * means[0]


def test_a_budget_changes_nothing_but_the_tiles(digits):
    """With engines whose bits do not depend on it."""
    images, classes = digits[0][:BATCH].astype(np.float32), digits[1][:BATCH]
    found = []
    for budget in (SMALL, "64MiB"):
        with oocdnn.Context("cpu", budget, threads=1, reproducible=True):
            chain = net()
            found.append([*losses(chain, images, classes, 0.05), *chain[0].weight.data.flat])
    assert found[0] == found[1]
