"""torch tensors given to the functions of oocdnn itself: autograd knows what is written to them,
and nothing is read that is not theirs."""

from __future__ import annotations

import re

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from pytorch.cases import DTYPES, Case
from torch._subclasses import FakeTensorMode
from torch.nn import functional as F

import oocdnn

pytestmark = pytest.mark.usefixtures("ctx")


def filled(*shape: int, dtype=torch.float32, salt: int = 0) -> torch.Tensor:
    return Case(2, False, (), (), None, {}, dtype).filled(shape, salt)


def x_of(rank: int, dtype=torch.float32) -> torch.Tensor:
    return filled(2, 4, *(5,) * rank, dtype=dtype)


def w_of(rank: int, dtype=torch.float32) -> torch.Tensor:
    return filled(4, 4, *(3,) * rank, dtype=dtype, salt=1)


def forward(rank):
    name = f"conv{rank}d"
    return lambda d, out: getattr(oocdnn, name)(x_of(rank, d), w_of(rank, d), padding=1, out=out)


def transposed(rank):
    name = f"conv_transpose{rank}d"
    return lambda d, out: getattr(oocdnn, name)(x_of(rank, d), w_of(rank, d), padding=1, out=out)


def backward_data(d, out):
    return oocdnn.conv_backward_data(x_of(2, d), w_of(2, d), (2, 4, 5, 5), padding=1, out=out)


def backward_filter(d, out):
    return oocdnn.conv_backward_filter(x_of(2, d), x_of(2, d), (4, 4, 3, 3), padding=1, out=out)


def backward_bias(d, out):
    return oocdnn.conv_backward_bias(x_of(2, d), out=out)


def fused(d, out):
    keywords = {"padding": 1, "activation": "relu", "pool": 1}
    return oocdnn.conv_bias_act_pool(x_of(2, d), w_of(2, d), out=out, **keywords)


def chain(d, out):
    links = [oocdnn.Link(w_of(2, d), padding=1) for _ in range(2)]
    return oocdnn.conv_chain(x_of(2, d), links, out=out)


WRITERS = {
    **{f"conv{rank}d": (forward(rank), (2, 4, *(5,) * rank)) for rank in (1, 2, 3)},
    **{f"conv_transpose{rank}d": (transposed(rank), (2, 4, *(5,) * rank)) for rank in (1, 2, 3)},
    "conv_backward_data": (backward_data, (2, 4, 5, 5)),
    "conv_backward_filter": (backward_filter, (4, 4, 3, 3)),
    "conv_backward_bias": (backward_bias, (4,)),
    "conv_bias_act_pool": (fused, (2, 4, 5, 5)),
    "conv_chain": (chain, (2, 4, 5, 5)),
}


def plain(out):
    return out


def part(out):
    """The first half of a larger tensor, which counts for the whole."""
    return torch.cat([out, out])[: out.shape[0]]


def detached(out):
    return out.detach()


@pytest.mark.parametrize("look", [plain, part, detached])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", WRITERS)
def test_autograd_knows_what_is_written(name, dtype, look):
    write, shape = WRITERS[name]
    out = look(torch.ones(shape, dtype=dtype))
    seen = out if out._base is None else out._base
    factor = torch.ones((), dtype=dtype, requires_grad=True)
    y = (factor * out).sum()  # whose gradient reads out
    before = seen._version
    assert write(dtype, out) is out
    assert out._version == seen._version > before
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


@pytest.mark.parametrize("name", WRITERS)
def test_autograd_does_not_mind_what_is_read(name):
    """Operands, and results that are new, count no write."""
    write, _ = WRITERS[name]
    assert write(torch.float32, None)._version == 0
    x, w = x_of(2), w_of(2)
    oocdnn.conv2d(x, w)
    assert (x._version, w._version) == (0, 0)


def test_gradients_together():
    x, w, b = x_of(2), w_of(2), torch.zeros(4)
    z, saved = oocdnn.conv_bias_act_pool(
        x, w, b, padding=1, activation="relu", pool=1, save_for_backward=True
    )
    out = {"dx": torch.zeros_like(x), "dw": torch.zeros_like(w), "db": torch.zeros_like(b)}
    oocdnn.conv_bias_act_pool_backward(z, saved, x=x, w=w, needs=("dx", "dw", "db"), out=out)
    assert all(one._version > 0 for one in out.values())


def test_what_requires_gradients_is_not_written():
    leaf = torch.zeros(2, 4, 5, 5, requires_grad=True)
    with pytest.raises(oocdnn.Unsupported, match="out requires gradients"):
        oocdnn.conv2d(x_of(2), w_of(2), padding=1, out=leaf)
    with pytest.raises(oocdnn.Unsupported, match="out requires gradients"):
        oocdnn.conv2d(x_of(2), w_of(2), padding=1, out=(leaf * 2)[:])
    with torch.no_grad():
        oocdnn.conv2d(x_of(2), w_of(2), padding=1, out=leaf)
    assert leaf._version == 1


def test_inference_tensors_are_written():
    with torch.inference_mode():
        out = torch.zeros(2, 4, 5, 5)
        oocdnn.conv2d(x_of(2), w_of(2), padding=1, out=out)
    assert torch.equal(out, F.conv2d(x_of(2), w_of(2), padding=1))


def freed(tensor):
    tensor.untyped_storage().resize_(0)


def halved(tensor):
    tensor.untyped_storage().resize_(tensor.untyped_storage().nbytes() - 1)


@pytest.mark.parametrize("spoil", [freed, halved])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("which", ["x", "w", "b", "residual", "out"])
def test_memory_that_was_freed_is_not_read(which, dtype, spoil):
    """As FSDP does between the calls of a module."""
    x, w = x_of(2, dtype), w_of(2, dtype)
    others = {"residual": torch.zeros_like(x), "out": torch.zeros_like(x)}
    tensors = {"x": x, "w": w, "b": torch.zeros(4, dtype=dtype), **others}
    spoil(tensors[which])
    with pytest.raises(oocdnn.InvalidProblem, match=rf"{which} reaches to byte \d+ of a storage"):
        oocdnn.conv2d(**tensors, padding=1)


@pytest.mark.parametrize("function", [oocdnn.torch.conv2d, oocdnn.torch.conv_transpose2d])
def test_freed_memory_is_not_read_through_operators(function):
    x, w = x_of(2), w_of(2)
    freed(w)
    with pytest.raises(oocdnn.InvalidProblem, match="w reaches"):
        function(x, w)


def test_views_beyond_what_is_left_of_a_storage():
    whole = filled(4, 4, 5, 5)
    views = {
        "end": whole[2:],
        "rows": whole[..., ::2, :],
        "expanded": whole[2:3].expand(2, 4, 5, 5),
    }
    begin = whole[:2]
    whole.untyped_storage().resize_(begin.numel() * 4)
    for name, view in views.items():
        with pytest.raises(oocdnn.InvalidProblem, match="x reaches"):
            oocdnn.conv2d(view, w_of(2))
        assert name
    assert torch.equal(oocdnn.conv2d(begin, w_of(2)), F.conv2d(begin.clone(), w_of(2)))


def test_storages_can_still_be_resized():
    """Looking at a tensor changes nothing about it: FSDP frees and fills it between calls."""
    x, w = x_of(2), w_of(2).requires_grad_()
    keep, size = w.detach().clone(), w.untyped_storage().nbytes()
    for _ in range(2):
        assert torch.equal(oocdnn.torch.conv2d(x, w), F.conv2d(x, keep))
        w.untyped_storage().resize_(0)
        w.untyped_storage().resize_(size)
        with torch.no_grad():
            w.copy_(keep)


class Logged(torch.Tensor):
    """A subclass that sees each operator."""

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def fake():
    with FakeTensorMode():
        return torch.empty(2, 4, 5, 5)


ODD = {
    "meta": (lambda: torch.empty(2, 4, 5, 5, device="meta"), oocdnn.Unsupported, "x is on meta"),
    "fake": (fake, oocdnn.Unsupported, "x is of type FakeTensor"),
    "subclass": (lambda: x_of(2).as_subclass(Logged), oocdnn.Unsupported, "x is of type Logged"),
    "negative": (
        lambda: torch.complex(x_of(2), x_of(2)).conj().imag,
        oocdnn.InvalidProblem,
        "x.resolve_neg()",
    ),
    "zero": (
        lambda: torch._efficientzerotensor((2, 4, 5, 5)),
        oocdnn.InvalidProblem,
        "x reaches to byte 800",
    ),
    "sparse": (lambda: x_of(2).to_sparse(), oocdnn.InvalidDtype, "in layout torch.sparse_coo"),
    "mkldnn": (lambda: x_of(2).to_mkldnn(), oocdnn.InvalidDtype, "in layout torch._mkldnn"),
    "complex": (lambda: x_of(2).to(torch.complex64), oocdnn.InvalidDtype, "torch.complex64"),
    "conjugate": (
        lambda: x_of(2).to(torch.complex64).conj(),
        oocdnn.InvalidDtype,
        "torch.complex64",
    ),
    "quantized": (
        lambda: torch.quantize_per_tensor(x_of(2), 1.0, 0, torch.qint8),
        oocdnn.InvalidDtype,
        "torch.qint8",
    ),
    "jagged": (
        lambda: torch.nested.nested_tensor([x_of(2)[0], x_of(2)[1]], layout=torch.jagged),
        oocdnn.Unsupported,
        "x is a nested tensor",
    ),
    "nested": (
        lambda: torch.nested.nested_tensor([x_of(2)[0], x_of(2)[1]]),
        oocdnn.Unsupported,
        "x is a nested tensor",
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ODD)
def test_tensors_without_plain_memory_are_refused(kind):
    make, error, words = ODD[kind]
    with pytest.raises(error, match=re.escape(words)):
        oocdnn.conv2d(make(), w_of(2))


@pytest.mark.parametrize("make", [ODD["negative"][0], ODD["zero"][0]], ids=["negative", "zero"])
def test_operators_resolve_what_torch_resolves(make):
    x = make()
    assert torch.equal(oocdnn.torch.conv2d(x, w_of(2)), F.conv2d(x, w_of(2)))


def test_parameters_and_plain_subclasses_are_served():
    class Named(torch.Tensor):
        pass

    with torch.no_grad():
        w = torch.nn.Parameter(w_of(2))
        assert torch.equal(oocdnn.conv2d(x_of(2).as_subclass(Named), w), F.conv2d(x_of(2), w))


def test_weights_of_normalization():
    sums, weight = oocdnn.Sums(), torch.arange(4.0)
    oocdnn.conv2d(x_of(2), w_of(2), sums=sums)
    expected = oocdnn.group_norm(sums, 2, weight.numpy()).table
    for own in (weight.clone(), weight.clone().to("cpu", torch.float64)):
        size = own.untyped_storage().nbytes()
        assert (oocdnn.group_norm(sums, 2, own).table == expected).all()
        own.untyped_storage().resize_(0)
        with pytest.raises(oocdnn.InvalidProblem, match="its memory was freed"):
            oocdnn.group_norm(sums, 2, own)
        own.untyped_storage().resize_(size)
    assert (oocdnn.group_norm(sums, 2, weight.requires_grad_()).table == expected).all()
    with pytest.raises(oocdnn.Unsupported, match=r"inside a transform of torch\.func"):
        torch.func.vmap(lambda one: one * oocdnn.group_norm(sums, 2, one).table)(weight[None])
