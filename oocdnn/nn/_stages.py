"""Layers of a chain as passes over what lies between them: a normalisation, an activation and an
upsampling in front of a convolution, whose own sums the next normalisation starts from."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from oocdnn._calls.operation import ActivationSpec
from oocdnn._calls.windows import PerAxis
from oocdnn.errors import Unsupported
from oocdnn.nn._links import joined_to
from oocdnn.nn.activation import Activating
from oocdnn.nn.convolution import Convolving
from oocdnn.nn.layer import Layer
from oocdnn.nn.normalization import Norm
from oocdnn.nn.upsample import Upsample
from oocdnn.normalization import Sums


@dataclass
class Stage:
    """One convolution with what comes before it. `counts`: what follows wants sums of y."""

    convolution: Convolving
    norm: Norm | None = None
    activation: ActivationSpec = None
    factor: PerAxis | None = None
    counts: bool = False

    def run(self, x: Any, sums: Sums | None) -> tuple[Any, Sums | None]:
        """y and its sums; `sums` are those of x, where the stage before counted."""
        prologue = None if self.norm is None else self.norm.prologue(x, sums, self.activation)

        def convolve(counted: Sums | None) -> Any:
            if self.factor is None:
                return self.convolution.convolve(x, prologue, counted)
            return self.convolution.convolve_upsampled(x, self.factor, prologue, counted)

        made = Sums() if self.counts else None
        try:
            return convolve(made), made
        except Unsupported:
            if made is None:
                raise
            return convolve(None), None  # in a reproducible context: by a pass of its own


def stages(layers: Sequence[Layer]) -> Iterable[Stage | list[Layer]]:
    """The layers as stages, and runs of those that are none."""
    parts: list[Stage | list[Layer]] = []
    at = 0
    while at < len(layers):
        stage, taken = (None, 1) if _joins(parts, layers[at]) else _stage_at(layers, at)
        if stage is not None:
            _count_before(parts, stage)
            parts.append(stage)
        elif parts and isinstance(parts[-1], list):
            parts[-1].append(layers[at])
        else:
            parts.append([layers[at]])
        at += taken
    return parts


def _joins(parts: Sequence[Stage | list[Layer]], layer: Layer) -> bool:
    """Whether a normalisation is a part of the convolution before it, see `_links`."""
    if not isinstance(layer, Norm) or not parts or not isinstance(parts[-1], list):
        return False
    link = parts[-1][-1].link() if _may_fuse(layer) else None
    return link is not None and joined_to(link, layer) is not None


def _stage_at(layers: Sequence[Layer], at: int) -> tuple[Stage | None, int]:
    """The stage that begins with a layer, and of how many layers it is; or none."""
    rest = list(itertools.takewhile(_may_fuse, layers[at : at + 4]))
    count = len(rest)
    norm = _taken(rest, Norm)
    activation = None if norm is None else _taken(rest, Activating)
    upsample = _taken(rest, Upsample)
    convolution = _taken(rest, Convolving)
    if convolution is None or (norm is None and upsample is None):
        return None, 1
    if upsample is not None and not convolution.upsamples:
        return None, 1
    spec = None if activation is None else activation.spec()
    factor = None if upsample is None else upsample.factor
    return Stage(convolution, norm, spec, factor), count - len(rest)


def _may_fuse(layer: Layer) -> bool:
    return not layer.training and layer.computes_itself()


def _taken(rest: list[Layer], kind: Any) -> Any:
    """The first of the rest, where it is of that kind, which then is not in it any more."""
    return rest.pop(0) if rest and isinstance(rest[0], kind) else None


def _count_before(parts: list[Stage | list[Layer]], stage: Stage) -> None:
    """Has the convolution before a normalisation by sums count them."""
    if stage.norm is None or not stage.norm.by_sums or not parts:
        return
    before = parts[-1]
    if isinstance(before, Stage):
        before.counts = True
    elif isinstance(before[-1], Convolving) and _may_fuse(before[-1]):
        parts[-1:] = [before[:-1], Stage(before[-1], counts=True)]
