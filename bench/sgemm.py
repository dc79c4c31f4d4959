"""The machine's rate of float32 matrix products, for scale."""

from collections.abc import Callable

import numpy as np

from oocdnn.bench import onednn_primitive
from oocdnn.bench.measure import timed

SIZE = 4096


class Sgemm:
    """The machine's rate of float32 matrix products, by NumPy and, where that is wanted, by oneDNN:
    the best of all."""

    def __init__(self, size: int = SIZE, onednn: bool = True) -> None:
        ones = np.ones((size, size), np.float32)
        self._matrices = (ones, ones.copy(), ones.copy())
        self._calls: dict[str, Callable[..., object]] = {"numpy": np.matmul}
        if onednn:
            self._calls["onednn"] = onednn_primitive.sgemm
        self.rates = dict.fromkeys(self._calls, 0.0)  # operations per second

    def measure(self) -> None:
        operations = 2 * len(self._matrices[0]) ** 3
        for name, call in self._calls.items():
            rate = operations / timed(call, *self._matrices).seconds
            self.rates[name] = max(self.rates[name], rate)

    @property
    def best(self) -> float:
        return max(self.rates.values())
