"""One convolution on each of two GPUs, the second first, and the engines that computed it.

python tests/gpu/each_gpu.py
"""

import numpy as np

import oocdnn

x, w = np.ones((9, 8, 20, 20), np.float32), np.ones((8, 8, 3, 3), np.float32)
for device in ("cuda:1", "cuda:0"):
    with oocdnn.Context(device, "256KiB", profile="none") as context:
        assert (context.conv2d(x, w) == 72).all()
        print(context.device, context.stats.engine)
