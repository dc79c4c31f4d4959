"""The names of the axes that a problem is split along, in the core's order."""

from collections.abc import Sequence

_AXES = ("n", "groups", "k", "c", "d", "h", "w")


def by_axis(pieces: Sequence[int]) -> dict[str, int]:
    """The pieces on each axis by its name."""
    return dict(zip(_AXES, pieces, strict=True))
