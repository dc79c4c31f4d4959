"""A whole U-Net, tile by tile: equal to PyTorch's. The large one goes from files to files, far
beyond the memory that it takes."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from unet import net

import oocdnn

GIB = 1 << 30
# Of the volume, in each direction: 512 is one of 8 GiB, for which 48 GiB of disk must be free.
EXTENT = int(os.environ.get("OOCDNN_UNET_EXTENT", "512"))


def torch_or_skip():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torch.set_num_threads(1)
    return torch


def test_the_whole_net_is_pytorchs():
    torch_or_skip()
    weights = net.random_weights(1, 8)
    x = np.random.default_rng(2).standard_normal((1, 8, 24, 20, 28), np.float32)
    with oocdnn.Context("cpu", "384KiB", threads=1) as ctx:
        tiles = []
        ran = net.run(
            x, weights, lambda name, shape: np.empty(shape, np.float32),
            watch=lambda name: tiles.append(ctx.stats.tiles),
        )  # fmt: skip
    assert min(tiles[:2]) > 1
    np.testing.assert_allclose(ran.out, net.reference(x, weights), rtol=1e-3, atol=1e-4)


def test_a_part_by_the_sums_of_the_whole():
    """What the large net is compared with: right but for the rows that the halo covers."""
    torch_or_skip()
    weights = net.random_weights(3, 4)
    x = np.random.default_rng(4).standard_normal((1, 4, 12, 12, 96), np.float32)
    with oocdnn.Context("cpu", "1MiB", threads=1):
        ran = net.run(x, weights, lambda name, shape: np.empty(shape, np.float32))
    part = net.reference(np.ascontiguousarray(x[..., 8:88]), weights, ran.sums)
    inner = slice(8 + net.HALO, 88 - net.HALO)
    wanted = part[..., net.HALO : -net.HALO]
    np.testing.assert_allclose(ran.out[..., inner], wanted, rtol=1e-3, atol=1e-4)


def anonymous_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the system does not say how much memory is anonymous")


class Peak:
    """The most anonymous memory beyond that at first, looked at ten times a second."""

    def __init__(self) -> None:
        self._first = anonymous_bytes()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.bytes = 0

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.1):
            self.bytes = max(self.bytes, anonymous_bytes() - self._first)


class Files:
    """Memory-mapped arrays in a folder; each goes when it is not needed any more."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        return np.memmap(self.folder / name, np.float32, "w+", shape=shape)

    def drop(self, name: str) -> None:
        (self.folder / name).unlink()


def fill(x: np.ndarray, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for channel in range(x.shape[1]):
        for d in range(0, x.shape[2], 16):
            plane = x[0, channel, d : d + 16]
            plane[...] = rng.random(plane.shape, np.float32) * 2 - 1


def summed(y: np.ndarray) -> np.ndarray:
    """The sums of a file, by NumPy."""
    table = np.zeros((1, y.shape[1], 2))
    for channel in range(y.shape[1]):
        for plane in y[0, channel]:
            wide = plane.astype(np.float64)
            table[0, channel] += wide.sum(), (wide * wide).sum()
    return table


def crops(extent: int) -> list[slice]:
    """Of 16 rows, whose halo is inside of the volume, the first rows at multiples of 4."""
    last = extent - net.HALO - 16
    return [slice(at, at + 16) for at in (net.HALO, (extent // 2) // 4 * 4, last // 4 * 4)]


@pytest.mark.long
@pytest.mark.timeout(0)
def test_a_volume_of_8_gib_in_less_than_1_gib(tmp_path, record_property):
    torch_or_skip()
    need = 6 * 64 * EXTENT**3
    if shutil.disk_usage(tmp_path).free < need:
        pytest.skip(f"{need / GIB:.0f} GiB of disk are needed, below {tmp_path}")
    files, weights = Files(tmp_path), net.random_weights(5, 16)
    x = files.make("x", (1, 16, EXTENT, EXTENT, EXTENT))
    recounted: dict[str, np.ndarray] = {}
    try:
        fill(x, 6)

        def watch(name: str) -> None:
            held = f"{peak.bytes / GIB:.2f} GiB"
            print(f"{name}: {ctx.stats.seconds:.1f} s, {ctx.stats.tiles} tiles, {held}")

        def drop(name: str) -> None:
            if name == "a1":  # the reference has its norms from sums: those of one layer, by NumPy
                shape = (1, 16, EXTENT, EXTENT, EXTENT)
                recounted[name] = summed(np.memmap(tmp_path / name, np.float32, "r", shape=shape))
            files.drop(name)

        with Peak() as peak, oocdnn.Context("cpu", "256MiB") as ctx:
            ran = net.run(x, weights, files.make, drop, watch)
        for at in crops(EXTENT):
            wide = slice(at.start - net.HALO, at.stop + net.HALO)
            part = np.ascontiguousarray(x[:, :, wide, wide, wide])
            inner = (slice(None), slice(None), *[slice(net.HALO, -net.HALO)] * 3)
            wanted = net.reference(part, weights, ran.sums)[inner]
            np.testing.assert_allclose(ran.out[:, :, at, at, at], wanted, rtol=1e-3, atol=1e-3)
        for name, table in recounted.items():
            np.testing.assert_allclose(ran.sums[name].table, table, rtol=1e-6)
        assert peak.bytes < GIB
    finally:
        for path in tmp_path.iterdir():
            path.unlink()
    record_property("anonymous_bytes", peak.bytes)
