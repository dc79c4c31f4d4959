"""Layers one after the other."""

from collections.abc import Iterator, Sequence
from typing import Any

from oocdnn.chain import Link, conv_chain
from oocdnn.nn._links import links_of
from oocdnn.nn._stages import Stage, stages
from oocdnn.nn._trained import TrainedChain, trained_of
from oocdnn.nn.layer import Layer


class Chain(Layer):
    """y of the last layer of ... of the first of x. Parameters are named "0.weight", "0.bias", as
    in PyTorch's Sequential, so that either can load what the other holds.

    recompute: whether layers that train, where all of them are convolutions with activations and
        pools behind them, keep nothing but the chain's x, of which backward computes what it needs
        again, depth first. Results are the same. That is a third more arithmetic, and pays where
        copies take longer than it does. A chain that cannot be computed so, because one sample does
        not fit the budget or gradients of 16 bits are summed over several backward passes, goes
        layer by layer from then on.
    """

    def __init__(self, *layers: Layer, recompute: bool = False) -> None:
        super().__init__()
        self.recompute = recompute
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
        self._kept = None
        trained = trained_of(self.layers) if self._recomputes() else None
        if trained:
            chain = TrainedChain(trained, x)
            self._keep(chain, x)
            return chain.forward()
        sums = None
        for part in stages(self.layers):
            x, sums = part.run(x, sums) if isinstance(part, Stage) else (_plain(part, x), None)
        return x

    def backward(self, dy: Any, needs_dx: bool = True) -> Any:
        """Parts of dx that nobody needs are not computed: with `needs_dx=False`, of the layers up
        to the first that has parameters."""
        if self._kept is not None:
            chain, x = self._take()
            made = chain.backward(dy, needs_dx)
            if made is not None:
                return made[0]
            self.recompute = False
            self.forward(x)
        for i in reversed(range(len(self.layers))):
            dy = self.layers[i].backward(dy, needs_dx or self._learns_before(i))
            if dy is None:
                return None
        return dy

    def _recomputes(self) -> bool:
        return self.recompute and self.training and len(self.layers) > 1

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
