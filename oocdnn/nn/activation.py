"""Activations, those of the fused pass, as layers of their own.

Most take their derivative from the result, which the next layer keeps anyway. Elements of 16 bits
are computed in float32 and rounded once.
"""

from abc import abstractmethod
from types import ModuleType
from typing import Any

from oocdnn._arguments import number_of
from oocdnn._calls.operation import ActivationSpec
from oocdnn.errors import InvalidProblem
from oocdnn.nn._modules import narrow, need_floating, need_like, wide
from oocdnn.nn.layer import Layer

__all__ = ["ELU", "ClippedReLU", "Identity", "ReLU", "Sigmoid", "Softplus", "Swish", "Tanh"]


class Activating(Layer):
    """A function of each element. y: shaped as x."""

    @abstractmethod
    def _value(self, module: ModuleType, x: Any) -> Any:
        """y of x."""

    @abstractmethod
    def _gradient(self, module: ModuleType, y: Any, dy: Any) -> Any:
        """dx of dy and the result."""

    @abstractmethod
    def spec(self) -> ActivationSpec:
        """What `oocdnn.functions` call it."""

    def forward(self, x: Any) -> Any:
        module = need_floating("x", x)
        y = narrow(self._value(module, wide(module.asarray(x))), x)
        self._keep(y)
        return y

    def backward(self, dy: Any, needs_dx: bool = True) -> Any:
        (kept,) = self._take()
        module = need_like("dy", dy, kept.shape, "x and the activation")
        if not needs_dx:
            return None
        return narrow(self._gradient(module, wide(kept), wide(dy)), dy)


class Identity(Activating):
    """y = x, the same array."""

    def spec(self) -> ActivationSpec:
        return None

    def forward(self, x: Any) -> Any:
        self._keep(x)
        return x

    def _value(self, module: ModuleType, x: Any) -> Any:
        return x

    def _gradient(self, module: ModuleType, y: Any, dy: Any) -> Any:
        return dy


class ReLU(Activating):
    """y = max(x, 0)."""

    def spec(self) -> ActivationSpec:
        return "relu"

    def _value(self, module: ModuleType, x: Any) -> Any:
        return module.maximum(x, x.dtype.type(0))

    def _gradient(self, module: ModuleType, y: Any, dy: Any) -> Any:
        return module.where(y <= 0, dy.dtype.type(0), dy)


class ClippedReLU(Activating):
    """y = min(max(x, 0), top): PyTorch's Hardtanh(0, top), and ReLU6 where top is 6."""

    def __init__(self, top: float) -> None:
        super().__init__()
        self.top = number_of("top", top)

    def spec(self) -> ActivationSpec:
        return "clipped_relu", self.top

    def _value(self, module: ModuleType, x: Any) -> Any:
        return module.minimum(module.maximum(x, x.dtype.type(0)), x.dtype.type(self.top))

    def _gradient(self, module: ModuleType, y: Any, dy: Any) -> Any:
        return module.where((y <= 0) | (y >= y.dtype.type(self.top)), dy.dtype.type(0), dy)


class ELU(Activating):
    """y = x above 0, else alpha * (exp(x) - 1). alpha is not negative."""

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.alpha = number_of("alpha", alpha)
        if not self.alpha >= 0.0:
            raise InvalidProblem(
                f"alpha is {alpha}; below 0 the result does not tell the derivative, pass 0 or more"
            )

    def spec(self) -> ActivationSpec:
        return "elu", self.alpha

    def _value(self, module: ModuleType, x: Any) -> Any:
        low = module.minimum(x, x.dtype.type(0))
        return module.where(x > 0, x, x.dtype.type(self.alpha) * module.expm1(low))

    def _gradient(self, module: ModuleType, y: Any, dy: Any) -> Any:
        return module.where(y > 0, dy, dy * (y + y.dtype.type(self.alpha)))


class Sigmoid(Activating):
    """y = 1 / (1 + exp(-x))."""

    def spec(self) -> ActivationSpec:
        return "sigmoid"

    def _value(self, module: ModuleType, x: Any) -> Any:
        return logistic(module, x)

    def _gradient(self, module: ModuleType, y: Any, dy: Any) -> Any:
        return dy * (y * (1 - y))


class Tanh(Activating):
    """y = tanh(x)."""

    def spec(self) -> ActivationSpec:
        return "tanh"

    def _value(self, module: ModuleType, x: Any) -> Any:
        return module.tanh(x)

    def _gradient(self, module: ModuleType, y: Any, dy: Any) -> Any:
        return dy * (1 - y * y)


class _OfInput(Activating):
    """Takes its derivative from x, which it keeps."""

    def __init__(self, beta: float = 1.0) -> None:
        super().__init__()
        self.beta = number_of("beta", beta)

    def forward(self, x: Any) -> Any:
        y = super().forward(x)
        self._keep(x)
        return y


class Swish(_OfInput):
    """y = x / (1 + exp(-beta * x)): PyTorch's SiLU where beta is 1. Keeps x."""

    def spec(self) -> ActivationSpec:
        return "swish", self.beta

    def _value(self, module: ModuleType, x: Any) -> Any:
        return x * logistic(module, x.dtype.type(self.beta) * x)

    def _gradient(self, module: ModuleType, x: Any, dy: Any) -> Any:
        """Here what is kept is x."""
        scaled = x.dtype.type(self.beta) * x
        share = logistic(module, scaled)
        return dy * (share + scaled * share * (1 - share))


class Softplus(_OfInput):
    """y = log(1 + exp(beta * x)) / beta. Keeps x."""

    def spec(self) -> ActivationSpec:
        return "softplus", self.beta

    def _value(self, module: ModuleType, x: Any) -> Any:
        beta = x.dtype.type(self.beta)
        return module.logaddexp(beta * x, x.dtype.type(0)) / beta

    def _gradient(self, module: ModuleType, x: Any, dy: Any) -> Any:
        """Here what is kept is x."""
        return dy * logistic(module, x.dtype.type(self.beta) * x)


def logistic(module: ModuleType, x: Any) -> Any:
    """1 / (1 + exp(-x)), without a power that overflows."""
    small = module.exp(-module.abs(x))
    return module.where(x >= 0, 1 / (1 + small), small / (1 + small))
