"""What training makes small."""

from types import ModuleType
from typing import Any, Literal

import numpy as np

from oocdnn._calls.call_geometry import need_shape
from oocdnn._shown import shown
from oocdnn.errors import InvalidDtype, InvalidProblem
from oocdnn.nn._modules import module_of, narrow, need_floating, wide


class CrossEntropyLoss:
    """-log softmax(x) of the true class, over samples: PyTorch's.

    x: [N, K, ...], floating-point numbers, one for each of K classes; targets: [N, ...], integers
    from 0 to K - 1, of x's module. reduction: "mean" or "sum" over N and all positions.
    """

    def __init__(self, reduction: Literal["mean", "sum"] = "mean") -> None:
        if not isinstance(reduction, str) or reduction not in ("mean", "sum"):
            raise InvalidProblem(f"reduction is {shown(reduction)}; the values are 'mean', 'sum'")
        self.reduction = reduction
        self._dx: Any = None

    def __call__(self, x: Any, targets: Any) -> Any:
        return self.forward(x, targets)

    def forward(self, x: Any, targets: Any) -> Any:
        """The loss, a number of x's module; 16-bit elements are summed in float32."""
        module = need_floating("x", x)
        _check(module, x, targets)
        values = wide(module.asarray(x))
        shifted = values - values.max(axis=1, keepdims=True)
        powers = module.exp(shifted)
        sums = powers.sum(axis=1, keepdims=True)
        classes = module.arange(x.shape[1]).reshape(-1, *(1,) * (x.ndim - 2))
        true = classes == targets[:, None]
        scale = 1.0 / max(targets.size, 1) if self.reduction == "mean" else 1.0
        self._dx = narrow((powers / sums - true) * values.dtype.type(scale), x)
        logs = module.where(true, module.log(sums) - shifted, values.dtype.type(0))
        return logs.sum() * values.dtype.type(scale)

    def backward(self) -> Any:
        """dx, shaped as x, of the last forward."""
        dx, self._dx = self._dx, None
        if dx is None:
            raise RuntimeError("CrossEntropyLoss.backward needs a forward of its own before it")
        return dx


def _check(module: ModuleType, x: Any, targets: Any) -> None:
    """The targets must be classes of x."""
    if x.ndim < 2 or x.shape[1] < 1:
        raise InvalidProblem(f"x has shape {x.shape}; [N, K, ...] with K classes is expected")
    if module_of("targets", targets) is not module:
        raise InvalidDtype(f"targets are not of the module of x, {module.__name__}; convert them")
    if not np.issubdtype(targets.dtype, np.integer):
        raise InvalidDtype(f"targets are of type {targets.dtype}; they are numbers of classes")
    need_shape("targets", targets.shape, (x.shape[0], *x.shape[2:]), "the samples of x")
    if targets.size and not 0 <= int(targets.min()) <= int(targets.max()) < x.shape[1]:
        raise InvalidProblem(
            f"targets reach from {int(targets.min())} to {int(targets.max())}; with K = "
            f"{x.shape[1]} classes they are from 0 to {x.shape[1] - 1}"
        )
