"""Layers one after the other."""

from collections.abc import Iterator, Sequence
from typing import Any

from oocdnn.chain import Link, conv_chain
from oocdnn.nn._links import links_of
from oocdnn.nn._stages import Stage, stages
from oocdnn.nn.layer import Layer


class Chain(Layer):
    """y of the last layer of ... of the first of x. Parameters are named "0.weight", "0.bias", as
    in PyTorch's Sequential, so that either can load what the other holds."""

    def __init__(self, *layers: Layer) -> None:
        super().__init__()
        for i, layer in enumerate(layers):
            if not isinstance(layer, Layer):
                raise TypeError(f"layer {i} is of type {type(layer).__name__}, which is no Layer")
        self.layers = layers

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)

    def __getitem__(self, index: int) -> Layer:
        return self.layers[index]

    def children(self) -> Iterator[tuple[str, Layer]]:
        return ((str(i), layer) for i, layer in enumerate(self.layers))

    def links(self, first: int) -> list[Link] | None:
        if self.training or not self.computes_itself():
            return None
        links, count = links_of(self.layers, first)
        return links if links and count == len(self.layers) else None

    def forward(self, x: Any) -> Any:
        """Convolutions that follow each other and do not train run depth first, with what is
        between them of batch norms, activations and pools. After `eval` another normalisation, the
        activation behind it and an upsampling are part of the convolution that follows, and the
        statistics of the one before."""
        sums = None
        for part in stages(self.layers):
            x, sums = part.run(x, sums) if isinstance(part, Stage) else (_plain(part, x), None)
        return x

    def backward(self, dy: Any, needs_dx: bool = True) -> Any:
        """Parts of dx that nobody needs are not computed: with `needs_dx=False`, of the layers up
        to the first that has parameters."""
        for i in reversed(range(len(self.layers))):
            dy = self.layers[i].backward(dy, needs_dx or self._learns_before(i))
            if dy is None:
                return None
        return dy

    def _learns_before(self, i: int) -> bool:
        return any(layer.parameters() for layer in self.layers[:i])


def _plain(layers: Sequence[Layer], x: Any) -> Any:
    """Layers that are no stages of a fused pass."""
    while layers:
        links, count = links_of(layers, 0)
        if count < 2:
            x, count = layers[0].forward(x), 1
        else:
            x = conv_chain(x, links)
        layers = layers[count:]
    return x
