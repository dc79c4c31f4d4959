"""The native geometry, seen from Python: its structures and the testing library's functions."""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, Structure, byref, c_bool, c_char_p, c_double, c_int, c_int32, c_int64
from enum import IntEnum

import testing_library

Dims = c_int64 * 6
Spatial = c_int64 * 3
AxisArray = c_int64 * 7
Order = c_int32 * 7

OPERANDS = (
    "x", "w", "y", "bias", "scale", "residual", "old", "z", "saved", "input", "dw", "db",
    "prologue", "sums",
)  # fmt: skip
X, W, Y, BIAS, SCALE, RESIDUAL, OLD, Z, SAVED, INPUT, DW, DB, PROLOGUE, SUMS = range(len(OPERANDS))
PerOperand = c_int32 * len(OPERANDS)
AXES = ("N", "G", "K", "C", "D", "H", "W")
TEXT_BYTES = 4096


class Direction(IntEnum):
    FWD = 0
    BWD_DATA = 1
    BWD_FILTER = 2
    BWD_BIAS = 3


class DType(IntEnum):
    F32 = 0
    F64 = 1
    F16 = 2
    BF16 = 3


class Activation(IntEnum):
    IDENTITY = 0
    RELU = 1
    CLIP = 2
    ELU = 3
    SIGMOID = 4
    TANH = 5
    SWISH = 6
    SOFTPLUS = 7


class PoolMode(IntEnum):
    NONE = 0
    MAX = 1
    AVERAGE = 2
    AVERAGE_INSIDE = 3


class Saved(IntEnum):
    NOTHING = 0
    WINNERS = 1
    ALIVE = 2


class Shape(Structure):
    _fields_ = [
        *[(name, c_int64) for name in ("n", "g", "k", "c")],
        *[(name, Spatial) for name in ("input", "filter", "out")],
        *[(name, Spatial) for name in ("pad_before", "pad_after", "stride", "dilation")],
        *[(name, Spatial) for name in ("pooled", "saved", "tables")],
    ]


class Epilogue(Structure):
    _fields_ = [
        *[(name, c_bool) for name in ("scale", "bias", "residual")],
        ("residual_alpha", c_double),
        ("activation", c_int),
        ("parameter", c_double),
    ]


class Pool(Structure):
    _fields_ = [
        ("mode", c_int),
        *[(name, Spatial) for name in ("window", "stride", "pad_before", "pad_after")],
        ("ceil", c_bool),
    ]


class Also(Structure):
    _fields_ = [("dw", c_bool), ("db", c_bool)]


class Prologue(Structure):
    _fields_ = [("affine", c_bool), ("activation", c_int), ("parameter", c_double)]


class Problem(Structure):
    _fields_ = [
        ("direction", c_int),
        ("rank", c_int),
        ("shape", Shape),
        ("dtype", c_int),
        ("math", c_int),
        ("flip", c_bool),
        ("alpha", c_double),
        ("beta", c_double),
        ("epilogue", Epilogue),
        ("pool", Pool),
        ("saves", c_bool),
        ("clips", c_bool),
        ("slopes", c_bool),
        ("also", Also),
        ("prologue", Prologue),
        ("sums", c_bool),
        ("pairs", c_bool),
        ("stride", Dims * len(OPERANDS)),
    ]


class Taper(Structure):
    _fields_ = [("axis", c_int), ("length", c_int64)]


class Tiling(Structure):
    _fields_ = [
        ("extent", AxisArray),
        ("length", AxisArray),
        ("padding_as_data", c_bool * 3),
        ("full_padding", c_bool),
        ("taper", Taper),
    ]


class Box(Structure):
    _fields_ = [(name, Dims) for name in ("origin", "extent", "valid_begin", "valid_end")]


class OperandStep(Structure):
    _fields_ = [
        ("slot", c_int),
        ("enter", c_bool),
        ("leave", c_bool),
        ("from_slot", c_int),
        ("roll_axis", c_int),
        ("kept", c_int64),
        ("from_row", c_int64),
        ("box", Box),
    ]


class Step(Structure):
    _fields_ = [("number", c_int64), ("index", AxisArray), ("operand", OperandStep * len(OPERANDS))]


class Refused(Exception):
    """A function answered with an error: its code and its text."""

    def __init__(self, code: int, text: str):
        super().__init__(text)
        self.code, self.text = code, text


@functools.cache
def library() -> ctypes.CDLL:
    loaded = testing_library.load()
    loaded.oocdnn_testing_output_extent.restype = c_int64
    loaded.oocdnn_testing_output_extent.argtypes = [c_int64] * 6
    loaded.oocdnn_testing_schedule.restype = c_int64
    loaded.oocdnn_testing_schedule.argtypes = [
        POINTER(Problem), POINTER(Tiling), Order, PerOperand, POINTER(Step), c_int64,
    ]  # fmt: skip
    for name in ("parse_problem", "parse_placement"):
        function = getattr(loaded, f"oocdnn_testing_{name}")
        function.argtypes = [c_char_p, c_int64, ctypes.c_void_p, c_char_p, c_int64]
    sizes = (c_int64 * 4)()
    loaded.oocdnn_testing_sizes(sizes)
    mirrors = [ctypes.sizeof(mirror) for mirror in (Problem, Tiling, Box, Step)]
    if list(sizes) != mirrors:
        raise RuntimeError(f"mirrored structures of {mirrors} bytes, native of {list(sizes)}")
    return loaded


def _answer(code: int, message) -> None:
    if code != 0:
        raise Refused(code, message.value.decode(errors="replace"))


def _message():
    return ctypes.create_string_buffer(TEXT_BYTES), c_int64(TEXT_BYTES)


def parse(text: str | bytes) -> Problem:
    raw = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    problem, (message, room) = Problem(), _message()
    code = library().oocdnn_testing_parse_problem(raw, len(raw), byref(problem), message, room)
    _answer(code, message)
    return problem


def text_of(problem: Problem) -> str:
    text, room = _message()
    library().oocdnn_testing_problem_text(byref(problem), text, room)
    return text.value.decode()


def parse_placement(text: str) -> list[int]:
    raw, places, (message, room) = text.encode(), PerOperand(), _message()
    _answer(
        library().oocdnn_testing_parse_placement(raw, len(raw), byref(places), message, room),
        message,
    )
    return list(places)


def placement_text(places: list[int]) -> str:
    text, room = _message()
    library().oocdnn_testing_placement_text(PerOperand(*places), text, room)
    return text.value.decode()


def validate(problem: Problem) -> None:
    message, room = _message()
    _answer(library().oocdnn_testing_validate(byref(problem), message, room), message)


def output_of(problem: Problem) -> int:
    return library().oocdnn_testing_output_operand(byref(problem))


def uses(problem: Problem, operand: int) -> bool:
    return bool(library().oocdnn_testing_uses(byref(problem), operand))


def stays(problem: Problem, operand: int) -> bool:
    """Whether the operand is made on the device and used up there."""
    return bool(library().oocdnn_testing_stays(byref(problem), operand))


def writes(problem: Problem, operand: int) -> bool:
    return bool(library().oocdnn_testing_writes(byref(problem), operand))


def set_pooled(problem: Problem) -> None:
    """Fills in the sizes of z and of what is saved."""
    library().oocdnn_testing_set_pooled(byref(problem))


def saving(problem: Problem) -> tuple[Saved, int]:
    """What is saved, and the bits of an element."""
    what, bits = c_int(), c_int()
    library().oocdnn_testing_saving(byref(problem), byref(what), byref(bits))
    return Saved(what.value), bits.value


def dims_of(problem: Problem, operand: int) -> tuple[int, ...]:
    dims = Dims()
    library().oocdnn_testing_dims(byref(problem), operand, dims)
    return tuple(dims)


def strides_of(dims, channels_last: bool = False) -> tuple[int, ...]:
    strides = Dims()
    library().oocdnn_testing_strides(Dims(*dims), int(channels_last), strides)
    return tuple(strides)


def output_extent(extent, before, after, taps, stride, dilation) -> int:
    return library().oocdnn_testing_output_extent(extent, before, after, taps, stride, dilation)


def make_tiling(problem: Problem, length, padding_as_data: bool = False) -> Tiling:
    tiling = Tiling()
    library().oocdnn_testing_make_tiling(
        byref(problem), AxisArray(*length), int(padding_as_data), byref(tiling)
    )
    return tiling


def counts(tiling: Tiling) -> list[int]:
    found = AxisArray()
    library().oocdnn_testing_counts(byref(tiling), found)
    return list(found)


def taper(problem: Problem, tiling: Tiling, axis: int, length: int) -> None:
    """Gives the tiling short tiles at the ends of an axis, where it can have them."""
    library().oocdnn_testing_taper(byref(problem), axis, c_int64(length), byref(tiling))


def tile_shape(problem: Problem, tiling: Tiling, short: bool = False) -> Shape:
    shape = Shape()
    library().oocdnn_testing_tile_shape(byref(problem), byref(tiling), int(short), byref(shape))
    return shape


def region(problem: Problem, tiling: Tiling, operand: int, index) -> Box:
    box = Box()
    library().oocdnn_testing_region(
        byref(problem), byref(tiling), operand, AxisArray(*index), byref(box)
    )
    return box


def own_rows(problem: Problem, tiling: Tiling, index) -> Box:
    """The tile's box of dy, of which those rows are valid that are in no other tile's."""
    box = Box()
    library().oocdnn_testing_own_rows(byref(problem), byref(tiling), AxisArray(*index), byref(box))
    return box


def moves(problem: Problem, operand: int, axis: int) -> bool:
    return bool(library().oocdnn_testing_moves(byref(problem), operand, axis))


def is_reduction(problem: Problem, axis: int) -> bool:
    return bool(library().oocdnn_testing_is_reduction(byref(problem), axis))


def is_legal(problem: Problem, tiling: Tiling, order) -> bool:
    return bool(library().oocdnn_testing_is_legal(byref(problem), byref(tiling), Order(*order)))


def default_order(problem: Problem) -> list[int]:
    order = Order()
    library().oocdnn_testing_default_order(byref(problem), order)
    return list(order)


def schedule(problem: Problem, tiling: Tiling, order, depths) -> list[Step]:
    capacity = 1
    for count in counts(tiling):
        capacity *= count
    steps = (Step * max(capacity, 1))()
    number = library().oocdnn_testing_schedule(
        byref(problem), byref(tiling), Order(*order), PerOperand(*depths), steps, capacity
    )
    if number != capacity:
        raise AssertionError(f"{number} steps for {capacity} tiles")
    return list(steps[:number])
