"""Gradients written in place of those that they are computed from: the very bits, and never over a
gradient that something else holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch import nn
from torch.nn import functional as F

from oocdnn.torch.limit import in_place, parts
from oocdnn.torch.limit.overrides import overrides
from oocdnn.torch.limit.ownership import Ownership
from oocdnn.torch.limit.table import Table

Tensor = torch.Tensor


GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=GPU)])
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    """Tensors are made on its device."""
    table = Table(request.param, overrides.count)
    table.enter()
    table.use(True)
    with torch.device(request.param):
        yield table
    table.leave()


class Watched:
    """Runs backward passes of a table's step, and notes which gradients took the place of another
    tensor.

    Args:
        unpack: Gives what nodes read of the tensors that they saved.
        place: Name of that other tensor.
    """

    def __init__(
        self, table: Table, unpack: Callable[[Tensor], Tensor] = lambda t: t, place: str = "dy"
    ) -> None:
        self.table, self._given, self._place = table, unpack, place
        self.over: list[bool] = []

    def __enter__(self) -> Watched:
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(self.table, "run", self._run)
        self._hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: t, self._unpack)
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._hooks.__exit__(*error)
        self._patch.undo()

    def _unpack(self, tensor: Tensor) -> Tensor:
        self.table.serves_backward()
        return self._given(tensor)

    def _run(self, signature: Any, most: int, operation: Callable[[int], Any]) -> Any:
        cells = dict(zip(operation.__code__.co_freevars, operation.__closure__ or (), strict=True))
        result = operation(min(2, most))
        if "dy" in cells:
            dx = result[0] if isinstance(result, tuple) else result
            address = cells[self._place].cell_contents.data_ptr()
            self.over.append(dx is not None and dx.data_ptr() == address)
        return result


def compared(watched: Watched, gradient: Callable[[], Tensor]) -> list[bool]:
    """Asserts that a gradient has the bits and strides of plain PyTorch; which were overwritten."""
    watched.table.use(False)
    expected = gradient()
    watched.table.use(True)
    with watched:
        found = gradient()
    assert found.stride() == expected.stride()
    assert torch.equal(found, expected)
    return watched.over


ELEMENTWISE: dict[str, Callable[[Tensor], Tensor]] = {
    "elu": lambda x: F.elu(x, 0.7),
    "elu in place": lambda x: F.elu(x + 0, 0.7, inplace=True),
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "hardsigmoid": F.hardsigmoid,
    "hardtanh": F.hardtanh,
    "relu6": F.relu6,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.3),
    "relu": F.relu,
    "relu in place": lambda x: F.relu(x + 0, inplace=True),
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "softplus": F.softplus,
    "tanh": torch.tanh,
    "threshold": lambda x: F.threshold(x, 0.2, 0.5),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("last", [False, True])
def test_elementwise_gradients_have_the_bits_of_plain_pytorch(
    table: Table, name: str, kind: torch.dtype, last: bool
) -> None:
    torch.manual_seed(0)
    order = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(2, 3, 5, 4).to(kind).to(memory_format=order).requires_grad_()
    scale = torch.randn(2, 3, 5, 4).to(kind).to(memory_format=order)

    def gradient() -> Tensor:
        (dx,) = torch.autograd.grad((ELEMENTWISE[name](x) * scale).sum(), x)
        return dx

    assert compared(Watched(table), gradient) == [True]


def test_every_operation_is_tested() -> None:
    tested = {f"{name.split()[0]}_backward" for name in ELEMENTWISE}
    tested = tested - {"relu_backward", "relu6_backward"} | {"threshold_backward"}
    assert tested == set(in_place.KERNELS) - {"max_pool2d_with_indices_backward"}


held: list[object] = []


def keeps(view: Callable[[Tensor], object]) -> Callable[[Tensor], Tensor]:
    def program(y: Tensor) -> Tensor:
        y.register_hook(lambda gradient: held.append(view(gradient)))
        return y * 2

    return program


def branched(y: Tensor) -> Tensor:
    return (y + torch.relu(y * 1)) * 2


def viewed(y: Tensor) -> Tensor:
    return torch.cat([one * 2 for one in y.chunk(2, 1)], 1).view(-1)


class Keeping(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        held.append(made := gradient * 2)
        return made


def after(y: Tensor) -> Tensor:
    y.grad_fn.register_hook(lambda made, given: held.append((made, given)))
    return y * 2


def before(y: Tensor) -> Tensor:
    y.grad_fn.register_prehook(held.append)
    return y * 2


def retained(y: Tensor) -> Tensor:
    y.retain_grad()
    held.append(y)
    return y * 2


HOLDING: dict[str, Callable[[Tensor], Tensor]] = {
    "the tensor": keeps(lambda gradient: gradient),
    "a view": keeps(lambda gradient: gradient.view(-1)),
    "a detached tensor": keeps(lambda gradient: gradient.detach()),
    "its storage": keeps(lambda gradient: gradient.untyped_storage()),
    "a capsule": keeps(lambda gradient: torch.utils.dlpack.to_dlpack(gradient.detach())),
    "a function": Keeping.apply,
    "a hook after the node": after,
    "a hook before the node": before,
    "an expanded one": lambda y: y,
}
OTHERS: dict[str, Callable[[Tensor], Tensor]] = {
    "nothing": lambda y: y * 2,
    "a branch": branched,
    "views": viewed,
    "retained": retained,
}


def passes(name: str, operation: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """A backward pass through the operation; its gradients, with those that are held."""
    torch.manual_seed(0)
    held.clear()
    x = torch.randn(2, 2, 3, 3, requires_grad=True)
    y = operation(x)
    (HOLDING | OTHERS)[name](y).sum().backward()
    found = [x.grad]
    for one in held:
        if isinstance(one, Tensor):
            found.append(one if one.grad is None else one.grad)
        elif isinstance(one, torch.UntypedStorage):
            found.append(torch.empty(0, device=one.device).set_(one))
        elif isinstance(one, tuple):
            found.extend(each for pair in one for each in (pair if type(pair) is tuple else [pair]))
        else:
            found.append(torch.utils.dlpack.from_dlpack(one))
    return [one.detach().clone().reshape(-1) for one in found if one is not None]


def smooth(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def convolved(x: Tensor) -> Tensor:
    return F.conv2d(x, torch.eye(2, device=x.device).view(2, 2, 1, 1) * 3)


@pytest.mark.parametrize("operation", [torch.relu, smooth, convolved])
@pytest.mark.parametrize("name", HOLDING | OTHERS)
def test_gradients_that_something_holds_are_left_alone(
    table: Table, name: str, operation: Callable[[Tensor], Tensor]
) -> None:
    table.use(False)
    expected = passes(name, operation)
    table.use(True)
    with Watched(table) as watched:
        found = passes(name, operation)
    assert watched.over
    if name in HOLDING:
        assert not any(watched.over)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
    held.clear()


@pytest.mark.parametrize("operation", [torch.relu, convolved])
def test_the_gradient_of_a_whole_pass_is_overwritten(
    table: Table, operation: Callable[[Tensor], Tensor]
) -> None:
    with Watched(table) as watched:
        passes("nothing", operation)
    assert watched.over == [True]


@pytest.mark.parametrize("operation", [torch.relu, convolved])
def test_a_gradient_that_the_program_gives_is_left_alone(
    table: Table, operation: Callable[[Tensor], Tensor]
) -> None:
    x = torch.randn(2, 2, 3, 3, requires_grad=True)
    dy = torch.randn(2, 2, 3, 3)
    kept = dy.clone()
    with Watched(table) as watched:
        operation(x).backward(dy)
    assert watched.over == [False]
    assert torch.equal(dy, kept)


def test_a_pass_that_is_differentiated_itself_writes_over_nothing(table: Table) -> None:
    x = torch.randn(2, 2, 3, 3, requires_grad=True)
    with Watched(table) as watched:
        (dx,) = torch.autograd.grad((torch.relu(x) * x).sum(), x, create_graph=True)
        dx.sum().backward()
    assert not any(watched.over[:1])


def test_other_passes_and_streams_write_over_nothing(table: Table) -> None:
    with Watched(table) as watched:
        table.one_stream = False
        passes("nothing", torch.relu)
    assert watched.over == [False]
    table.one_stream = True
    x = torch.randn(2, 2, 3, 3, requires_grad=True)
    y = torch.relu(x) * 2  # no saved tensor of it is the step's
    with Watched(table) as watched:
        y.sum().backward()
    assert not any(watched.over)  # on a GPU's thread it is not looked up at all


@pytest.mark.parametrize("operation", [torch.relu, convolved])
@pytest.mark.parametrize("last", [False, True])
def test_a_gradient_laid_out_otherwise_is_left_alone(
    table: Table, operation: Callable[[Tensor], Tensor], last: bool
) -> None:
    orders = [torch.contiguous_format, torch.channels_last]
    torch.manual_seed(0)
    x = torch.randn(2, 2, 4, 4).to(memory_format=orders[last]).requires_grad_()
    scale = torch.randn(2, 2, 4, 4).to(memory_format=orders[not last])

    def gradient() -> Tensor:
        (dx,) = torch.autograd.grad((operation(x) * scale).sum(), x)
        return dx

    assert compared(Watched(table), gradient) == [False]


class Expanding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return (gradient.sum() * 2).expand_as(gradient)


def test_a_gradient_of_one_element_for_all_is_left_alone(table: Table) -> None:
    x = torch.tensor(0.5, requires_grad=True)
    with Watched(table) as watched:
        Expanding.apply(F.gelu(x.expand(2, 3))).sum().backward()
    assert watched.over == [False]
    table.use(False)
    (expected,) = torch.autograd.grad(F.gelu(x), x)
    table.use(True)
    torch.testing.assert_close(x.grad, 6 * 12 * expected)


POOLS: dict[str, dict[str, Any]] = {
    "plain": {"kernel_size": 2},
    "overlapping": {"kernel_size": 3, "stride": 2, "padding": 1},
    "ceil": {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    "dilated": {"kernel_size": 2, "stride": 1, "dilation": 2},
}


def form_only(tensor: Tensor) -> Tensor:
    """As what a pool reads of its input, without values; indices as they are."""
    return torch.full_like(tensor, 7.0) if tensor.is_floating_point() else tensor


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("last", [False, True])
def test_gradients_of_pools_take_the_place_of_an_input_without_values(
    table: Table, name: str, kind: torch.dtype, last: bool
) -> None:
    torch.manual_seed(0)
    order = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(2, 3, 9, 8).to(kind).to(memory_format=order).requires_grad_()

    def gradient() -> Tensor:
        y = F.max_pool2d(x * 1, **POOLS[name])
        torch.manual_seed(1)
        (dx,) = torch.autograd.grad(y, x, torch.randn_like(y))
        return dx

    assert compared(Watched(table, form_only, "x"), gradient)[0]


@pytest.mark.parametrize(
    ("size", "unpack"),
    [
        ((2, 3, 8, 8), lambda tensor: tensor),
        ((2, 3, 8, 8), lambda tensor: tensor.detach()),
        ((2, 1, 8, 8), form_only),  # dense in both orders
        ((2, 3, 8, 8), lambda tensor: form_only(tensor).transpose(2, 3)),  # in neither
    ],
)
def test_inputs_of_pools_that_something_holds_are_left_alone(
    table: Table, size: tuple[int, ...], unpack: Callable[[Tensor], Tensor]
) -> None:
    x = torch.randn(size, requires_grad=True)
    y = x * 1
    values = y.detach().clone()
    with Watched(table, unpack, "x") as watched:
        F.max_pool2d(y, 2).sum().backward()
    assert watched.over == [False]
    assert torch.equal(y, values)


@pytest.mark.parametrize("name", sorted(ELEMENTWISE.keys() - {"hardsigmoid"}))  # it has none
def test_second_derivatives_have_the_bits_of_plain_pytorch(table: Table, name: str) -> None:
    """Their nodes run the operations of first ones, and read the gradient again."""

    def gradients() -> list[Tensor]:
        torch.manual_seed(0)
        x = torch.randn(2, 3, 5, 4, requires_grad=True)
        w = torch.randn(4, 4, requires_grad=True)
        (dx,) = torch.autograd.grad(ELEMENTWISE[name](x @ w).sum(), x, create_graph=True)
        (dx.square().mean() + 0 * w.sum()).backward()
        assert w.grad is not None
        return [w.grad]

    table.use(False)
    expected = gradients()
    table.use(True)
    with Watched(table):
        found = gradients()
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


class Foreign(torch.autograd.Function):
    """Its gradient is in memory of others."""

    memory = None

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        Foreign.memory[...] = 2 * gradient.numpy()
        return torch.from_numpy(Foreign.memory)


@pytest.mark.parametrize("operation", [torch.relu, smooth, convolved])
def test_memory_of_others_is_left_alone(
    table: Table, operation: Callable[[Tensor], Tensor]
) -> None:
    numpy = pytest.importorskip("numpy")
    if torch.get_default_device().type != "cpu":
        pytest.skip("NumPy has no arrays on a GPU")
    x = torch.randn(2, 2, 3, 3, requires_grad=True)
    Foreign.memory = numpy.zeros((2, 2, 3, 3), numpy.float32)
    with Watched(table) as watched:
        Foreign.apply(operation(x)).sum().backward()
    assert watched.over == [False]
    assert (Foreign.memory == 2).all()


def test_parts_that_lack_memory_go_on_where_they_were(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written over the gradient is not computed again."""
    torch.manual_seed(0)
    x = torch.randint(-2, 3, (8, 2, 3, 3)).float().requires_grad_()
    w = torch.randint(-2, 3, (2, 2, 1, 1)).float().requires_grad_()

    def gradients() -> list[Tensor]:
        return list(torch.autograd.grad((F.conv2d(x, w) * 2).sum(), (x, w)))

    table.use(False)
    expected = gradients()
    table.use(True)
    own, seen = parts._BACKWARD, []

    class Fails:
        def redispatch(self, keys: Any, dy: Tensor, x: Tensor, *given: Any) -> Any:
            seen.append(x.size(0))
            if len(seen) in (2, 4):
                raise torch.cuda.OutOfMemoryError("CUDA out of memory")
            return own.redispatch(keys, dy, x, *given)

    monkeypatch.setattr(parts, "_BACKWARD", Fails())
    table.ran = []
    F.conv2d(x, w)
    table.ran = None
    table.run = partial(_in_two, table.run)
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: t, _served(table))
    with hooks:
        found = gradients()
    assert seen == [4, 4, 2, 2, 1, 1]
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def _in_two(run: Callable[..., Any], signature: Any, most: int, operation: Any) -> Any:
    def doubled(number: int) -> Any:
        return operation(2 * number)

    return run(signature, most, doubled if signature[0] == "backward" else operation)


def _served(table: Table) -> Callable[[Tensor], Tensor]:
    def unpack(tensor: Tensor) -> Tensor:
        table.serves_backward()
        return tensor

    return unpack


def test_what_cannot_be_told_apart_is_never_overwritten() -> None:
    """As in a PyTorch that counts otherwise."""
    ask = Ownership()
    one, two = torch.ones(1), torch.ones(1)

    def same() -> None:
        ask(one)
        ask(two)

    def viewed() -> None:
        ask(one.view(-1))

    def once() -> None:
        ask(one)

    told = []
    for alone, held in ((same, same), (same, viewed), (once, viewed), (same, lambda: None)):
        ask.learn(alone, held)
        told.append(ask(one))
    assert told == [False, True, False, False]


def test_each_form_of_kernels_has_learnt(table: Table) -> None:
    for owned in (in_place.owned, in_place.owned_named, in_place.owned_input, parts.owned):
        assert owned._alone is not None


def overwritten(table: Table) -> list[bool]:
    """Whether a pass overwrites a gradient, with the kernels of a table of its own."""
    table.enter()
    table.use(True)
    with Watched(table) as watched:
        passes("nothing", torch.relu)
    table.leave()
    return watched.over


def test_without_a_further_thread_nothing_is_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    from oocdnn.torch.limit import overrides as module

    def refuses(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuses)
    monkeypatch.setattr(in_place.owned, "_alone", None)
    fresh = module._Overrides()
    fresh.count("CPU", 1)
    try:
        over = overwritten(Table("cpu", lambda key, more: None))
    finally:
        fresh.count("CPU", -1)
    assert over == [False]


def test_kernels_learn_anew_where_the_interpreter_counts_otherwise() -> None:
    from torch._C._dynamo import eval_frame

    overrides.count("CPU", 1)
    overrides.count("CPU", -1)
    before = eval_frame.set_eval_frame(False)  # as where a compiled function is active
    try:
        over = overwritten(Table("cpu", overrides.count))
    finally:
        eval_frame.set_eval_frame(before)
    assert over == [True]


def test_a_kernel_of_another_library_is_left_alone() -> None:
    theirs = torch.library.Library("aten", "IMPL")
    theirs.impl("silu_backward", lambda dy, x: torch.full_like(dy, 7.0), "CPU")
    try:
        table = Table("cpu", overrides.count)
        table.enter()
        table.use(True)
        x = torch.ones(3, requires_grad=True)
        F.silu(x).sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [7.0, 7.0, 7.0]
        table.leave()
    finally:
        theirs._destroy()


def test_modules_train_to_the_same_bits(table: Table) -> None:
    def trained(over: bool) -> list[Tensor]:
        torch.manual_seed(0)
        net = nn.Sequential(
            *(nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(inplace=True)),
            *(nn.Conv2d(3, 3, 3, padding=1), nn.GELU(), nn.Hardtanh(), nn.Conv2d(3, 3, 1)),
        )
        x = torch.randn(4, 3, 8, 8)
        for _ in range(3):
            if over:
                with Watched(table) as watched:
                    net(x).square().sum().backward()
                assert watched.over.count(True) >= 3
            else:
                net(x).square().sum().backward()
        return [one.grad for one in net.parameters() if one.grad is not None]

    # Filter gradients of convolutions in parts are other sums.
    first, *_, last = trained(over=True)
    table.use(False)
    one, *_, other = trained(over=False)
    table.use(True)
    torch.testing.assert_close(first, one, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(last, other, rtol=1e-5, atol=1e-5)
