"""Launches of generated kernels, with a compiler that computes by PyTorch."""

from __future__ import annotations

import ctypes
import math
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch import Tensor

import oocdnn.torch.limit
from oocdnn.torch.limit import fused, programs

SHAPE = (3, 8)


class Compiled:
    """A kernel for ReLU as Triton has it: launched through the compiler, or by itself."""

    def __init__(self) -> None:
        self.compiled, self.launched = 0, 0
        self.streams: list[int | None] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return self._first if len(grid) == 1 else self._again

    def _first(self, out: Tensor, x: Tensor, *numbers: int, **options: Any) -> Compiled:
        self.compiled += 1
        self.given = (*numbers, options["ROWS"], options["COLUMNS"])
        out.copy_(torch.relu(x.as_strided(SHAPE, (8, 1))))
        return self

    def _again(self, out: int, x: int, *numbers: int, stream: int | None = None) -> None:
        self.launched += 1
        self.streams.append(stream)
        assert numbers == self.given
        values(out).copy_(torch.relu(values(x)))


def values(address: int) -> Tensor:
    """What lies there."""
    memory = (ctypes.c_float * math.prod(SHAPE)).from_address(address)
    return torch.frombuffer(memory, dtype=torch.float32).view(SHAPE)


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """The current one of the tensors' device, or None where another device is the current one."""
    current: list[int | None] = [7]
    monkeypatch.setattr(fused, "_stream", lambda device: current[0])
    return current


@pytest.mark.parametrize("launches", [True, False])
def test_kernels_are_compiled_for_aligned_pointers_once(
    monkeypatch: pytest.MonkeyPatch, stream: list[int | None], launches: bool
) -> None:
    kernel = Compiled()

    class Kernels:
        LAUNCHES = launches

        @staticmethod
        def compiled(source: str) -> Compiled:
            assert "relu(" in source
            return kernel

    monkeypatch.setattr(oocdnn.torch.limit, "_kernels", Kernels, raising=False)
    memory = torch.frombuffer(bytearray(256), dtype=torch.float32).numpy()
    base = -memory.ctypes.data // 4 % 4  # elements up to an aligned one
    inputs = [torch.from_numpy(memory[base + i : base + i + 24]) for i in (0, 1, 4, 2)]
    made = fused.Kernel(fused.apply("relu", fused.Input(0, torch.empty(SHAPE))), stride=(8, 1))
    for one in inputs:
        x = one.view(SHAPE).copy_(torch.randn(SHAPE))
        assert torch.equal(made(x), torch.relu(x))
    assert (kernel.compiled, kernel.launched) == ((2, 2) if launches else (4, 0))
    x = torch.randn(SHAPE)
    for one in inputs:  # to write into
        assert torch.equal(made(x, out=one.view(SHAPE)), torch.relu(x))
    assert (kernel.compiled, kernel.launched) == ((3, 5) if launches else (8, 0))
    stream[0] = None
    assert torch.equal(made(x), torch.relu(x))
    assert kernel.streams == ([*5 * [7], None] if launches else [])


def test_kernels_begin_where_their_tensors_do(
    monkeypatch: pytest.MonkeyPatch, stream: list[int | None]
) -> None:
    """They are made for one place in a storage, and read and write others."""

    class Kernels:
        LAUNCHES = True

        @staticmethod
        def compiled(source: str) -> Compiled:
            return Compiled()

    monkeypatch.setattr(oocdnn.torch.limit, "_kernels", Kernels, raising=False)
    inputs, outputs = torch.randn(4, 4, 8), torch.zeros(4, *SHAPE)
    view = fused.Input(0, inputs[1]).through(lambda x: x[1:])
    made = fused.Kernel(fused.apply("relu", view), stride=(8, 1))
    for x, out in zip(inputs, outputs, strict=True):
        assert made(x, out=out) is out
    assert torch.equal(outputs, torch.relu(inputs[:, 1:]))
    assert torch.equal(made(inputs[3].clone()), outputs[3])


def test_kernels_run_on_the_device_of_their_tensors(
    monkeypatch: pytest.MonkeyPatch, stream: list[int | None]
) -> None:
    stream[0] = None
    inside: list[Tensor] = []

    @contextmanager
    def device_of(tensor: Tensor) -> Iterator[None]:
        inside.append(tensor)
        yield
        inside.pop()

    class Placed(Compiled):
        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            run = super().__getitem__(grid)

            def placed(out: Tensor | int, *given: Any, **options: Any) -> Any:
                assert inside
                assert inside[0].data_ptr() == (out if isinstance(out, int) else out.data_ptr())
                return run(out, *given, **options)

            return placed

    class Kernels:
        LAUNCHES = True
        kernel = Placed()

        @classmethod
        def compiled(cls, source: str) -> Placed:
            return cls.kernel

    monkeypatch.setattr(oocdnn.torch.limit, "_kernels", Kernels, raising=False)
    monkeypatch.setattr(torch.cuda, "device_of", device_of)
    made = fused.Kernel(fused.apply("relu", fused.Input(0, torch.empty(SHAPE))), stride=(8, 1))
    x = torch.randn(SHAPE)
    for _ in range(2):
        assert torch.equal(made(x), torch.relu(x))
    assert (Kernels.kernel.compiled, Kernels.kernel.launched) == (1, 1)


def test_a_machine_without_a_compiler_generates_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    class Kernels:
        LAUNCHES = True

        @staticmethod
        def compiled(source: str) -> Compiled:
            raise subprocess.CalledProcessError(1, "gcc")

    monkeypatch.setattr(oocdnn.torch.limit, "_kernels", Kernels, raising=False)
    monkeypatch.setattr(fused, "_TRITON", True)
    fused._compiles.cache_clear()

    class OnGpu:
        is_cuda, device = True, torch.device("cpu")

    with pytest.warns(UserWarning, match="no kernels for cpu"):
        assert not fused.is_there(OnGpu())  # type: ignore[arg-type]
    assert not fused.is_there(OnGpu())  # type: ignore[arg-type]
    fused._compiles.cache_clear()


def test_a_result_overwrites_what_only_its_kernel_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[int, int | None]] = []

    def kernel(self: fused.Kernel, x: Tensor, out: Tensor | None = None) -> Tensor:
        made = torch.relu(x) if out is None else out.copy_(torch.relu(x))
        written.append((x.data_ptr(), None if out is None else out.data_ptr()))
        return made

    def relu_of(builder: programs._Builder, slot: int) -> Tensor:
        expression = fused.apply("relu", fused.Input(slot, builder.values[slot]))
        return builder.values[builder.slot(expression)]

    monkeypatch.setattr(fused.Kernel, "__call__", kernel)
    x = torch.randn(SHAPE)
    before = x.clone()

    builder = programs._Builder([x], True)
    assert torch.equal(relu_of(builder, builder.emit(torch.neg, (programs._Slot(0),))), (-x).relu())
    assert written[-1][0] == written[-1][1]
    program = programs.Program(builder.steps, 1)
    assert torch.equal(program([x]), (-x).relu())
    assert written[-1][0] == written[-1][1]
    assert torch.equal(x, before)

    for run in (None, lambda one: one, lambda one: one[:2]):  # a leaf, itself, and a part of it
        builder = programs._Builder([x], True)
        slot = 0 if run is None else builder.emit(run, (programs._Slot(0),))
        relu_of(builder, slot)
        assert written[-1][1] is None
        assert torch.equal(x, before)


@pytest.mark.parametrize(
    ("tensor", "over"),
    [
        (torch.empty(3, 8), True),
        (torch.empty(8, 3).t(), False),
        (torch.empty(1, 8), False),
        (torch.empty(3, 8, dtype=torch.float16), False),
    ],
)
def test_a_kernel_overwrites_operands_of_the_form_of_its_result(tensor: Tensor, over: bool) -> None:
    x, y = fused.Input(0, torch.empty(3, 8)), fused.Input(1, tensor)
    kernel = fused.Kernel(fused.apply("add", x, y, dtype=torch.float32), stride=(8, 1))
    assert kernel.over == ({0, 1} if over else {0})


def test_a_kernel_overwrites_nothing_that_it_reads_in_another_order() -> None:
    x = torch.empty(8, 8)
    straight, across = fused.Input(0, x), fused.Input(0, x.t())
    kernel = fused.Kernel(fused.apply("add", straight, across), stride=(8, 1))
    assert kernel.over == set()
