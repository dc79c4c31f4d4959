"""Prepares a tile, a larger one of its kind, one of another kind and one of volumes, trying
engines out; or a tile of groups with 31 x 31 taps, a larger one of its kind, and a dilated one.

python tests/gpu/trials.py LIBRARY [groups [dilated]]
"""

from __future__ import annotations

import sys

from checks import sized_op
from core import BACKWARD_DATA, FORWARD, Rig

TILES = ((4, 10, 1), (4, 20, 1), (8, 10, 1), (4, 10, 3))  # channels, size, planes


def main() -> None:
    rig = Rig(sys.argv[1], "cuda:0")
    if "groups" in sys.argv[2:]:
        for samples, dilation in (16, 1), (24, 1), (16, 2):
            if dilation > 1 and "dilated" not in sys.argv:
                break
            op = sized_op(BACKWARD_DATA, samples, 2, 2, 86, 31)
            op.g = 64
            for axis in (1, 2):
                op.dilation[axis] = dilation
                op.out[axis] = op.inp[axis] - 30 * dilation
            rig.prepare(op, "cudnn-nchw")
            print(rig.taken)
        return rig.close()
    for channels, size, planes in TILES:
        op = sized_op(FORWARD, 2, channels, 6, size, 3)
        op.inp[0] = op.out[0] = planes
        rig.prepare(op, "cudnn-nchw")
        print(rig.taken)
    return rig.close()


main()
