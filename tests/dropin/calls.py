"""cuDNN's objects for tests: descriptors that are set in one line, and pointers of arrays."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

TYPES = {
    np.dtype(np.float32): "CUDNN_DATA_FLOAT",
    np.dtype(np.float64): "CUDNN_DATA_DOUBLE",
    np.dtype(np.float16): "CUDNN_DATA_HALF",
    np.dtype(ml_dtypes.bfloat16): "CUDNN_DATA_BFLOAT16",
}


@dataclass
class Calls:
    """One test's descriptors, given back at its end."""

    lib: Any
    handle: Any
    _kept: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def create(self, kind: str):
        place = self.lib.ffi.new(f"cudnn{kind}Descriptor_t *")
        self.lib.check(getattr(self.lib, f"cudnnCreate{kind}Descriptor")(place))
        destroy = getattr(self.lib, f"cudnnDestroy{kind}Descriptor")
        self._kept.callback(lambda: self.lib.check(destroy(place[0])))
        return place[0]

    def close(self) -> None:
        self._kept.close()

    def type_of(self, array: np.ndarray) -> int:
        return getattr(self.lib, TYPES[array.dtype])

    def tensor(self, array: np.ndarray):
        """A descriptor of the array as it lies in memory."""
        descriptor = self.create("Tensor")
        strides = [stride // array.itemsize for stride in array.strides]
        self.lib.check(
            self.lib.cudnnSetTensorNdDescriptor(
                descriptor, self.type_of(array), array.ndim, list(array.shape), strides
            )
        )
        return descriptor

    def vector(self, array: np.ndarray, rank: int):
        """A descriptor of one number per channel: 1 C 1 1."""
        return self.tensor(array.reshape(1, -1, *(1,) * (rank - 2)))

    def filter(self, array: np.ndarray):
        """A descriptor of dense weights, channels first or last."""
        descriptor = self.create("Filter")
        layout = "NCHW" if array.flags.c_contiguous else "NHWC"
        self.lib.check(
            self.lib.cudnnSetFilterNdDescriptor(
                descriptor,
                self.type_of(array),
                getattr(self.lib, f"CUDNN_TENSOR_{layout}"),
                array.ndim,
                list(array.shape),
            )
        )
        return descriptor

    def convolution(
        self, rank: int, *, stride=1, padding=0, dilation=1, groups=1, flip=False, dtype=np.float32
    ):
        descriptor = self.create("Convolution")
        pads, strides, dilations = (
            [v] * rank if isinstance(v, int) else list(v) for v in (padding, stride, dilation)
        )
        mode = "CONVOLUTION" if flip else "CROSS_CORRELATION"
        wide = np.dtype(dtype) == np.float64
        self.lib.check(
            self.lib.cudnnSetConvolutionNdDescriptor(
                descriptor, rank, pads, strides, dilations,
                getattr(self.lib, f"CUDNN_{mode}"),
                self.lib.CUDNN_DATA_DOUBLE if wide else self.lib.CUDNN_DATA_FLOAT,
            )
        )  # fmt: skip
        self.lib.check(self.lib.cudnnSetConvolutionGroupCount(descriptor, groups))
        return descriptor

    def activation(self, mode: str, coefficient: float = 0.0, propagate: bool = True):
        descriptor = self.create("Activation")
        nans = "CUDNN_PROPAGATE_NAN" if propagate else "CUDNN_NOT_PROPAGATE_NAN"
        self.lib.check(
            self.lib.cudnnSetActivationDescriptor(
                descriptor,
                getattr(self.lib, f"CUDNN_ACTIVATION_{mode}"),
                getattr(self.lib, nans),
                coefficient,
            )
        )
        return descriptor

    def pooling(self, mode: str, window, padding, stride, propagate: bool = True):
        descriptor = self.create("Pooling")
        nans = "CUDNN_PROPAGATE_NAN" if propagate else "CUDNN_NOT_PROPAGATE_NAN"
        self.lib.check(
            self.lib.cudnnSetPoolingNdDescriptor(
                descriptor,
                getattr(self.lib, f"CUDNN_POOLING_{mode}"),
                getattr(self.lib, nans),
                len(window), list(window), list(padding), list(stride),
            )
        )  # fmt: skip
        return descriptor

    def factor(self, value: float, array: np.ndarray):
        """A scaling factor: a double for double tensors, else a float."""
        kind = "double" if array.dtype == np.float64 else "float"
        return self.lib.ffi.new(f"{kind} *", value)

    def data(self, array: np.ndarray | None):
        if array is None:
            return self.lib.ffi.NULL
        return self.lib.ffi.cast("void *", array.__array_interface__["data"][0])
