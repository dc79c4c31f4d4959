"""Layers that train as chains of convolutions: of what is between the links of a section nothing is
kept, because its gradients are computed depth first from its x."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from oocdnn.chain import Link, conv_chain
from oocdnn.chain_gradients import ChainGradients, conv_chain_backward
from oocdnn.errors import OutOfMemory, Unsupported
from oocdnn.fused import Saved
from oocdnn.nn import _fused_backward
from oocdnn.nn._links import followed_by
from oocdnn.nn.convolution import link_of
from oocdnn.nn.layer import Layer
from oocdnn.nn.parameter import Parameter


class Trained(NamedTuple):
    """A link, where its gradients go, and which layers it is: [begin, end)."""

    link: Link
    weight: Parameter
    bias: Parameter | None
    begin: int
    end: int


class Run(NamedTuple):
    """Layers [begin, end): links that follow each other, or layers that are none."""

    begin: int
    end: int
    links: list[Trained]


def runs_of(layers: Sequence[Layer]) -> list[Run]:
    """All layers, convolutions with the activations and pools behind each of them as links."""
    runs: list[Run] = []
    for i, layer in enumerate(layers):
        before = runs[-1] if runs else Run(i, i, [])
        trained = _trained(layer, i)
        joined = _joined(before.links[-1], layer, i) if before.links else None
        if joined is not None:
            before.links[-1] = joined
        elif trained is not None and before.links:
            before.links.append(trained)
        elif trained is not None or before.links or not runs:
            runs.append(Run(i, i, [] if trained is None else [trained]))
        runs[-1] = runs[-1]._replace(end=i + 1)
    return runs


def _trained(layer: Layer, number: int) -> Trained | None:
    own = layer.trained() if layer.training and layer.computes_itself() else None
    if own is None:
        return None
    link = link_of(own.weight, own.bias, own.moves, **own.after)
    return Trained(link, own.weight, own.bias, number, number + 1)


def _joined(trained: Trained, layer: Layer, number: int) -> Trained | None:
    """With what the layer makes of its result; None where that is no part of a link."""
    if not layer.training or not layer.computes_itself():
        return None
    link = followed_by(trained.link, layer)
    return None if link is None else trained._replace(link=link, end=number + 1)


class Section:
    """Links of one forward pass, of which x is kept, and where it `saves` what the last one does;
    the rest is computed again.

    refused: whether the core had the gradients computed link by link.
    """

    def __init__(self, links: Sequence[Trained], saves: bool) -> None:
        self._trained, self._saves = links, saves
        self.begin, self.end = links[0].begin, links[-1].end
        self.refused = False
        self._x: Any = None
        self._saved: Saved | None = None

    @property
    def _links(self) -> list[Link]:
        return [one.link for one in self._trained]

    def forward(self, x: Any) -> Any:
        self._x = x
        done = conv_chain(x, self._links, save_for_backward=self._saves)
        z, self._saved = done if self._saves else (done, None)
        return z

    def backward(self, dz: Any, needs_dx: bool) -> Any:
        """dx, or None where it is not needed."""
        if self._saved is not None and len(self._trained) == 1:
            (one,) = self._trained
            by = _fused_backward.Filter(one.weight, one.bias)
            return _fused_backward.backward(dz, self._x, self._saved, by, needs_dx)
        made = self._depth_first(dz, needs_dx)
        if made is not None:
            return made.dx
        self.refused = True
        return self._link_by_link(dz, needs_dx)

    def _depth_first(self, dz: Any, needs_dx: bool) -> ChainGradients | None:
        """None where the core refuses, or a sum of 16 bits would be rounded twice."""
        if any(again and one.data.dtype.itemsize == 2 for one, again in self._parameters()):
            return None
        needs: list[Any] = ["dx", "dw", "db"] if needs_dx else ["dw", "db"]
        saved = [*(None for _ in self._trained[1:]), self._saved]
        try:
            made = conv_chain_backward(dz, self._x, self._links, needs=needs, saved=saved)
        except (Unsupported, OutOfMemory):
            return None
        self._add(made)
        return made

    def _link_by_link(self, dz: Any, needs_dx: bool) -> Any:
        sections, x = [Section([one], True) for one in self._trained], self._x
        for one in sections:
            x = one.forward(x)
        for one in reversed(sections):
            dz = one.backward(dz, needs_dx or one is not sections[0])
        return dz

    def _parameters(self) -> Iterator[tuple[Parameter, bool]]:
        """Each with whether there is a gradient already that its own is added to."""
        before = set()
        for one in self._trained:
            for parameter in (one.weight, one.bias):
                if parameter is not None:
                    yield parameter, parameter in before or parameter.grad is not None
                    before.add(parameter)

    def _add(self, made: ChainGradients) -> None:
        gradients = [own for pair in zip(made.dw, made.db, strict=True) for own in pair]
        there = (gradient for gradient in gradients if gradient is not None)
        sums: dict[Parameter, Any] = {}
        with ExitStack() as stack:
            for (parameter, again), gradient in zip(list(self._parameters()), there, strict=True):
                if parameter not in sums:
                    sums[parameter], _ = stack.enter_context(parameter.summing())
                if again:
                    sums[parameter] += gradient
                else:
                    sums[parameter][...] = gradient
