"""Prepares a tile, a larger one of its kind, one of another kind and one of volumes, trying
engines out.

python tests/gpu/trials.py LIBRARY
"""

from __future__ import annotations

import sys

from checks import sized_op
from doors import FORWARD, Rig

TILES = ((4, 10, 1), (4, 20, 1), (8, 10, 1), (4, 10, 3))  # channels, size, planes


def main() -> None:
    rig = Rig(sys.argv[1], "cuda:0")
    for channels, size, planes in TILES:
        op = sized_op(FORWARD, 2, channels, 6, size, 3)
        op.inp[0] = op.out[0] = planes
        rig.prepare(op, "cudnn-nchw")
        print(rig.taken)
    rig.close()


main()
