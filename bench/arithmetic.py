"""Kinds of arithmetic by the names that benchmarks call them by."""

from typing import NamedTuple

from oocdnn._calls.operation import MathName


class Arithmetic(NamedTuple):
    """The word in problem strings, what `math=` says, and the type of the elements."""

    word: str
    math: MathName
    dtype: str


ARITHMETIC = {
    "fp32": Arithmetic("f32", "fp32", "float32"),
    "tf32": Arithmetic("f32/tf32", "tf32", "float32"),
    "fp32x3": Arithmetic("f32/fp32x3", "fp32x3", "float32"),
    "fp16": Arithmetic("f16", "fp32", "float16"),
    "bf16": Arithmetic("bf16", "fp32", "bfloat16"),
}
