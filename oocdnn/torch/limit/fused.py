"""Elementwise operations in one pass: expressions, and the kernels that are generated from them.

An operation of an expression computes in float32 and rounds to the type that PyTorch gives its
result, as a separate kernel of PyTorch's does. Views go to the expression's inputs, where they are
strides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from oocdnn.torch._warning import warn
from oocdnn.torch.limit import norms

_FLOATS = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
_LOADED = {*_FLOATS, torch.bool}
_NAMES = {
    *("relu", "leaky_relu", "hardtanh", "hardsigmoid", "hardswish", "sigmoid", "silu", "tanh"),
    *("gelu", "gelu_tanh", "add", "add_scaled", "mul", "dropped", "cast"),
    *(f"norm{order}" for order in range(norms.ORDERS)),
}
_TRITON = find_spec("triton") is not None
_ELEMENTS = 2048  # of one program
_MOST_AXES = 5
_ALIGNED = 16  # bytes


class NotFusable(Exception):
    """The operation has to run by itself."""


@dataclass(eq=False)
class Expression:
    """An input or an operation on others."""

    shape: torch.Size
    dtype: torch.dtype

    def through(self, view: Callable[[Tensor], Tensor]) -> Expression:
        """A view of it. `view` fails where it would copy."""
        raise NotImplementedError

    def view(self, shape: Sequence[int]) -> Expression:
        return self.through(lambda tensor: tensor.view(tuple(shape)))

    def expand(self, shape: torch.Size) -> Expression:
        return self if self.shape == shape else self.through(lambda tensor: tensor.expand(shape))


class Input(Expression):
    """A view of the tensor in a slot of the program.

    Args:
        base: The storage offset of that tensor; the view's own one by default.
    """

    def __init__(self, slot: int, tensor: Tensor, base: int | None = None) -> None:
        super().__init__(tensor.shape, tensor.dtype)
        self.slot, self.tensor = slot, tensor
        self._base = int(tensor.storage_offset()) if base is None else base

    @property
    def offset(self) -> int:
        """Elements from the beginning of the tensor in the slot."""
        return int(self.tensor.storage_offset()) - self._base

    def through(self, view: Callable[[Tensor], Tensor]) -> Expression:
        return Input(self.slot, view(self.tensor), self._base)


@dataclass(eq=False)
class Operation(Expression):
    """Named as in `_kernels`; numbers among its operands are written into the kernel."""

    name: str
    operands: tuple[Expression | float, ...]

    def through(self, view: Callable[[Tensor], Tensor]) -> Expression:
        operands = tuple(
            one.expand(self.shape).through(view) if isinstance(one, Expression) else one
            for one in self.operands
        )
        shape = next(one.shape for one in operands if isinstance(one, Expression))
        return Operation(shape, self.dtype, self.name, operands)


def apply(name: str, *operands: Any, dtype: torch.dtype | None = None) -> Expression:
    """An operation; operands broadcast, and the result has PyTorch's type of them."""
    whole = [one for one in operands if isinstance(one, Expression)]
    if name not in _NAMES:
        raise NotFusable
    for one in whole:
        if isinstance(one, Input) and one.dtype not in _LOADED:
            raise NotFusable
    shape = torch.broadcast_shapes(*(one.shape for one in whole))
    if dtype is None:
        dtype = whole[0].dtype
        for one in whole[1:]:
            if one.dtype != dtype:
                dtype = torch.result_type(_like(whole[0]), _like(one))
    if dtype not in _FLOATS:
        raise NotFusable
    return Operation(shape, dtype, name, tuple(operands))


def _like(one: Expression) -> Tensor:
    return torch.empty(one.shape, dtype=one.dtype, device="meta")


def cast(x: Expression, dtype: torch.dtype, device: torch.device) -> Expression:
    if isinstance(x, Input) and x.tensor.device != device:
        raise NotFusable
    return apply("cast", x, dtype=dtype)


def norm(term: norms.Term, order: int) -> Expression:
    """Its mean, deviation, weight and bias broadcast to `x`."""
    return apply(f"norm{order}", *term.all, dtype=term.x.dtype)


def restrided(x: Tensor, size: Sequence[int], stride: Sequence[int], offset: int) -> Tensor:
    """Where x and the result both lie densely in row-major order: another shape of it."""
    shaped = torch.empty(tuple(size), device="meta")
    if not x.is_contiguous() or offset != 0 or shaped.stride() != tuple(stride):
        raise NotFusable
    return x.view(tuple(size))


def normalized(term: norms.Term, order: int) -> Tensor:
    """A normalised tensor: one pass on a GPU."""
    if not is_there(term.x) or term.x.dtype not in _FLOATS:
        return norms.apply(term, order)
    places = tuple(_place(one) if isinstance(one, Tensor) else one for one in term.all)
    return _kernel_of_norm(places, order)(*(one for one in term.all if isinstance(one, Tensor)))


def is_there(tensor: Tensor) -> bool:
    """Whether kernels are generated for tensors like that."""
    return bool(tensor.is_cuda) and _TRITON and _compiles(tensor.device)


@cache
def _compiles(device: torch.device) -> bool:
    """Whether Triton compiles kernels here. It needs a C compiler and Python's headers."""
    x = torch.zeros(4096, device=device)
    try:
        Kernel(apply("relu", Input(0, x)), stride=(1,))(x)
    except Exception as error:  # compilers raise others too
        warn(
            f"Triton compiles no kernels for {device}, so that operations are computed again one "
            f"by one, and results of ReLU are not held as bits: {error}"
        )
        return False
    return True


@dataclass(frozen=True)
class _Place:
    size: torch.Size
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype


def _place(one: Tensor) -> _Place:
    return _Place(one.size(), one.stride(), int(one.storage_offset()), one.dtype)


@cache
def _kernel_of_norm(places: tuple[Any, ...], order: int) -> Kernel:
    operands: list[Any] = []
    for one in places:
        if isinstance(one, _Place):
            tensor = torch.empty_strided(one.size, one.stride, dtype=one.dtype, device="meta")
            operands.append(Input(sum(isinstance(o, Input) for o in operands), tensor))
        else:
            operands.append(one)
    expression = norm(norms.Term(*operands), order)
    return Kernel(expression, strides_of(expression))


def strides_of(expression: Expression) -> tuple[int, ...]:
    """The memory order that PyTorch gives the result: that of the first input of its shape."""
    for one in _inputs(expression):
        if one.shape == expression.shape:
            return tuple(torch.empty_like(one.tensor, device="meta").stride())
    return tuple(torch.empty(expression.shape, device="meta").stride())


def _inputs(expression: Expression) -> list[Input]:
    if isinstance(expression, Input):
        return [expression]
    assert isinstance(expression, Operation)
    parts = [one for one in expression.operands if isinstance(one, Expression)]
    return [one for part in parts for one in _inputs(part)]


class Kernel:
    """Computes an expression from the tensors in its slots, in the order of `slots`.

    Attributes:
        over: Slots whose tensor the result may overwrite: it has their form, and each of its
            elements is computed from the element in its place.
    """

    def __init__(self, expression: Expression, stride: tuple[int, ...]) -> None:
        self._size, self._stride, self._dtype = expression.shape, stride, expression.dtype
        inputs: dict[Any, Input] = {}
        for one in _inputs(expression):
            inputs.setdefault((one.slot, _place(one.tensor)), one)
        self.slots = tuple(one.slot for one in inputs.values())
        self._offsets = tuple(one.offset for one in inputs.values())
        form = (self._size, stride, self._dtype, 0)
        self.over = {one.slot for one in inputs.values() if _form(one) == form}
        self.over -= {slot for slot in self.slots if self.slots.count(slot) > 1}
        views = [one.tensor.expand(expression.shape).stride() for one in inputs.values()]
        axes = _merged(expression.shape, [stride, *views])
        if len(axes) > _MOST_AXES:
            raise NotFusable
        *outer, (columns, steps) = axes
        rows = math.prod(size for size, _ in outer)
        if max(rows, columns) >= 1 << 31:
            raise NotFusable
        names = {key: f"x{i}" for i, key in enumerate(inputs)}
        self.source = _source(expression, names, outer, steps)
        tables = any(step and not any(s[i] for _, s in outer) for i, step in enumerate(steps))
        wide = min(1 << (columns - 1).bit_length(), 256 if tables and outer else _ELEMENTS)
        tall = min(1 << (rows - 1).bit_length(), _ELEMENTS // wide)
        self._grid = (-(-rows // tall) * -(-columns // wide),)
        self._numbers = (
            rows,
            columns,
            *(size for size, _ in outer[1:]),
            *(s[i] for i in range(len(steps)) for _, s in outer if s[i]),
            *(step for step in steps if step > 1),
        )
        self._blocks = {"ROWS": tall, "COLUMNS": wide}
        self._constants = (*self._numbers, *self._blocks.values())
        self._launches: dict[tuple[int, ...], Callable[..., None]] = {}

    def __call__(self, *tensors: Tensor, out: Tensor | None = None) -> Tensor:
        """The result, in `out` where that is given."""
        if out is None:
            out = torch.empty_strided(
                self._size, self._stride, dtype=self._dtype, device=tensors[0].device
            )
        if out.numel() == 0:
            return out
        pointers = [out.data_ptr()]
        for tensor, offset in zip(tensors, self._offsets, strict=True):
            pointers.append(tensor.data_ptr() + offset * tensor.element_size())
        # Triton compiles for the device and for aligned pointers; the numbers are always the same.
        device = out.get_device()
        key = (device, *[pointer % _ALIGNED == 0 for pointer in pointers])
        launch = self._launches.get(key)
        stream = _stream(device)
        if launch is not None and stream is not None:
            # Addresses and the stream: Triton takes longer to ask for them.
            launch(*pointers, *self._constants, stream=stream)
            return out
        with torch.cuda.device_of(out):  # Triton takes the current device
            if launch is not None:
                launch(*pointers, *self._constants)
            else:
                self._compile(key, out, tensors)
        return out

    def _compile(self, key: tuple[int, ...], out: Tensor, tensors: Sequence[Tensor]) -> None:
        """Compiles, and runs for the first time."""
        from oocdnn.torch.limit import _kernels  # Triton comes with PyTorch for GPUs only

        starts = [
            tensor if offset == 0 else placed(tensor, (1,), (1,), offset)
            for tensor, offset in zip(tensors, self._offsets, strict=True)
        ]
        kernel = _kernels.compiled(self.source)[self._grid](
            out, *starts, *self._numbers, **self._blocks, enable_fp_fusion=False
        )
        if _kernels.LAUNCHES and kernel is not None:  # Triton's interpreter gives none
            self._launches[key] = kernel[(*self._grid, 1, 1)]


def _form(one: Input) -> tuple[torch.Size, tuple[int, ...], torch.dtype, int]:
    return one.shape, one.tensor.stride(), one.dtype, one.offset


def _stream(device: int) -> int | None:
    """The stream of a launch; None where another device is the current one."""
    if torch._C._cuda_getDevice() != device:
        return None
    return int(torch._C._cuda_getCurrentRawStream(device))


def placed(tensor: Tensor, size: Sequence[int], stride: Sequence[int], offset: int) -> Tensor:
    """A view that begins so many elements behind the tensor's beginning."""
    return tensor.as_strided(tuple(size), tuple(stride), int(tensor.storage_offset()) + offset)


Axis = tuple[int, tuple[int, ...]]  # elements, and the stride of each operand


def _merged(shape: torch.Size, strides: list[tuple[int, ...]]) -> list[Axis]:
    """The axes in the memory order of the first operand, merged where all operands allow it."""
    axes: list[Axis] = [
        (size, tuple(stride[i] for stride in strides)) for i, size in enumerate(shape) if size != 1
    ]
    axes.sort(key=lambda axis: -axis[1][0])
    merged: list[Axis] = []
    for size, steps in axes:
        if merged and all(a == b * size for a, b in zip(merged[-1][1], steps, strict=True)):
            merged[-1] = (merged[-1][0] * size, steps)
        else:
            merged.append((size, steps))
    return merged or [(1, (1,) * len(strides))]


def _source(
    expression: Expression, names: dict[Any, str], outer: list[Axis], steps: tuple[int, ...]
) -> str:
    """A kernel over rows (the outer axes) and columns (the last one)."""
    pointers = ["out", *names.values()]
    axes = range(len(outer))
    strides = [
        f"{name}_{axis}" for i, name in enumerate(pointers) for axis in axes if outer[axis][1][i]
    ]
    strides += [f"{name}_column" for name, step in zip(pointers, steps, strict=True) if step > 1]
    sizes = [f"size_{axis}" for axis in axes[1:]]
    arguments = [*pointers, "rows", "columns", *sizes, *strides]
    body = [
        "blocks = tl.cdiv(columns, COLUMNS)",
        "row = (tl.program_id(0) // blocks) * ROWS + tl.arange(0, ROWS)",
        "column = (tl.program_id(0) % blocks) * COLUMNS + tl.arange(0, COLUMNS)",
        "in_row, in_column = (row < rows)[:, None], (column < columns)[None, :]",
        "left = row.to(tl.int64)",
    ]
    for axis in reversed(axes[1:]):
        body += [f"index_{axis} = left % size_{axis}", f"left = left // size_{axis}"]
    body += ["index_0 = left"]

    def at(i: int, name: str) -> tuple[str, str]:
        """The elements' address and which of them are there."""
        parts = [f"index_{axis} * {name}_{axis}" for axis in axes if outer[axis][1][i]]
        place, mask = name, []
        if parts:
            place += f" + ({' + '.join(parts)})[:, None]"
            mask.append("in_row")
        if steps[i]:
            index = "column" if steps[i] == 1 else f"column.to(tl.int64) * {name}_column"
            place += f" + ({index})[None, :]"
            mask.append("in_column")
        if not mask:
            place += " + tl.zeros([1, 1], tl.int32)"
        return place, " & ".join(mask) or "tl.full([1, 1], 1, tl.int1)"

    for i, name in enumerate(pointers[1:], 1):
        place, mask = at(i, name)
        body.append(f"v_{name} = tl.load({place}, mask={mask}, other=0).to(tl.float32)")
    made: dict[int, str] = {}

    def value(one: Expression | float, literal: bool) -> str:
        if not isinstance(one, Expression):
            number = repr(float(one)) if math.isfinite(one) else f'float("{one}")'
            return number if literal else f"tl.full([1, 1], {number}, tl.float32)"
        if isinstance(one, Input):
            return "v_" + names[one.slot, _place(one.tensor)]
        assert isinstance(one, Operation)
        if id(one) not in made:
            number_too = not one.name.startswith(_TENSORS_ONLY)
            operands = ", ".join(value(part, number_too) for part in one.operands)
            text = operands if one.name == "cast" else f"{one.name}({operands})"
            if one.dtype != torch.float32:
                text = f"({text}).to(tl.{_FLOATS[one.dtype]}).to(tl.float32)"
            name = f"y{len(made)}"
            body.append(f"{name} = {text}")
            made[id(one)] = name
        return made[id(one)]

    result = value(expression, literal=True)
    place, _ = at(0, "out")
    body.append(f"tl.store({place}, ({result}).to(out.dtype.element_ty), mask=in_row & in_column)")
    head = f"def fused({', '.join(arguments)}, ROWS: tl.constexpr, COLUMNS: tl.constexpr):"
    return "\n    ".join([head, *body]) + "\n"


_TENSORS_ONLY = ("norm",)  # operations whose numbers stand for tensors
