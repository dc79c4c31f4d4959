"""The baseline: one oneDNN convolution primitive, written as oneDNN's manual asks for.

The primitive chooses the layouts of its operands (`format_tag::any`); where they differ from the
caller's dense arrays, reorders go before and after it. Descriptors, primitives and memory are made
once, in the constructor; a call runs reorders and convolution and nothing else. oneDNN has other
forward kernels for training than for inference, and neither are always the faster ones: `fastest`
tries both. Nothing of this package's own core is used: the C API of libdnnl is called through cffi.
"""

import functools
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import cffi
import numpy as np

from oocdnn.bench.layers import ROLES, Array, Direction, Layer, Operand

PropKind = Literal["training", "inference"]
PROP_KINDS: tuple[PropKind, ...] = ("training", "inference")

# From the headers of oneDNN 3; enumerations are passed as int.
_CDEF = """
typedef struct { int major, minor, patch; const char *hash; unsigned cpu_runtime, gpu_runtime; }
    dnnl_version_t;
typedef struct { int arg; void *memory; } dnnl_exec_arg_t;
const dnnl_version_t *dnnl_version(void);
int dnnl_engine_create(void **engine, int kind, size_t index);
int dnnl_stream_create(void **stream, void *engine, unsigned flags);
int dnnl_stream_wait(void *stream);
int dnnl_memory_desc_create_with_strides(void **desc, int ndims, const int64_t *dims, int type,
    const int64_t *strides);
int dnnl_memory_desc_create_with_tag(void **desc, int ndims, const int64_t *dims, int type,
    int tag);
int dnnl_memory_desc_destroy(void *desc);
size_t dnnl_memory_desc_get_size(const void *desc);
int dnnl_memory_desc_equal(const void *left, const void *right);
int dnnl_memory_create(void **memory, const void *desc, void *engine, void *handle);
int dnnl_memory_set_data_handle(void *memory, void *handle);
int dnnl_memory_destroy(void *memory);
int dnnl_convolution_forward_primitive_desc_create(void **desc, void *engine, int prop_kind,
    int algorithm, const void *src, const void *weights, const void *bias, const void *dst,
    const int64_t *strides, const int64_t *dilates, const int64_t *padding_l,
    const int64_t *padding_r, const void *attr);
int dnnl_convolution_backward_data_primitive_desc_create(void **desc, void *engine, int algorithm,
    const void *diff_src, const void *weights, const void *diff_dst, const int64_t *strides,
    const int64_t *dilates, const int64_t *padding_l, const int64_t *padding_r,
    const void *hint_fwd, const void *attr);
int dnnl_convolution_backward_weights_primitive_desc_create(void **desc, void *engine,
    int algorithm, const void *src, const void *diff_weights, const void *diff_bias,
    const void *diff_dst, const int64_t *strides, const int64_t *dilates,
    const int64_t *padding_l, const int64_t *padding_r, const void *hint_fwd, const void *attr);
int dnnl_reorder_primitive_desc_create(void **desc, const void *src, void *src_engine,
    const void *dst, void *dst_engine, const void *attr);
int dnnl_primitive_desc_query(const void *desc, int what, int index, void *result);
const void *dnnl_primitive_desc_query_md(const void *desc, int what, int index);
int dnnl_primitive_desc_destroy(void *desc);
int dnnl_primitive_create(void **primitive, const void *desc);
int dnnl_primitive_execute(const void *primitive, void *stream, int nargs,
    const dnnl_exec_arg_t *args);
int dnnl_primitive_destroy(void *primitive);
int dnnl_sgemm(char transa, char transb, int64_t m, int64_t n, int64_t k, float alpha,
    const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
"""

_CPU, _IN_ORDER, _F32, _ANY = 1, 1, 3, 1
_DIRECT = 1
_FORWARD: dict[PropKind, int] = {"training": 64, "inference": 96}
_QUERY_IMPLEMENTATION = 8
_FROM, _TO = 1, 17
_TRIALS = 4

# How each direction names its operands: the query of a layout, and the argument of an execution.
_SRC, _DIFF_SRC, _WEIGHTS, _DIFF_WEIGHTS = (129, 1), (130, 129), (131, 33), (132, 161)
_DST, _DIFF_DST = (133, 17), (134, 145)
_NAMES: dict[Direction, dict[Operand, tuple[int, int]]] = {
    "fwd": {"x": _SRC, "w": _WEIGHTS, "y": _DST},
    "bwd_data": {"x": _DIFF_SRC, "w": _WEIGHTS, "y": _DIFF_DST},
    "bwd_filter": {"x": _SRC, "w": _DIFF_WEIGHTS, "y": _DIFF_DST},
}


class OneDnnMissing(RuntimeError):
    """There is no libdnnl.so.3 to compare with."""


class OneDnnError(RuntimeError):
    """A function of oneDNN returned a status other than success."""


@functools.cache
def _ffi() -> Any:
    ffi = cffi.FFI()
    ffi.cdef(_CDEF)
    return ffi


@functools.cache
def _library() -> Any:
    """The libdnnl of the environment, else the system's."""
    beside = Path(sys.prefix, "lib", "libdnnl.so.3")
    name = os.fspath(beside) if beside.exists() else "libdnnl.so.3"
    try:
        return _ffi().dlopen(name)
    except OSError as error:
        raise OneDnnMissing(f"{error}; pip install onednn-cpu-gomp==2023.2.0") from error


def _call(name: str, *arguments: Any) -> None:
    status = getattr(_library(), name)(*arguments)
    if status != 0:
        raise OneDnnError(f"{name} returned status {status}")


def _make(create: str, destroy: str, *arguments: Any) -> Any:
    """The object that `create` makes; it is destroyed with its last reference."""
    handle = _ffi().new("void **")
    _call(create, handle, *arguments)
    return _ffi().gc(handle[0], getattr(_library(), destroy))


def version() -> str:
    """The version of oneDNN, for example 3.2.0."""
    found = _library().dnnl_version()
    return f"{found.major}.{found.minor}.{found.patch}"


def sgemm(a: Array, b: Array, c: Array) -> None:
    """c = a @ b for dense square matrices."""
    size, ffi = len(a), _ffi()
    pointers = [ffi.cast("float *", array.ctypes.data) for array in (a, b, c)]
    left, right, out = pointers
    sizes = (size, size, size)
    _call("dnnl_sgemm", b"N", b"N", *sizes, 1.0, left, size, right, size, 0.0, out, size)


@functools.cache
def _engine() -> Any:
    engine = _ffi().new("void **")
    _call("dnnl_engine_create", engine, _CPU, 0)
    return engine[0]


@functools.cache
def _stream() -> Any:
    stream = _ffi().new("void **")
    _call("dnnl_stream_create", stream, _engine(), _IN_ORDER)
    return stream[0]


def _dims(values: Sequence[int]) -> Any:
    return _ffi().new("int64_t[12]", list(values))


def _dense_strides(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def _onednn_shape(case: Layer, operand: Operand) -> tuple[int, ...]:
    """Filters of grouped convolutions have an axis of their own for the group."""
    shape = case.shape(operand)
    if operand == "w" and case.groups > 1:
        return (case.groups, shape[0] // case.groups, *shape[1:])
    return shape


_MD_DESTROY = "dnnl_memory_desc_destroy"


def _any_layout(shape: Sequence[int]) -> Any:
    create = "dnnl_memory_desc_create_with_tag"
    return _make(create, _MD_DESTROY, len(shape), _dims(shape), _F32, _ANY)


def _dense_layout(shape: Sequence[int]) -> Any:
    create, strides = "dnnl_memory_desc_create_with_strides", _dims(_dense_strides(shape))
    return _make(create, _MD_DESTROY, len(shape), _dims(shape), _F32, strides)


def _memory(layout: Any, handle: Any) -> Any:
    return _make("dnnl_memory_create", "dnnl_memory_destroy", layout, _engine(), handle)


def _describe(case: Layer, direction: Direction, kind: PropKind) -> Any:
    """The descriptor of the convolution, with all layouts left to oneDNN."""
    x, w, y = (_any_layout(_onednn_shape(case, operand)) for operand in ROLES["fwd"])
    null = _ffi().NULL
    steps = (
        _dims(case.stride),
        _dims([gap - 1 for gap in case.dilation]),
        _dims(case.padding),
        _dims(case.padding),
    )
    prefix, destroy = "dnnl_convolution", "dnnl_primitive_desc_destroy"
    create = f"{prefix}_forward_primitive_desc_create"
    layouts: tuple[Any, ...] = (x, w, null, y)
    engine = _engine()
    hint = _make(create, destroy, engine, _FORWARD[kind], _DIRECT, *layouts, *steps, null)
    if direction == "fwd":
        return hint
    if direction == "bwd_data":
        create, layouts = f"{prefix}_backward_data_primitive_desc_create", (x, w, y)
    else:
        create = f"{prefix}_backward_weights_primitive_desc_create"
    return _make(create, destroy, engine, _DIRECT, *layouts, *steps, hint, null)


def _primitive(descriptor: Any) -> Any:
    return _make("dnnl_primitive_create", "dnnl_primitive_destroy", descriptor)


@dataclass(frozen=True)
class _Step:
    """A primitive with the memories that it runs on."""

    primitive: Any
    memories: dict[int, Any]  # by oneDNN's number of the argument

    def bind(self) -> Callable[[], None]:
        arguments = _ffi().new("dnnl_exec_arg_t[]", list(self.memories.items()))
        execute, stream = _library().dnnl_primitive_execute, _stream()

        def run(keep: "_Step" = self) -> None:
            status = execute(keep.primitive, stream, len(arguments), arguments)
            if status != 0:
                raise OneDnnError(f"dnnl_primitive_execute returned status {status}")

        return run


def _reorder(source: Any, source_layout: Any, target: Any, target_layout: Any) -> _Step:
    create, destroy = "dnnl_reorder_primitive_desc_create", "dnnl_primitive_desc_destroy"
    engine, null = _engine(), _ffi().NULL
    arguments = (source_layout, engine, target_layout, engine, null)
    return _Step(_primitive(_make(create, destroy, *arguments)), {_FROM: source, _TO: target})


class OneDnnConvolution:
    """One direction of a layer on dense arrays: `run(first, second, out)`, in the order of ROLES.

    `kind` matters forward only. Raises OneDnnMissing or OneDnnError.
    """

    def __init__(self, case: Layer, direction: Direction, kind: PropKind = "training") -> None:
        self._case, self._operands = case, ROLES[direction]
        descriptor = _describe(case, direction, kind)
        self.implementation = _implementation(descriptor)
        self.reordered: list[Operand] = []  # operands whose layout is not the caller's
        self._users: dict[Operand, Any] = {}
        self._buffers: list[Array] = []
        before: list[_Step] = []
        after: list[_Step] = []
        memories: dict[int, Any] = {}
        for operand in self._operands:
            query, argument = _NAMES[direction][operand]
            layout = _library().dnnl_primitive_desc_query_md(descriptor, query, 0)
            dense = _dense_layout(_onednn_shape(case, operand))
            user = _memory(dense, _ffi().NULL)
            self._users[operand] = user
            if _library().dnnl_memory_desc_equal(layout, dense):
                memories[argument] = user
                continue
            self.reordered.append(operand)
            memories[argument] = inner = self._allocate(layout)
            if operand == self._operands[-1]:
                after.append(_reorder(inner, layout, user, dense))
            else:
                before.append(_reorder(user, dense, inner, layout))
        convolution = _Step(_primitive(descriptor), memories)
        self._steps = [step.bind() for step in (*before, convolution, *after)]

    def _allocate(self, layout: Any) -> Any:
        """Memory for an operand in the primitive's own layout, touched once."""
        size = _layout_bytes(layout)
        buffer = np.zeros(size // 4 + 16, np.float32)
        buffer.fill(0)
        self._buffers.append(buffer)
        skip = -buffer.ctypes.data % 64
        return _memory(layout, _ffi().cast("void *", buffer.ctypes.data + skip))

    def run(self, first: Array, second: Array, out: Array) -> None:
        """Computes `out`; returns when it is complete."""
        for operand, array in zip(self._operands, (first, second, out), strict=True):
            shape = self._case.shape(operand)
            if array.shape != shape or array.dtype != np.float32 or not array.flags.c_contiguous:
                raise ValueError(f"{operand} must be a dense float32 array of shape {shape}")
            pointer = _ffi().cast("void *", array.ctypes.data)
            _call("dnnl_memory_set_data_handle", self._users[operand], pointer)
        for step in self._steps:
            step()
        _call("dnnl_stream_wait", _stream())


def fastest(
    case: Layer, direction: Direction, first: Array, second: Array, out: Array
) -> OneDnnConvolution:
    """The kind of primitive that takes the least processor time on these arrays."""
    if direction != "fwd":
        return OneDnnConvolution(case, direction)
    rivals = [OneDnnConvolution(case, direction, kind) for kind in PROP_KINDS]
    if rivals[0].implementation == rivals[1].implementation:
        return rivals[0]
    least = [math.inf for _ in rivals]
    for _ in range(_TRIALS):
        for number, rival in enumerate(rivals):
            start = time.process_time()
            rival.run(first, second, out)
            least[number] = min(least[number], time.process_time() - start)
    return rivals[least.index(min(least))]


def _layout_bytes(layout: Any) -> int:
    return int(_library().dnnl_memory_desc_get_size(layout))


def _implementation(descriptor: Any) -> str:
    text = _ffi().new("const char **")
    _call("dnnl_primitive_desc_query", descriptor, _QUERY_IMPLEMENTATION, 0, text)
    return bytes(_ffi().string(text[0])).decode()
