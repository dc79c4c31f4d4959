"""What all layers share: training or not, what forward keeps for backward, parameters by name."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from oocdnn._calls.call_geometry import Moves
from oocdnn.chain import Link
from oocdnn.nn import state
from oocdnn.nn.parameter import Buffer, Parameter

Self = TypeVar("Self", bound="Layer")


class OwnLink(NamedTuple):
    """Of a convolution, and what comes after it in its own pass."""

    weight: Parameter
    bias: Parameter | None
    moves: Moves
    after: Mapping[str, Any]


class Layer(ABC):
    """A function of an array with parameters, and its gradients.

    `forward(x)` gives y. While `training`, it keeps what `backward(dy)` needs, which adds to the
    gradients of the parameters and gives dx. Each backward belongs to the last forward; there is
    one for each. Arrays are NumPy's or CuPy's, and results are of the same module. Errors are those
    of `oocdnn.functions`; RuntimeError where there was no forward.
    """

    def __init__(self) -> None:
        self.training = True
        self._kept: tuple[Any, ...] | None = None

    @abstractmethod
    def forward(self, x: Any) -> Any:
        """y of x."""

    @abstractmethod
    def backward(self, dy: Any, needs_dx: bool = True) -> Any:
        """dx of dy, shaped as x; None where it is not needed, as of a first layer."""

    def link(self) -> Link | None:
        """What the layer is in a chain of convolutions; None where it is none, or is training."""
        return None

    def trained(self) -> "OwnLink | None":
        """The parameters of a layer that is a link while it trains; None where it is none."""
        return None

    def links(self, first: int) -> list[Link] | None:
        """The same of layers that are several, the first of them link number `first`."""
        link = self.link()
        return None if link is None else [link]

    def computes_itself(self) -> bool:
        """Whether forward is that of this package, and not one that somebody put in its place."""
        ours = str(type(self).forward.__module__).startswith(f"{__package__}.")
        return ours and "forward" not in vars(self)

    def __call__(self, x: Any) -> Any:
        return self.forward(x)

    def children(self) -> Iterator[tuple[str, "Layer"]]:
        """The layers within this one, by name."""
        return iter(())

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """The parameters, each with its name: "weight", of layers within this one "0.weight"."""
        for name, value in self._named_state():
            if isinstance(value, Parameter):
                yield name, value

    def _named_state(self) -> Iterator[tuple[str, Parameter | Buffer]]:
        for name, value in vars(self).items():
            if isinstance(value, (Parameter, Buffer)):
                yield name, value
        for name, child in self.children():
            for inner, value in child._named_state():
                yield f"{name}.{inner}", value

    def parameters(self) -> list[Parameter]:
        return [parameter for _, parameter in self.named_parameters()]

    def zero_grad(self) -> None:
        """Forgets all gradients."""
        for parameter in self.parameters():
            parameter.zero_grad()

    def train(self: Self, mode: bool = True) -> Self:
        """Has forward keep what backward needs, or with False no longer."""
        self.training = mode
        self._kept = None
        for _, child in self.children():
            child.train(mode)
        return self

    def eval(self: Self) -> Self:
        """`train(False)`."""
        return self.train(False)

    def to(self: Self, module: ModuleType) -> Self:
        """Moves parameters and statistics to arrays of `module`: numpy, or cupy on its GPU."""
        for _, value in self._named_state():
            value.to(module)
        return self

    def state_dict(self) -> dict[str, Any]:
        """The arrays of parameters and statistics by name, as PyTorch names them; not copies."""
        return {name: value.data for name, value in self._named_state()}

    def load_state_dict(self, given: Mapping[str, Any]) -> None:
        """Copies arrays of the same names and shapes into the parameters, whatever their module
        and type. Raises InvalidProblem where names or shapes differ, and then changes nothing."""
        state.copy_into(self.state_dict(), given)

    def _keep(self, *values: Any) -> None:
        """For the next backward, if there is to be one."""
        self._kept = values if self.training else None

    def _take(self) -> tuple[Any, ...]:
        """What the last forward kept, which is given once."""
        kept, self._kept = self._kept, None
        if kept is None:
            raise RuntimeError(
                f"{type(self).__name__}.backward has nothing to go back to: each backward needs a "
                "forward of its own before it, while training (see train())"
            )
        return kept
