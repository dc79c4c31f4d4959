"""Calls of random shape, filled with small integers, and what torch makes of them in float64."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch.nn import functional as F

import oocdnn.torch

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


@dataclass(frozen=True)
class Case:
    """A call of conv1d, ..., conv_transpose3d by its shapes and keywords."""

    rank: int
    transposed: bool
    x: tuple[int, ...]
    w: tuple[int, ...]
    bias: int | None  # its length
    keywords: dict[str, Any]
    dtype: torch.dtype = torch.float32
    channels_last: bool = False
    seed: int = 0

    @property
    def name(self) -> str:
        return f"conv_transpose{self.rank}d" if self.transposed else f"conv{self.rank}d"

    def ours(self, *operands: torch.Tensor | None) -> torch.Tensor:
        return getattr(oocdnn.torch, self.name)(*operands, **self.keywords)

    def torchs(self, *operands: torch.Tensor | None) -> torch.Tensor:
        return getattr(F, self.name)(*operands, **self.keywords)

    def operands(self) -> list[torch.Tensor | None]:
        """x, w and b, which want gradients."""
        shapes = (self.x, self.w, None if self.bias is None else (self.bias,))
        return [
            None if s is None else self.filled(s, i).requires_grad_() for i, s in enumerate(shapes)
        ]

    def filled(self, shape: tuple[int, ...], salt: int) -> torch.Tensor:
        """Integers from -3 to 3 in the case's type and memory order."""
        generator = torch.Generator().manual_seed(self.seed * 8 + salt)
        values = torch.randint(-3, 4, shape, generator=generator).to(self.dtype)
        last = self.channels_last and len(shape) - 2 in _LAST
        return values.to(memory_format=_LAST[len(shape) - 2]) if last else values

    def as_float64(self) -> Case:
        return replace(self, dtype=torch.float64, channels_last=False)


@st.composite
def cases(draw, dtypes=DTYPES, largest=9) -> Case:
    """Small calls of every kind."""
    rank = draw(st.integers(1, 3))

    def axes(least, most):
        return tuple(draw(st.integers(least, most)) for _ in range(rank))

    transposed = draw(st.booleans())
    taps, stride, dilation, padding = axes(1, 3), axes(1, 3), axes(1, 2), axes(0, 2)
    same = not transposed and draw(st.integers(0, 4)) == 0
    stride = (1,) * rank if same else stride
    reach = [(t - 1) * d + 1 for t, d in zip(taps, dilation, strict=True)]
    extents = tuple(r + draw(st.integers(0, largest - 1)) for r in reach)
    groups, n = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    c, k = groups * draw(st.integers(1, 3)), groups * draw(st.integers(1, 3))
    keywords: dict[str, Any] = {"stride": stride, "dilation": dilation, "groups": groups}
    keywords["padding"] = "same" if same else padding
    if transposed:
        keywords["output_padding"] = tuple(draw(st.integers(0, s - 1)) for s in stride)
        extents = tuple(e + 4 for e in extents)  # more than the padding takes away
    return Case(
        rank,
        transposed,
        (n, c, *extents),
        (c, k // groups, *taps) if transposed else (k, c // groups, *taps),
        draw(st.sampled_from([None, k])),
        keywords,
        draw(st.sampled_from(dtypes)),
        draw(st.booleans()),
        draw(st.integers(0, 99)),
    )
