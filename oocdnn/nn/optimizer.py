"""Steps against gradients."""

from collections.abc import Iterable, Mapping
from typing import Any

from oocdnn._arguments import flag, need_kind, number_of, several
from oocdnn.errors import InvalidProblem
from oocdnn.nn import state
from oocdnn.nn._modules import module_of, moved
from oocdnn.nn.parameter import Parameter

_BUFFER = "momentum_buffer."


class SGD:
    """Stochastic gradient descent by PyTorch's rule, in place, where the parameters lie.

    g = grad + weight_decay * p; v = momentum * v + (1 - dampening) * g, but g at first;
    p = p - lr * v, with nesterov p - lr * (g + momentum * v).

    lr: the step, may be changed between steps. Parameters without a gradient are left as they are.
    Raises InvalidProblem for negative arguments, and nesterov without momentum or with dampening.
    """

    def __init__(
        self,
        parameters: Iterable[Parameter],
        lr: float,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        for name, value in (("lr", lr), ("momentum", momentum), ("weight_decay", weight_decay)):
            if not number_of(name, value) >= 0.0:
                raise InvalidProblem(f"{name} is {value}; it must not be negative")
        number_of("dampening", dampening)
        if flag("nesterov", nesterov) and (momentum == 0.0 or dampening != 0.0):
            raise InvalidProblem(
                f"nesterov needs a momentum and no dampening, which are {momentum} and {dampening}"
            )
        self.parameters = list(several("parameters", parameters, "a list of Parameter"))
        for i, parameter in enumerate(self.parameters):
            need_kind(f"parameters[{i}]", parameter, Parameter, "a Parameter")
        self.lr, self.momentum, self.dampening = lr, momentum, dampening
        self.weight_decay, self.nesterov = weight_decay, nesterov
        self._velocities: dict[int, Any] = {}

    def step(self) -> None:
        """Changes the parameters by their gradients."""
        for i, parameter in enumerate(self.parameters):
            if parameter.grad is not None:
                self._move(i, parameter)

    def zero_grad(self) -> None:
        """Forgets all gradients."""
        for parameter in self.parameters:
            parameter.zero_grad()

    def _move(self, i: int, parameter: Parameter) -> None:
        p, gradient = parameter.data, parameter.grad
        number = p.dtype.type
        if self.weight_decay:
            gradient = gradient + number(self.weight_decay) * p
        if self.momentum:
            velocity = self._velocity(i, p, gradient)
            gradient = gradient + number(self.momentum) * velocity if self.nesterov else velocity
        p -= number(self.lr) * gradient

    def _velocity(self, i: int, p: Any, gradient: Any) -> Any:
        if i not in self._velocities:
            self._velocities[i] = gradient.copy()
            return self._velocities[i]
        velocity = moved(self._velocities[i], module_of("a parameter", p))
        velocity *= p.dtype.type(self.momentum)
        velocity += p.dtype.type(1.0 - self.dampening) * gradient
        self._velocities[i] = velocity
        return velocity

    def state_dict(self) -> dict[str, Any]:
        """The velocities by "momentum_buffer." and the parameter's number; not copies."""
        return {f"{_BUFFER}{i}": velocity for i, velocity in self._velocities.items()}

    def load_state_dict(self, given: Mapping[str, Any]) -> None:
        """Copies velocities, of those parameters that had one. Raises InvalidProblem where they do
        not belong to these parameters, and then changes nothing."""
        names = {f"{_BUFFER}{i}": i for i in range(len(self.parameters))}
        known = given.keys() & names.keys()
        made = {
            name: module_of("a parameter", self.parameters[i].data).zeros_like(
                self.parameters[i].data
            )
            for name, i in names.items()
            if name in known
        }
        state.copy_into(made, given)
        self._velocities = {names[name]: velocity for name, velocity in made.items()}
