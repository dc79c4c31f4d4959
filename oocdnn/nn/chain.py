"""Layers one after the other."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal
from weakref import ref

import numpy as np

from oocdnn._calls.stack import current_context
from oocdnn._shown import shown
from oocdnn.arrays import view
from oocdnn.chain import Link, conv_chain
from oocdnn.errors import InvalidProblem
from oocdnn.nn._links import links_of
from oocdnn.nn._sections import Cut, choose, cuts_by
from oocdnn.nn._stages import Stage, stages
from oocdnn.nn._trained import Run, Section, runs_of
from oocdnn.nn.layer import Layer

Recompute = bool | Literal["auto"] | Sequence[bool]


class Chain(Layer):
    """y of the last layer of ... of the first of x. Parameters are named "0.weight", "0.bias", as
    in PyTorch's Sequential, so that either can load what the other holds.

    recompute: which layers' results are computed again in backward, instead of being kept, while
        they train; of convolutions, with the activations and pools behind each of them. False:
        none. True: all, so that of convolutions that follow each other nothing is kept but the
        first one's x, of which backward computes what it needs, depth first. A sequence with a bool
        for each layer, of which that of the convolution counts: between two that are kept backward
        computes from the one what leads to the other; and of one that is kept the bits that its
        gradients need are too. "auto": as is predicted to take the least time, forward and
        backward, within the context's budget; what lies on a GPU is kept.

    Results are the same. Computing everything again is a third more arithmetic, and pays where
    copies take longer than it does. A chain that cannot be computed so, because one sample does not
    fit the budget or gradients of 16 bits are summed over several backward passes, goes layer by
    layer from then on. Layers of other kinds keep what they need.
    """

    def __init__(self, *layers: Layer, recompute: Recompute = False) -> None:
        super().__init__()
        self.recompute = _checked(recompute, len(layers))
        self._chosen: dict[Any, list[Cut]] = {}  # where the model chooses
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
        if not self._recomputes():
            return _passed(self.layers, x)
        sections: list[Section] = []
        for run in runs_of(self.layers):
            if not run.links:
                x = _passed(self.layers[run.begin : run.end], x)
            for cut in self._cuts(run, x):
                sections.append(Section(run.links[cut.begin : cut.end], cut.saves))
                x = sections[-1].forward(x)
        if sections:
            self._keep(sections)
        return x

    def backward(self, dy: Any, needs_dx: bool = True) -> Any:
        """Parts of dx that nobody needs are not computed: with `needs_dx=False`, of the layers up
        to the first that has parameters."""
        sections: list[Section] = [] if self._kept is None else self._take()[0]
        at = len(self.layers)
        while at > 0 and dy is not None:
            section = sections.pop() if sections and sections[-1].end == at else None
            at = at - 1 if section is None else section.begin
            needed = needs_dx or self._learns_before(at)
            if section is None:
                dy = self.layers[at].backward(dy, needed)
                continue
            dy = section.backward(dy, needed)
            if section.refused:
                self.recompute = False
        return dy

    def _recomputes(self) -> bool:
        return self.recompute is not False and self.training and len(self.layers) > 1

    def _cuts(self, run: Run, x: Any) -> Iterable[Cut]:
        if not run.links:
            return ()
        if self.recompute != "auto":
            again = self.recompute
            every = [again] * len(self.layers) if isinstance(again, bool) else again
            return cuts_by([every[one.begin] for one in run.links])
        like = view("x", x)
        array = like.shape, like.dtype, like.stream is None
        key = ref(current_context()), run.begin, run.end, array
        if key not in self._chosen:
            self._chosen[key] = choose(like, [one.link for one in run.links])
        return self._chosen[key]

    def _learns_before(self, i: int) -> bool:
        return any(layer.parameters() for layer in self.layers[:i])


def _checked(recompute: Any, count: int) -> Recompute:
    if isinstance(recompute, (bool, np.bool_)):
        return bool(recompute)
    if isinstance(recompute, str):
        if recompute == "auto":
            return "auto"
    elif isinstance(recompute, Sequence) and len(recompute) == count:
        return tuple(bool(one) for one in recompute)
    raise InvalidProblem(
        f'recompute is {shown(recompute)}; it takes a bool, "auto", or a bool for each of {count} '
        "layers"
    )


def _passed(layers: Sequence[Layer], x: Any) -> Any:
    sums = None
    for part in stages(layers):
        x, sums = part.run(x, sums) if isinstance(part, Stage) else (_plain(part, x), None)
    return x


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
