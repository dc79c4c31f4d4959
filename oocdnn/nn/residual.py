"""Layers whose input is added to what they make of it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from oocdnn._calls.call_geometry import need_shape
from oocdnn.chain import Link, conv_chain
from oocdnn.nn._modules import module_of, narrow, wide
from oocdnn.nn.activation import Activating, Identity
from oocdnn.nn.chain import Chain
from oocdnn.nn.layer import Layer


class Residual(Chain):
    """y = activation(f(x) + shortcut(x)), where f is the layers one after the other: a block of a
    ResNet.

    f(x) is shaped as shortcut(x). `activation` is a layer such as `ReLU()`, or None; `shortcut` a
    layer, or None for x itself. Parameters of the layers are named as those of `Chain`, and those
    of the shortcut "shortcut.weight". After `eval`, where all layers are links of a chain of
    convolutions and end with neither an activation nor a pool, they run depth first: without a
    shortcut also as a part of a Chain's run, and what they add does not leave the device.
    """

    def __init__(
        self,
        *layers: Layer,
        activation: Activating | None = None,
        shortcut: Layer | None = None,
    ) -> None:
        super().__init__(*layers, recompute=False)  # what is added to it is kept
        self.activation = Identity() if activation is None else activation
        self.shortcut = shortcut
        if not isinstance(self.activation, Activating):
            raise TypeError(
                f"activation is of type {type(self.activation).__name__}; pass a layer such as "
                "ReLU()"
            )

    def children(self) -> Iterator[tuple[str, Layer]]:
        yield from super().children()
        yield "activation", self.activation
        if self.shortcut is not None:
            yield "shortcut", self.shortcut

    def links(self, first: int) -> list[Link] | None:
        if self.shortcut is not None:
            return None
        return self._links(first, first - 1 if first > 0 else "x")

    def _links(self, first: int, added: Any) -> list[Link] | None:
        """With what the last link adds."""
        links = super().links(first) if self.activation.computes_itself() else None
        if not links:
            return None
        last = links[-1]
        if last.residual is not None or last.activation is not None or last.pool is not None:
            return None
        return [*links[:-1], replace(last, residual=added, activation=self.activation.spec())]

    def forward(self, x: Any) -> Any:
        added = x if self.shortcut is None else self.shortcut.forward(x)
        links = self._links(0, "x" if self.shortcut is None else added)
        if links is not None:
            return conv_chain(x, links)
        y = super().forward(x)
        need_shape("what the layers make of x", y.shape, added.shape, "what is added to it")
        self._keep()
        return self.activation.forward(_sum(y, added))

    def backward(self, dy: Any, needs_dx: bool = True) -> Any:
        """dx of dy, over both ways."""
        self._take()
        dsum = self.activation.backward(dy)
        dx = super().backward(dsum, needs_dx)
        added = dsum if self.shortcut is None else self.shortcut.backward(dsum, needs_dx)
        return _sum(dx, added) if needs_dx else None


def _sum(a: Any, b: Any) -> Any:
    """Rounded once."""
    module = module_of("x", a)
    return narrow(wide(a) + wide(module.asarray(b)), a)
