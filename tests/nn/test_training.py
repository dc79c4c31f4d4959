"""Training on images of handwritten digits goes as PyTorch's does, in little device memory."""

from __future__ import annotations

import numpy as np
import pytest
from nn.training import BATCH, losses, losses_of_torch, net, net_of_torch
from python.support import SMALL

import oocdnn


@pytest.fixture(scope="module")
def digits():
    datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed")
    found = datasets.load_digits()
    images = (found.images[:, None] / 16).astype(np.float32)
    return images, found.target.astype(np.int64)


def test_losses_are_pytorchs(ctx, torch, digits):
    """Within 1e-4 over five epochs, with a budget below the tensors of one layer."""
    chain = net()
    values = [parameter.data.copy() for parameter in chain.parameters()]
    wanted = losses_of_torch(torch, net_of_torch(torch, values), *digits)
    peaks = []
    run = ctx.run
    ctx.run = lambda *call: (run(*call), peaks.append(ctx.stats.peak_device_bytes))[0]
    found = losses(chain, *digits)
    del ctx.run
    assert ctx.stats.budget_bytes < 4 * BATCH * 16 * 8 * 8
    assert 0 < max(peaks) <= ctx.stats.budget_bytes
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    steps = len(wanted) // 5
    assert np.mean(found[-steps:]) < 0.1 * np.mean(found[:steps])
    right = chain.eval()(digits[0]).argmax(axis=1) == digits[1]
    assert right.mean() > 0.97


def test_a_budget_changes_nothing_but_the_tiles(digits):
    """With engines whose bits do not depend on it."""
    images, classes = (array[: 2 * BATCH] for array in digits)
    found = []
    for budget in (SMALL, "64MiB"):
        with oocdnn.Context("cpu", budget, reproducible=True):
            found.append(losses(net(), images, classes))
    assert found[0] == found[1]
