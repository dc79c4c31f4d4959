"""Layers as links of a chain: a convolution, and what comes after it in the same pass: a batch norm
by known statistics, an activation, a pool."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from oocdnn.chain import Link
from oocdnn.nn.activation import Activating
from oocdnn.nn.layer import Layer
from oocdnn.nn.normalization import Norm
from oocdnn.nn.pooling import Pooling


def links_of(layers: Sequence[Layer], first: int) -> tuple[list[Link], int]:
    """As many of the layers as are links, of which the first has that number, and how many layers
    these are."""
    links: list[Link] = []
    for count, layer in enumerate(layers):
        mine = layer.links(first + len(links))
        joined = joined_to(links[-1], layer) if links and mine is None else None
        if joined is not None:
            links[-1] = joined
        elif mine is None:
            return links, count
        else:
            links += mine
    return links, len(layers)


def joined_to(link: Link, layer: Layer) -> Link | None:
    """The link with what the layer makes of its result; None where that is no part of a link."""
    if layer.training or not layer.computes_itself():
        return None
    if isinstance(layer, Norm) and link.activation is None and link.pool is None:
        return _normalized(link, layer)
    return followed_by(link, layer)


def followed_by(link: Link, layer: Layer) -> Link | None:
    """The link with the layer's activation or pool; None where it is neither, or has no place."""
    if link.pool is not None:
        return None
    if isinstance(layer, Pooling):
        rank = len(link.w.shape) - 2
        return replace(link, pool=layer.pool) if layer.rank == rank else None
    if isinstance(layer, Activating) and link.activation is None:
        return replace(link, activation=layer.spec())
    return None


def _normalized(link: Link, norm: Norm) -> Link | None:
    """Elements of 16 bits have no room for scale and shift, which are of the same type."""
    known = norm.constants()
    narrow = link.w.dtype.itemsize == 2
    if known is None or narrow or link.residual is not None or link.scale is not None:
        return None
    scale, shift = known
    if scale.shape != link.w.shape[:1]:
        return None
    bias: Any = shift if link.b is None else link.b * scale + shift
    return replace(link, scale=scale.astype(link.w.dtype), b=bias.astype(link.w.dtype))
