"""Prepares a tile, a larger one of its kind and one of another kind, trying engines out.

python tests/gpu/trials.py LIBRARY
"""

from __future__ import annotations

import sys

from checks import sized_op
from doors import FORWARD, Rig

KINDS = {"small": (4, 10), "larger": (4, 20), "other": (8, 10)}


def main() -> None:
    rig = Rig(sys.argv[1], "cuda:0")
    for channels, size in KINDS.values():
        rig.prepare(sized_op(FORWARD, 2, channels, 6, size, 3), "cudnn-nchw")
        print(rig.taken)
    rig.close()


main()
