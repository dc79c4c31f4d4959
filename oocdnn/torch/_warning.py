"""Warnings that name the line of the program, not one of this package or of PyTorch."""

import sys
import warnings
from types import FrameType

_INNER = ("oocdnn", "torch")


def warn(text: str) -> None:
    """Warns of the innermost line outside of this package and PyTorch; of the caller's where there
    is none, as on autograd's threads."""
    frame: FrameType | None = sys._getframe(1)
    level = 2  # the caller's line
    while frame is not None and _is_inner(frame):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=2 if frame is None else level)


def _is_inner(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).split(".", 1)[0] in _INNER
