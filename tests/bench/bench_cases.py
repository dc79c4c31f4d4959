"""Small layers for tests of the benchmarks, with the features that the large ones have."""

from oocdnn.bench.layers import Layer, layer

SMALL: tuple[Layer, ...] = (
    layer("plain", (2, 16, 12, 13), 32, 3, padding=1),
    layer("strided", (2, 16, 12, 12), 32, 3, padding=1, stride=2),
    layer("pointwise", (3, 33, 7, 7), 17, 1),
    layer("stem", (2, 3, 20, 20), 16, 7, padding=3, stride=2),
    layer("grouped and dilated", (2, 32, 9, 9), 64, 3, padding=2, dilation=2, groups=4),
    layer("volume", (1, 5, 6, 7, 8), 7, 3, padding=1),
    layer("line", (2, 8, 50), 6, 5, padding=2),
)
