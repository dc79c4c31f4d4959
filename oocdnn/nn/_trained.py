"""Layers that train as a chain of convolutions: of what is between them nothing is kept, because
the gradients are computed depth first from the chain's x."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from oocdnn.chain import Link, conv_chain
from oocdnn.chain_gradients import ChainGradients, conv_chain_backward
from oocdnn.errors import OutOfMemory, Unsupported
from oocdnn.nn._links import followed_by
from oocdnn.nn.convolution import link_of
from oocdnn.nn.layer import Layer
from oocdnn.nn.parameter import Parameter


class Trained(NamedTuple):
    """A link, and where its gradients go."""

    link: Link
    weight: Parameter
    bias: Parameter | None


def trained_of(layers: Sequence[Layer]) -> list[Trained] | None:
    """The layers as links; None where not all of them are such, with the activations and pools
    behind each of them."""
    made: list[Trained] = []
    for layer in layers:
        if not layer.training or not layer.computes_itself():
            return None
        own = layer.trained()
        if own is not None:
            made.append(Trained(link_of(own.weight, own.bias, own.moves, **own.after), *own[:2]))
            continue
        joined = followed_by(made[-1].link, layer) if made else None
        if joined is None:
            return None
        made[-1] = made[-1]._replace(link=joined)
    return made


class TrainedChain:
    """The chain of one forward pass."""

    def __init__(self, links: Sequence[Trained], x: Any) -> None:
        self._trained, self._x = links, x

    @property
    def _links(self) -> list[Link]:
        return [one.link for one in self._trained]

    def forward(self) -> Any:
        return conv_chain(self._x, self._links)

    def backward(self, dz: Any, needs_dx: bool) -> tuple[Any] | None:
        """dx, or None within the tuple where it is not needed; None where the core refuses, or
        a sum of 16 bits would be rounded twice."""
        if any(one.grad is not None and one.data.dtype.itemsize == 2 for one in self._parameters()):
            return None
        needs: list[Any] = ["dx", "dw", "db"] if needs_dx else ["dw", "db"]
        try:
            made = conv_chain_backward(dz, self._x, self._links, needs=needs)
        except (Unsupported, OutOfMemory):
            return None
        self._add(made)
        return (made.dx,)

    def _parameters(self) -> Iterator[Parameter]:
        for one in self._trained:
            yield one.weight
            if one.bias is not None:
                yield one.bias

    def _add(self, made: ChainGradients) -> None:
        gradients = [own for pair in zip(made.dw, made.db, strict=True) for own in pair]
        with ExitStack() as stack:
            there = (gradient for gradient in gradients if gradient is not None)
            for parameter, gradient in zip(self._parameters(), there, strict=True):
                out, beta = stack.enter_context(parameter.summing())
                if beta:
                    out += gradient
                else:
                    out[...] = gradient
