"""Convolutions in parts: exact on integers, and the very bits where nothing is divided."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from oocdnn.torch.limit import parts
from oocdnn.torch.limit.overrides import overrides
from oocdnn.torch.limit.table import Signature, Table


def replaced() -> bool:
    names = ("aten::convolution", "aten::convolution_backward")
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU") for name in names)


@pytest.fixture
def table() -> Iterator[Table]:
    table = Table("cpu", overrides.count)
    table.enter()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table.use(True)
    assert replaced()
    yield table
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table.leave()
    assert not replaced()


def divide(table: Table, number: int, run: Callable[[], object]) -> list[Signature]:
    """Has the convolutions of a function run in so many parts."""
    table.ran = []
    run()
    found, table.ran = table.ran, None
    table.parts = dict.fromkeys(found, number)
    return found


@settings(deadline=None)
@given(
    dimensions=st.integers(1, 3),
    batch=st.integers(0, 7),
    parts_=st.integers(1, 9),
    groups=st.integers(1, 2),
    stride=st.integers(1, 2),
    transposed=st.booleans(),
    last=st.booleans(),
    biased=st.booleans(),
    kind=st.sampled_from([torch.float32, torch.bfloat16]),
    needs=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_parts_give_what_the_whole_gives(
    dimensions: int,
    batch: int,
    parts_: int,
    groups: int,
    stride: int,
    transposed: bool,
    last: bool,
    biased: bool,
    kind: torch.dtype,
    needs: tuple[bool, bool, bool],
) -> None:
    torch.manual_seed(0)
    c, k = 2 * groups, 2 * groups
    order = {2: torch.channels_last, 3: torch.channels_last_3d}.get(dimensions)

    def integers(*size: int) -> torch.Tensor:
        made = torch.randint(-2, 3, size).to(kind)
        return made.to(memory_format=order) if last and order and made.dim() > 2 else made

    x, w = integers(batch, c, *[6] * dimensions), integers(c, k // groups, *[3] * dimensions)
    b = integers(k) if biased else None
    each = [1] * dimensions
    options = ([stride] * dimensions, each, each, transposed, [0] * dimensions, groups)
    y = torch.convolution(x, w, b, *options)
    assert_same(parts.forward(parts_, x, w, b, *options), y)
    if not batch:
        return
    dy = torch.randint(-2, 3, y.size()).to(y)
    sizes, mask = [k] if biased else None, [*needs[:2], needs[2] and biased]
    expected = torch.ops.aten.convolution_backward(dy, x, w, sizes, *options, mask)
    found = parts.backward(parts_, dy, x, w, sizes, *options, mask)
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other)


def assert_same(found: torch.Tensor | None, expected: torch.Tensor | None) -> None:
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert (found.dtype, found.stride()) == (expected.dtype, expected.stride())
        assert torch.equal(found, expected)


def whole(size: int, *others: int) -> torch.Tensor:
    return torch.randint(-2, 3, (size, *others)).float()


CALLS: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = {
    "1d": (F.conv1d, (6, 4, 9), (2, 4, 3)),
    "2d": (F.conv2d, (6, 4, 9, 9), (2, 4, 3, 3)),
    "3d": (F.conv3d, (6, 4, 5, 5, 5), (2, 4, 3, 3, 3)),
    "1d transposed": (F.conv_transpose1d, (6, 4, 9), (4, 2, 3)),
    "2d transposed": (F.conv_transpose2d, (6, 4, 9, 9), (4, 2, 3, 3)),
    "3d transposed": (F.conv_transpose3d, (6, 4, 5, 5, 5), (4, 2, 3, 3, 3)),
    "groups": (lambda x, w, b: F.conv2d(x, w, b, groups=2), (6, 4, 9, 9), (2, 2, 3, 3)),
    "depthwise": (lambda x, w, b: F.conv2d(x, w, b, groups=4), (6, 4, 9, 9), (4, 1, 3, 3)),
    "same": (lambda x, w, b: F.conv2d(x, w, b, padding="same"), (6, 4, 9, 9), (2, 4, 3, 3)),
    "no bias": (lambda x, w, b: F.conv2d(x, w), (6, 4, 9, 9), (2, 4, 3, 3)),
    "unbatched": (F.conv2d, (4, 9, 9), (2, 4, 3, 3)),
    "empty batch": (F.conv2d, (0, 4, 9, 9), (2, 4, 3, 3)),
    "channels last": (
        lambda x, w, b: F.conv2d(x.to(memory_format=torch.channels_last), w, b),
        (6, 4, 9, 9),
        (2, 4, 3, 3),
    ),
    "one channel": (
        lambda x, w, b: F.conv2d(x.to(memory_format=torch.channels_last), w, b),
        (6, 1, 9, 9),
        (2, 1, 3, 3),
    ),
    "strided": (lambda x, w, b: F.conv2d(x[::2, ..., ::2], w, b), (6, 4, 9, 18), (2, 4, 3, 3)),
    "autocast": (
        lambda x, w, b: torch.autocast("cpu", torch.bfloat16)(F.conv2d)(x, w, b),
        (6, 4, 9, 9),
        (2, 4, 3, 3),
    ),
}


def gradients(name: str, exact: bool) -> list[torch.Tensor]:
    """The result of a call, and its gradients by the input, the filter and the bias."""
    torch.manual_seed(0)
    call, *sizes = CALLS[name]
    made = [*sizes, (2 if "depthwise" not in name else 4,)]
    tensors = [torch.randint(-2, 3, s).float() if exact else torch.randn(s) for s in made]
    for tensor in tensors:
        tensor.requires_grad_()
    y = call(*tensors)
    dy = torch.randint(-2, 3, y.size()).to(y)
    found = torch.autograd.grad(y, tensors, dy, allow_unused=True)
    return [y.detach(), *(one for one in found if one is not None)]


@pytest.mark.parametrize("name", CALLS)
def test_whole_calls_have_the_bits_of_plain_pytorch(table: Table, name: str) -> None:
    found = gradients(name, exact=False)
    table.use(False)
    assert not replaced()
    for one, other in zip(found, gradients(name, exact=False), strict=True):
        assert_same(one, other)
    table.use(True)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("number", [2, 4])
def test_calls_in_parts_are_exact(table: Table, name: str, number: int) -> None:
    expected = gradients(name, exact=True)
    signatures = divide(table, number, lambda: gradients(name, exact=True))
    assert {one[0] for one in signatures} == {"forward", "backward"}
    seen = batches(lambda: gradients(name, exact=True))
    if "batch" not in name:  # of more than one sample
        batch = 3 if name == "strided" else 6
        assert seen == 2 * [batch // number + (batch % number > 0)]
    for one, other in zip(gradients(name, exact=True), expected, strict=True):
        assert_same(one, other)


class Own:
    """PyTorch's own kernel, with its calls observed; `x` is the input's place."""

    def __init__(self, own: Any, x: int, observe: Callable[[torch.Tensor], None]) -> None:
        self._own, self._x, self._observe = own, x, observe

    def redispatch(self, keys: Any, *given: Any) -> Any:
        self._observe(given[self._x])
        return self._own.redispatch(keys, *given)


def observe(patch: pytest.MonkeyPatch, function: Callable[[torch.Tensor], None]) -> None:
    patch.setattr(parts, "_FORWARD", Own(parts._FORWARD, 0, function))
    patch.setattr(parts, "_BACKWARD", Own(parts._BACKWARD, 1, function))


def batches(run: Callable[[], object]) -> list[int]:
    """The batch of the largest part in forward, then in backward."""
    seen: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        observe(patch, lambda x: seen.append(x.size(0)))
        run()
    half = len(seen) // 2
    return [max(seen[:half]), max(seen[half:])]


@pytest.mark.parametrize("error", [torch.cuda.OutOfMemoryError, RuntimeError])
def test_what_lacks_memory_runs_in_more_parts_from_then_on(
    table: Table, monkeypatch: pytest.MonkeyPatch, error: type[RuntimeError]
) -> None:
    expected = gradients("2d", exact=True)
    failed = []

    def limited(x: torch.Tensor) -> None:
        if x.size(0) > 2:
            failed.append(x.size(0))
            raise error("GET was unable to find an engine to execute this computation")

    observe(monkeypatch, limited)
    for _ in range(2):
        for one, other in zip(gradients("2d", exact=True), expected, strict=True):
            assert_same(one, other)
        assert failed == [6, 3, 6, 3]
    assert set(table.parts.values()) == {4}


def test_other_errors_and_hopeless_ones_are_raised(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RuntimeError, match="channels"):
        F.conv2d(torch.ones(2, 3, 4, 4), torch.ones(1, 4, 3, 3))
    with pytest.raises(RuntimeError, match="at least"):
        torch.convolution(torch.ones(()), torch.ones(()), None, [1], [0], [1], False, [0], 1)
    seen = []

    def hopeless(x: torch.Tensor) -> None:
        seen.append(x.size(0))
        raise torch.cuda.OutOfMemoryError("always")

    observe(monkeypatch, hopeless)
    with pytest.raises(torch.cuda.OutOfMemoryError, match="always"):
        F.conv2d(torch.ones(5, 3, 4, 4), torch.ones(1, 3, 3, 3))
    assert seen == [5, 3, 2, 1]
    assert not table.parts


def test_the_innermost_table_of_the_thread_decides(table: Table) -> None:
    def run() -> object:
        return gradients("2d", exact=True)

    divide(table, 2, run)
    assert batches(run) == [3, 3]
    inner = Table("cpu", overrides.count)
    inner.enter()
    inner.use(True)
    assert batches(run) == [6, 6]
    divide(inner, 3, run)
    assert batches(run) == [2, 2]
    inner.leave()
    assert batches(run) == [3, 3]
    seen: list[list[int]] = []
    other = threading.Thread(target=lambda: seen.append(batches(run)))
    other.start()
    other.join()
    assert seen == [[6, 6]]


def test_a_backward_pass_on_another_thread_is_looked_up_where_it_belongs(table: Table) -> None:
    x = torch.randn(6, 4, 9, 9, requires_grad=True)
    w = torch.randn(2, 4, 3, 3, requires_grad=True)
    divide(table, 2, lambda: F.conv2d(x, w).sum().backward())
    seen: list[int] = []

    def unpack(tensor: torch.Tensor) -> torch.Tensor:
        table.serves_backward()
        return tensor

    def backward(y: torch.Tensor) -> None:
        with pytest.MonkeyPatch.context() as patch:
            observe(patch, lambda x: seen.append(x.size(0)))
            y.sum().backward()

    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
        limited = F.conv2d(x, w)
    for y, batch in ((limited, 3), (F.conv2d(x, w), 6)):
        seen.clear()
        thread = threading.Thread(target=backward, args=(y,))
        thread.start()
        thread.join()
        assert max(seen) == batch


def test_a_kernel_of_another_library_is_left_alone() -> None:
    theirs = torch.library.Library("aten", "IMPL")
    theirs.impl("convolution", lambda *_: torch.full((1,), 7.0), "CPU")
    try:
        table = Table("cpu", overrides.count)
        table.enter()
        table.use(True)
        assert F.conv2d(torch.ones(1, 1, 2, 2), torch.ones(1, 1, 1, 1)).item() == 7.0
        table.leave()
        assert F.conv2d(torch.ones(1, 1, 2, 2), torch.ones(1, 1, 1, 1)).item() == 7.0
    finally:
        theirs._destroy()
    assert not replaced()


def test_compiled_functions_and_transforms_go_through_the_table(table: Table) -> None:
    torch.manual_seed(0)
    x, w = whole(6, 4, 9, 9), whole(2, 4, 3, 3)

    def loss(w: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w).square().sum()

    expected, gradient = loss(w), torch.func.grad(loss)(w)
    compiled = torch.compile(loss, backend="aot_eager")
    divide(table, 2, lambda: compiled(w))
    assert torch.equal(compiled(w), expected)
    assert torch.equal(torch.func.grad(loss)(w), gradient)
    _, tangent = torch.func.jvp(loss, (w,), (torch.ones_like(w),))
    assert torch.equal(tangent, gradient.sum())
    ws = torch.stack([w, 2 * w])
    assert torch.equal(torch.func.vmap(loss)(ws)[1], 4 * expected)


def test_modes_of_the_program_see_nothing(table: Table) -> None:
    class Seen(torch.overrides.TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def __torch_function__(self, call: Any, types: Any, given: Any = (), named: Any = None):
            self.names.append(call.__name__)
            return call(*given, **(named or {}))

    def run() -> list[str]:
        with Seen() as seen:
            gradients("2d", exact=True)
        return seen.names

    divide(table, 2, run)
    found = run()
    table.use(False)
    assert found == run()
    table.use(True)


def test_sections_that_are_computed_again_run_in_parts(table: Table) -> None:
    x, w = whole(6, 4, 9, 9), whole(2, 4, 3, 3).requires_grad_()

    def run() -> None:
        for reentrant in (False, True):
            y = checkpoint(F.conv2d, x.requires_grad_(), w, use_reentrant=reentrant)
            y.sum().backward()

    divide(table, 2, run)
    seen: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        observe(patch, lambda x: seen.append(x.size(0)))
        run()
    assert set(seen) == {3}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_dispatch_tables_are_pytorchs_own_afterwards(device: str) -> None:
    def tables() -> list[str]:
        names = ("aten::convolution", "aten::convolution_backward")
        return [torch._C._dispatch_dump_table(name) for name in names]

    before = tables()
    table, other = Table(device, overrides.count), Table(device, overrides.count)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for one in (table, other):
            one.enter()
            one.use(True)
        during = tables()
        table.leave()
        assert tables() == during
        other.leave()
    assert all(one != two for one, two in zip(during, before, strict=True))
    assert tables() == before
    table.use(True)  # nothing, outside
    assert tables() == before
