"""Pools as layers of their own. After a convolution `ConvBiasActPool` pools in the same pass."""

from typing import Any, ClassVar

from oocdnn._calls import call_geometry, pooling
from oocdnn._calls.pooling import Pool
from oocdnn._calls.windows import PerAxis
from oocdnn.errors import InvalidProblem
from oocdnn.nn import _windows
from oocdnn.nn._modules import module_of, need_like
from oocdnn.nn.layer import Layer


class Pooling(Layer):
    """Windows over x.

    pool: what they are.
    """

    rank: ClassVar[int]

    def __init__(self, pool: Pool) -> None:
        super().__init__()
        self.pool = pool
        pooling.make(pool, self.rank)  # a wrong one is told of here

    def _pooled(self, x: Any) -> tuple[Any, tuple[int, ...]]:
        """The pool and the shape of y."""
        if x.ndim != self.rank + 2:
            raise InvalidProblem(
                f"x has {x.ndim} axes {x.shape}; {type(self).__name__} takes {self.rank + 2}"
            )
        return call_geometry.pooled(x.shape, self.pool)


class _Maximum(Pooling):
    """The maximum of windows; the arguments are those of `oocdnn.Pool`.

    The first of equals in row-major order is the winner, to which the gradient goes; a NaN wins.
    x: [N, C, [D, [H,]] W]; y: [N, C, ...].
    """

    def __init__(
        self, window: PerAxis, stride: PerAxis | None = None, padding: Any = 0, ceil: bool = False
    ) -> None:
        super().__init__(Pool("max", window, stride, padding, ceil))

    def forward(self, x: Any) -> Any:
        module = module_of("x", x)
        made, shape = self._pooled(x)
        y, winners = _windows.maximum(module, x, made, shape)
        self._keep(winners, x.shape)
        return y

    def backward(self, dy: Any, needs_dx: bool = True) -> Any:
        winners, shape = self._take()
        module = need_like("dy", dy, winners.shape, "x and the pool")
        made, _ = call_geometry.pooled(shape, self.pool)
        return _windows.unpool(module, dy, winners, made, shape) if needs_dx else None


class _Average(Pooling):
    """The average of windows; the arguments are those of `oocdnn.Pool`.

    x: [N, C, [D, [H,]] W]; y: [N, C, ...].
    """

    def __init__(
        self,
        window: PerAxis,
        stride: PerAxis | None = None,
        padding: Any = 0,
        ceil: bool = False,
        count_padding: bool = True,
    ) -> None:
        super().__init__(Pool("avg", window, stride, padding, ceil, count_padding))

    def forward(self, x: Any) -> Any:
        module = module_of("x", x)
        made, shape = self._pooled(x)
        self._keep(x.shape)
        return _windows.average(module, x, made, shape)

    def backward(self, dy: Any, needs_dx: bool = True) -> Any:
        (shape,) = self._take()
        made, pooled = call_geometry.pooled(shape, self.pool)
        module = need_like("dy", dy, pooled, "x and the pool")
        return _windows.spread(module, dy, made, shape) if needs_dx else None


class MaxPool1d(_Maximum):
    __doc__ = _Maximum.__doc__
    rank = 1


class MaxPool2d(_Maximum):
    __doc__ = _Maximum.__doc__
    rank = 2


class MaxPool3d(_Maximum):
    __doc__ = _Maximum.__doc__
    rank = 3


class AvgPool1d(_Average):
    __doc__ = _Average.__doc__
    rank = 1


class AvgPool2d(_Average):
    __doc__ = _Average.__doc__
    rank = 2


class AvgPool3d(_Average):
    __doc__ = _Average.__doc__
    rank = 3
