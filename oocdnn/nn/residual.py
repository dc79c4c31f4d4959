"""Layers whose input is added to what they make of it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from oocdnn._geometry import need_shape
from oocdnn.chain import Link, conv_chain
from oocdnn.nn._modules import module_of, narrow, wide
from oocdnn.nn.activation import Activating, Identity
from oocdnn.nn.chain import Chain
from oocdnn.nn.layer import Layer


class Residual(Chain):
    """y = activation(f(x) + x), where f is the layers one after the other: a block of a ResNet.

    f(x) is shaped as x; `activation` is a layer such as `ReLU()`, or None. Parameters are named as
    those of `Chain`. After `eval`, where all layers are convolutions, of which the last has neither
    activation nor pool, the block runs depth first, alone or as a part of a Chain's run: x and what
    lies between do not leave the device.
    """

    def __init__(self, *layers: Layer, activation: Activating | None = None) -> None:
        super().__init__(*layers)
        self.activation = Identity() if activation is None else activation
        if not isinstance(self.activation, Activating):
            kind = type(self.activation).__name__
            raise TypeError(f"activation is of type {kind}; pass a layer such as ReLU()")

    def children(self) -> Iterator[tuple[str, Layer]]:
        yield from super().children()
        yield "activation", self.activation

    def links(self, first: int) -> list[Link] | None:
        if self.training or not self.activation.computes_itself():
            return None
        links = super().links(first)
        if not links or links[-1].residual is not None:
            return None
        if links[-1].activation is not None or links[-1].pool is not None:
            return None
        added: int | str = first - 1 if first > 0 else "x"
        last = replace(links[-1], residual=added, activation=self.activation.spec())
        return [*links[:-1], last]

    def forward(self, x: Any) -> Any:
        links = self.links(0)
        if links is not None:
            return conv_chain(x, links)
        y = super().forward(x)
        need_shape("what the layers make of x", y.shape, x.shape, "x, to which it is added")
        self._keep()
        return self.activation.forward(_sum(y, x))

    def backward(self, dy: Any, needs_dx: bool = True) -> Any:
        """dx of dy. Both ways end in x."""
        self._take()
        dsum = self.activation.backward(dy)
        dx = super().backward(dsum, needs_dx)
        return _sum(dx, dsum) if needs_dx else None


def _sum(a: Any, b: Any) -> Any:
    """Rounded once."""
    module = module_of("x", a)
    return narrow(wide(a) + wide(module.asarray(b)), a)
