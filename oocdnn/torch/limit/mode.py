"""What a step does with what it saves."""

from __future__ import annotations

import enum


class Mode(enum.Enum):
    """RECORD: everything is swapped and timed. FOLLOW: as planned. SWAP: everything is swapped,
    because the step is not the planned one. KEEP: everything is kept, because the step fits."""

    RECORD = "record"
    FOLLOW = "follow"
    SWAP = "swap"
    KEEP = "keep"
