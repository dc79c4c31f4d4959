"""The backward pass of a convolution in parts: exact on integers."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from hypothesis import given, settings
from hypothesis import strategies as st

from oocdnn.torch.limit.parts import NODE, Parted


@settings(deadline=None)
@given(
    dimensions=st.integers(1, 3),
    batch=st.integers(1, 7),
    parts=st.integers(2, 9),
    groups=st.integers(1, 2),
    stride=st.integers(1, 2),
    transposed=st.booleans(),
    last=st.booleans(),
    kind=st.sampled_from([torch.float32, torch.bfloat16]),
    needs=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_parts_give_what_the_whole_gives(
    dimensions: int,
    batch: int,
    parts: int,
    groups: int,
    stride: int,
    transposed: bool,
    last: bool,
    kind: torch.dtype,
    needs: tuple[bool, bool, bool],
) -> None:
    if not any(needs[:2]):
        return
    torch.manual_seed(0)
    c, k = 2 * groups, 2 * groups
    order = {2: torch.channels_last, 3: torch.channels_last_3d}.get(dimensions)
    last = last and order is not None

    def integers(*size: int) -> torch.Tensor:
        made = torch.randint(-2, 3, size).to(kind)
        return made.to(memory_format=order) if last and made.dim() > 2 else made

    x, w, b = (
        integers(batch, c, *[6] * dimensions),
        integers(c, k // groups, *[3] * dimensions),
        integers(k),
    )
    for tensor, need in zip((x, w, b), needs, strict=True):
        tensor.requires_grad_(need)
    wanted = [tensor for tensor in (x, w, b) if tensor.requires_grad]
    options = ([stride] * dimensions, [1] * dimensions, [1] * dimensions, transposed)
    rest = ([0] * dimensions, groups)
    seen = []

    def unpack(tensor: torch.Tensor) -> torch.Tensor:
        node = torch._C._current_autograd_node()
        if tensor.size() != x.size() or node.name() != NODE:
            return tensor
        seen.append(node)
        return Parted(tensor, parts)

    plain = torch.convolution(x, w, b, *options, *rest)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach(), unpack):
        parted = torch.convolution(x, w, b, *options, *rest)
    dy = torch.randint(-2, 3, plain.size()).to(kind)
    expected = torch.autograd.grad(plain, wanted, dy)
    found = torch.autograd.grad(parted, wanted, dy)
    for a, e in zip(found, expected, strict=True):
        assert type(a) is torch.Tensor
        assert torch.equal(a, e)
    assert seen


def test_other_operations_see_a_plain_tensor() -> None:
    x = torch.arange(6.0)
    parted = Parted(x, 2)
    assert torch.equal(parted + 1, x + 1)
    assert type(parted.detach()) is Parted
    assert type(parted * parted) is torch.Tensor
