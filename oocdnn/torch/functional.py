"""The convolutions of torch.nn.functional, under their names and with their arguments.

Operands lie where they lie: in host memory, pinned or not, and on GPUs, in any mix. The result is
on the side of `input`, or on `device`, in the memory order of `input`; gradients are on the side of
what they are gradients of. Under torch.autocast operands are converted as torch does it.

Errors are those of `oocdnn.functions`.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from oocdnn._calls import call_geometry, windows
from oocdnn.torch._derivatives import conv, conv_transpose

Device: TypeAlias = torch.device | str | int | None
PerAxis: TypeAlias = int | Sequence[int]

_CONVERTED = ("cpu", "cuda")  # the sides that have an autocast; it cannot be asked for on others


def _operands(rank: int, name: str, x: Tensor, w: Tensor, b: Any) -> tuple[list[Any], bool]:
    """x, w and b, batched, of the type that torch.autocast wants; whether x was a single sample."""
    single = x.ndim == rank + 1
    x = x.unsqueeze(0) if single else x
    call_geometry.need_axes("x", tuple(x.shape), rank, name, f"N, C, {call_geometry.SPATIAL[rank]}")
    call_geometry.need_axes("w", tuple(w.shape), rank, name, f"and {call_geometry.TAPS[rank]}")
    operands, side = [x, w, b], x.device.type
    if side in _CONVERTED and torch.is_autocast_enabled(side):
        dtype = torch.get_autocast_dtype(side)
        operands = [t if t is None or t.dtype == torch.float64 else t.to(dtype) for t in operands]
    return operands, single


def _per_axis(value: Any) -> Any:
    """One number for all axes may stand in a sequence."""
    return value[0] if isinstance(value, (tuple, list)) and len(value) == 1 else value


def _moves(w: Tensor, stride: Any, padding: Any, dilation: Any, groups: int) -> tuple[Any, ...]:
    """How the filter moves, as the operators are told."""
    taps = tuple(w.shape[2:])
    keywords = _per_axis(stride), _per_axis(padding), _per_axis(dilation)
    window = windows.make(len(taps), taps, *keywords)
    return window.stride, window.before, window.after, window.dilation, groups


def _side(device: Device, x: Tensor) -> torch.device:
    return x.device if device is None else torch.device(device)


def _convolve(rank: int, tensors: Any, moves: Any, device: Device) -> Tensor:
    (x, w, b), single = _operands(rank, f"conv{rank}d", *tensors)
    y: Tensor = conv(x, w, b, *_moves(w, *moves), _side(device, x))
    return y.squeeze(0) if single else y


def _transpose(rank: int, tensors: Any, output_padding: Any, moves: Any, device: Device) -> Tensor:
    (x, w, b), single = _operands(rank, f"conv_transpose{rank}d", *tensors)
    extra = windows.per_axis("output_padding", _per_axis(output_padding), rank, 0)
    y: Tensor = conv_transpose(x, w, b, extra, *_moves(w, *moves), _side(device, x))
    return y.squeeze(0) if single else y


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: PerAxis | str = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
    *,
    device: Device = None,
) -> Tensor:
    """input: [N, C, W] or [C, W]; weight: [K, C/groups, S]; bias: [K]. Returns [N, K, Q]."""
    moves = (stride, padding, dilation, groups)
    return _convolve(1, (input, weight, bias), moves, device)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: PerAxis | str = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
    *,
    device: Device = None,
) -> Tensor:
    """input: [N, C, H, W] or [C, H, W]; weight: [K, C/groups, R, S]; bias: [K].

    Returns [N, K, P, Q].
    """
    moves = (stride, padding, dilation, groups)
    return _convolve(2, (input, weight, bias), moves, device)


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: PerAxis | str = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
    *,
    device: Device = None,
) -> Tensor:
    """input: [N, C, D, H, W] or [C, D, H, W]; weight: [K, C/groups, T, R, S]; bias: [K].

    Returns [N, K, O, P, Q].
    """
    moves = (stride, padding, dilation, groups)
    return _convolve(3, (input, weight, bias), moves, device)


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    output_padding: PerAxis = 0,
    groups: int = 1,
    dilation: PerAxis = 1,
    *,
    device: Device = None,
) -> Tensor:
    """input: [N, C, W] or [C, W]; weight: [C, K/groups, S]; bias: [K]. Returns [N, K, Q]."""
    moves = (stride, padding, dilation, groups)
    return _transpose(1, (input, weight, bias), output_padding, moves, device)


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    output_padding: PerAxis = 0,
    groups: int = 1,
    dilation: PerAxis = 1,
    *,
    device: Device = None,
) -> Tensor:
    """input: [N, C, H, W] or [C, H, W]; weight: [C, K/groups, R, S]; bias: [K].

    Returns [N, K, P, Q].
    """
    moves = (stride, padding, dilation, groups)
    return _transpose(2, (input, weight, bias), output_padding, moves, device)


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    output_padding: PerAxis = 0,
    groups: int = 1,
    dilation: PerAxis = 1,
    *,
    device: Device = None,
) -> Tensor:
    """input: [N, C, D, H, W] or [C, D, H, W]; weight: [C, K/groups, T, R, S]; bias: [K].

    Returns [N, K, O, P, Q].
    """
    moves = (stride, padding, dilation, groups)
    return _transpose(3, (input, weight, bias), output_padding, moves, device)
