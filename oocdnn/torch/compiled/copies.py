"""Copies of values between a device and host memory as operators of a graph.

    token = swap_out(x, stride)    starts the copy to host memory
    keep_swap_out(token, x)        nothing: until here, nobody else is to write to x
    finish_swap_out(token, x)      has the compute stream wait for its end; x can be freed then
    coming = swap_in(token)        starts the copy back to new memory
    y = finish_swap_in(coming, ..) has the compute stream wait for its end; y has the stride

A copy may end in another graph than it began in: forward then ends with `keep_swap_out`, and
backward has `finish_swap_out` of the token alone.

A token is a small tensor of the CPU, and so is what stands for a copy back; the host memory serves
others when the last reference to either is gone. What is read is a result and no operand that the
operators write to: Inductor loses the order of such writes where it merges loops.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor, fx
from torch._inductor.ir import ExternKernel
from torch._inductor.lowering import make_fallback

from oocdnn.torch.compiled.operators import define, no_form, token_form
from oocdnn.torch.limit.card import Card, Copy
from oocdnn.torch.limit.cuda_card import CudaCard
from oocdnn.torch.limit.host_card import HostCard
from oocdnn.torch.limit.slabs import Slabs

_cards: dict[torch.device, Card] = {}
_slabs: dict[torch.device, Slabs] = {}
_lock = threading.RLock()  # the collector may end a copy while a card is looked for


def card_of(device: torch.device) -> Card:
    """The device's, whose copies begin on its current stream."""
    with _lock:
        card = _cards.get(device)
        if card is None:
            card = CudaCard(device) if device.type == "cuda" else HostCard()
            _cards[device], _slabs[device] = card, Slabs(card)
    card.begin()
    return card


class _Swapped(bytearray):
    """A value in host memory, and the bytes of its token. Copies hold what they read and write
    until the compute stream waits for their end."""

    def __init__(self, x: Tensor) -> None:
        super().__init__(8)
        card = card_of(x.device)
        self._form = x.size(), x.stride(), x.dtype
        self._device = x.device
        self._slabs, self.nbytes = _slabs[x.device], x.nbytes
        self._slab = self._slabs.take(x.nbytes)
        if x.storage_offset() != 0:
            x = x.clone()
        self._leaving: tuple[Copy, Tensor] | None = (card.copy_out(x, self._slab), x)

    def left(self) -> None:
        """Has the compute stream wait for the copy away."""
        if self._leaving is not None:
            card_of(self._device)  # its compute stream may be another one by now
            self._leaving[0].wait()
            self._leaving = None

    def come(self) -> _Coming:
        """Starts a copy back."""
        self.left()
        size, stride, dtype = self._form
        y = torch.empty_strided(size, stride, dtype=dtype, device=self._device)
        return _Coming(self, card_of(self._device).copy_in(self._slab, y), y)

    def __del__(self) -> None:
        slab = getattr(self, "_slab", None)
        if slab is not None:  # there was one
            self.left()
            self._slabs.keep(slab)


class _Coming(bytearray):
    """A copy back, and the bytes of the tensor that stands for it."""

    def __init__(self, swapped: _Swapped, copy: Copy, y: Tensor) -> None:
        super().__init__(8)
        self._swapped, self._copy = swapped, copy
        self._y: Tensor | None = y

    def arrived(self) -> Tensor:
        """Has the compute stream wait for the end of the copy; what it gave, once."""
        y, self._y = self._y, None
        assert y is not None
        card_of(y.device)
        self._copy.wait()
        return y

    def __del__(self) -> None:
        if getattr(self, "_y", None) is not None:
            self.arrived()


# By the addresses of what stands for them.
_swapped: WeakValueDictionary[int, _Swapped] = WeakValueDictionary()
_coming: WeakValueDictionary[int, _Coming] = WeakValueDictionary()


def _swap_out(x: Tensor, stride: Sequence[int]) -> Tensor:
    if list(x.stride()) != list(stride):
        x = torch.empty_strided(x.size(), stride, dtype=x.dtype, device=x.device).copy_(x)
    swapped = _Swapped(x)
    token = torch.frombuffer(swapped, dtype=torch.int64)
    _swapped[token.data_ptr()] = swapped
    return token


def _in_order(node: fx.Node, x: Any, stride: Sequence[int]) -> tuple[Any, dict[str, Any]]:
    """Has Inductor hand over a value in the memory order that is asked for, where it would choose
    another one."""
    del node
    return (ExternKernel.require_exact_strides(x, stride), stride), {}


def _of(token: Tensor) -> _Swapped:
    swapped = _swapped.get(token.data_ptr())
    if swapped is None:
        raise RuntimeError(
            "a swapped tensor of a compiled step is asked for by a copy of its token: hooks for "
            "saved tensors that copy what they are given, such as save_on_cpu, cannot be used "
            "with the backend oocdnn"
        )
    return swapped


def _keep_swap_out(token: Tensor, x: Tensor) -> None:
    del token, x  # operands, which Inductor does not use for something else before


def _finish_swap_out(token: Tensor, x: Tensor | None) -> None:
    del x  # an operand, so that Inductor does not use its memory for something else before
    _of(token).left()


def _swap_in(token: Tensor) -> Tensor:
    coming = _of(token).come()
    standing = torch.frombuffer(coming, dtype=torch.int64)
    _coming[standing.data_ptr()] = coming
    return standing


def _finish_swap_in(coming: Tensor, *_: Any, **__: Any) -> Tensor:
    return _coming[coming.data_ptr()].arrived()


def _finish_swap_in_form(
    coming: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    del coming
    return torch.empty_strided(size, stride, dtype=dtype, device=device)


swap_out = define(
    "swap_out(Tensor x, SymInt[] stride) -> Tensor",
    _swap_out,
    token_form,
)
make_fallback(swap_out, _in_order, warn=False)
keep_swap_out = define("keep_swap_out(Tensor(a!) token, Tensor x) -> ()", _keep_swap_out, no_form)
finish_swap_out = define(
    "finish_swap_out(Tensor(a!) token, Tensor? x) -> ()", _finish_swap_out, no_form
)
swap_in = define("swap_in(Tensor token) -> Tensor", _swap_in, token_form)
finish_swap_in = define(
    "finish_swap_in(Tensor coming, SymInt[] size, SymInt[] stride, *, ScalarType dtype, "
    "Device device) -> Tensor",
    _finish_swap_in,
    _finish_swap_in_form,
)
OPERATORS = swap_out, keep_swap_out, finish_swap_out, swap_in, finish_swap_in
