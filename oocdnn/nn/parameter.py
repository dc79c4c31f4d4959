"""Arrays that training changes, with the gradients that are summed for them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from oocdnn.nn._modules import module_of, moved


class Buffer:
    """An array of a layer's state that the optimizer does not update."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def to(self, module: ModuleType) -> None:
        """Moves it to an array of `module`, numpy or cupy."""
        self.data = moved(self.data, module)


class Parameter:
    """An array, `data`, and the gradient that backward passes have summed for it.

    `grad` is an array of the same shape, type and module, or None where there is none since
    `zero_grad`. Its memory is used again.
    """

    def __init__(self, data: Any) -> None:
        self.data = data
        self._sum: Any = None
        self._filled = False

    @property
    def grad(self) -> Any:
        return self._sum if self._filled else None

    @grad.setter
    def grad(self, value: Any) -> None:
        self._sum, self._filled = value, value is not None

    def zero_grad(self) -> None:
        self._filled = False

    def to(self, module: ModuleType) -> None:
        """Moves data and gradient to arrays of `module`, numpy or cupy."""
        self.data = moved(self.data, module)
        if self._sum is not None:
            self._sum = moved(self._sum, module)

    def accumulate(
        self, gradient: Callable[..., Any], shape: tuple[int, ...] | None = None
    ) -> None:
        """Adds what `gradient(out=, beta=)` computes, which sees the sum in `shape`."""
        with self.summing(shape) as (out, beta):
            gradient(out=out, beta=beta)

    @contextmanager
    def summing(self, shape: tuple[int, ...] | None = None) -> Iterator[tuple[Any, float]]:
        """For as long as a gradient is added to the sum: that in `shape`, and beta.

        What fails meanwhile leaves no gradient, because it may have written a part.
        """
        if self._sum is None:
            self._sum = module_of("the parameter", self.data).empty_like(self.data, order="C")
        beta, self._filled = float(self._filled), False
        yield self._sum.reshape(shape or self._sum.shape), beta
        self._filled = True
