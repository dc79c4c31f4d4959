"""Layers one after the other."""

from collections.abc import Iterator, Sequence
from typing import Any

from oocdnn.chain import Link, conv_chain
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
        links: list[Link] = []
        for layer in self.layers:
            mine = layer.links(first + len(links))
            if mine is None:
                return None
            links += mine
        return links or None

    def forward(self, x: Any) -> Any:
        """Convolutions that follow each other and do not train run depth first. After `eval` a
        normalisation, the activation behind it and an upsampling are part of the convolution that
        follows, and the statistics of the one before."""
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
    run: list[Layer] = []
    links: list[Link] = []
    for layer in layers:
        mine = layer.links(len(links))
        if mine is not None:
            run.append(layer)
            links += mine
            continue
        x = layer.forward(_depth_first(run, links, x))
        run, links = [], []
    return _depth_first(run, links, x)


def _depth_first(layers: Sequence[Layer], links: Sequence[Link], x: Any) -> Any:
    """What the layers make of x, which are these links."""
    if len(layers) == 1:
        return layers[0].forward(x)
    return conv_chain(x, links) if layers else x
