"""A convolution of an unmodified JAX: see dropin_programs.py."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np
from dropin_scene import check, figure, main, taken_so_far


def layer(_: bool) -> None:
    """Small integers, whose sums are exact; compared with the same sums in NumPy. In full precision
    the engines that are fast need much workspace."""
    random = np.random.default_rng(0)
    x = random.integers(-2, 3, (64, 64, 224, 224)).astype(np.float32)
    w = random.integers(-1, 2, (64, 64, 3, 3)).astype(np.float32)
    there = jnp.asarray(x), jnp.asarray(w)
    full = jax.lax.Precision.HIGHEST
    convolve = jax.jit(
        lambda a, b: jax.lax.conv_general_dilated(a, b, (1, 1), "SAME", precision=full)
    )
    y = convolve(*there).block_until_ready()
    before, begin = taken_so_far(), time.perf_counter()
    for _ in range(10):
        y = convolve(*there)
    y.block_until_ready()
    figure("ms", (time.perf_counter() - begin) * 100)
    figure("share-taken", (taken_so_far() - before) / 10)
    result = np.asarray(y)
    wrong = 0
    for _ in range(10_000):
        n, k, p, q = (int(random.integers(e)) for e in result.shape)
        above, left = max(p - 1, 0), max(q - 1, 0)
        window = x[n, :, above : p + 2, left : q + 2]
        top, side = above - p + 1, left - q + 1
        taps = w[k, :, top : top + window.shape[1], side : side + window.shape[2]]
        wrong += int(result[n, k, p, q] != (window * taps).sum())
    check(wrong == 0, f"{wrong} of 10000 outputs are wrong")


if __name__ == "__main__":
    main({"layer": layer})
