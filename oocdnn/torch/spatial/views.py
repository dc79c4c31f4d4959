"""Attributes of split tensors, and views of them that keep the rows of the split axis."""

from typing import Any

import torch

from oocdnn.torch.spatial.layout import Layout
from oocdnn.torch.spatial.operands import aligned
from oocdnn.torch.spatial.tensor import (
    SpatialTensor,
    axis_of,
    functions_named,
    implements,
    implements_each,
    local,
    share,
    without_dispatch,
    wrap,
)


@implements(torch.Tensor.shape.__get__, torch.Tensor.size)
def _size(x: Any, dim: int | None = None) -> Any:
    with without_dispatch():
        shape = torch.Tensor.size(x)
    whole = x.spatial_layout.whole(shape)
    return whole if dim is None else whole[dim]


@implements(torch.numel, torch.Tensor.numel, torch.Tensor.nelement)
def _numel(x: Any) -> int:
    return int(_size(x).numel())


@implements(torch.Tensor.__len__)
def _len(x: Any) -> int:
    return int(_size(x, 0))


_ATTRIBUTES = """
device dtype requires_grad is_leaf grad_fn is_cuda ndim layout is_meta is_sparse is_quantized is_cpu
is_nested output_nr _version names retains_grad is_mps is_xla is_xpu
"""


@implements_each(
    *(attribute.__get__ for attribute in functions_named(_ATTRIBUTES, torch.Tensor)),
    torch.Tensor.requires_grad.__set__,
    *functions_named(
        "dim ndimension element_size is_floating_point is_complex is_signed get_device is_pinned "
        "is_contiguous is_inference new_zeros new_ones new_empty new_full new_tensor __hash__ "
        "retain_grad "
        "register_hook register_post_accumulate_grad_hook",
        torch.Tensor,
    ),
    *functions_named("is_floating_point is_complex is_tensor is_inference", torch),
)
def _attribute(function: Any, *args: Any, **kwargs: Any) -> Any:
    with without_dispatch():
        return function(*args, **kwargs)


@implements(torch.Tensor.grad.__get__)
def _grad(x: Any) -> Any:
    with without_dispatch():
        grad = x.grad
    return None if grad is None else share(grad, x.spatial_layout)


@implements(torch.Tensor.grad.__set__)
def _set_grad(x: Any, value: Any) -> None:
    with without_dispatch():
        x.grad = None if value is None else aligned(value, x.spatial_layout)


@implements(torch.Tensor.backward)
def _backward(x: Any, gradient: Any = None, *args: Any, **kwargs: Any) -> None:
    with without_dispatch():
        torch.Tensor.backward(x, _gradient_of(x, gradient), *args, **kwargs)


def _gradient_of(output: Any, gradient: Any) -> Any:
    """The local rows of a gradient of `output`."""
    if not isinstance(output, SpatialTensor):
        return gradient
    if gradient is None:
        raise ValueError(
            "a split tensor has many elements: backward needs a gradient that is split alike"
        )
    if not isinstance(gradient, SpatialTensor) and gradient.shape == local(output).shape:
        return gradient  # what autograd itself hands over, as to a reentrant checkpoint
    return aligned(gradient, output.spatial_layout)


@implements_each(torch.autograd.grad, torch.autograd.backward)
def _autograd(function: Any, outputs: Any, *args: Any, **kwargs: Any) -> Any:
    """`inputs` and `grad_outputs`, or `grad_tensors` and so on, as torch.autograd has them."""
    alone = isinstance(outputs, torch.Tensor)
    found = [outputs] if alone else list(outputs)
    names = ("inputs", "grad_outputs") if function is torch.autograd.grad else ("grad_tensors",)
    given = dict(zip(names, args, strict=False)) | kwargs
    if len(args) > len(names):
        raise TypeError(
            f"{function.__name__} of split tensors takes {len(names)} arguments by place"
        )
    grads = given.get(names[-1])
    grads = [grads] if grads is None or isinstance(grads, torch.Tensor) else list(grads)
    grads = grads * len(found) if len(grads) == 1 else grads
    given[names[-1]] = [_gradient_of(*pair) for pair in zip(found, grads, strict=True)]
    with without_dispatch():
        results = function(found, **given)
    if results is None:
        return None
    inputs = given["inputs"]
    inputs = [inputs] if isinstance(inputs, torch.Tensor) else inputs
    return tuple(
        wrap(grad, one.spatial_layout)
        if isinstance(one, SpatialTensor) and grad is not None
        else grad
        for one, grad in zip(inputs, results, strict=True)
    )


@implements(torch.Tensor.__repr__, torch.Tensor.__format__)
def _repr(x: Any, *_: Any, **__: Any) -> str:
    layout: Layout = x.spatial_layout
    return (
        f"SpatialTensor(shape={tuple(_size(x))}, axis={layout.dim(len(_size(x)))}, "
        f"lengths={layout.lengths}, process={layout.process}, to_local()={local(x)!r})"
    )


_VIEWS = """
permute transpose swapaxes swapdims movedim moveaxis unsqueeze squeeze narrow select chunk split
unbind unflatten flatten __getitem__ tensor_split
"""


@implements_each(*functions_named(_VIEWS, torch, torch.Tensor))
def _view(function: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Applies the function to two empty tensors that differ in the number of rows, which shows
    where the split axis is in each result."""
    layout: Layout = x.spatial_layout
    shape = list(_size(x))
    if function.__name__ == "squeeze":  # dimensions of one element in the whole tensor
        given = kwargs.get("dim", args[0] if args else tuple(range(len(shape))))
        dims = [axis_of(d, len(shape)) for d in (given if isinstance(given, tuple) else (given,))]
        args, kwargs = (tuple(d for d in dims if shape[d] == 1),), {}
    probes = [_probed(function, shape, layout.axis, more, args, kwargs) for more in (0, 1)]
    alone = isinstance(probes[0], torch.Tensor)
    first, second = ([one] if alone or one is None else list(one) for one in probes)
    axes = [
        None if b is None else _axis_between(a, b, layout.total)
        for a, b in zip(first, second, strict=False)
    ]
    if len(first) != len(second) or None in axes:
        raise NotImplementedError(
            f"{function.__name__} of a split tensor that changes its split axis "
            f"{layout.dim(len(shape))}, or names its length; call it on full_tensor()"
        )
    with without_dispatch():
        found = function(local(x), *args, **kwargs)
    results = [found] if alone else list(found)
    wrapped = []
    for one, like, axis in zip(results, first, axes, strict=True):
        assert axis is not None
        expected = list(like.shape)
        expected[axis] = layout.lengths[layout.process]
        if list(one.shape) != expected:
            raise AssertionError(f"{function.__name__} gave {tuple(one.shape)}, not {expected}")
        wrapped.append(wrap(one, Layout(layout.group, axis, layout.lengths)))
    return wrapped[0] if alone else type(found)(wrapped)


def _probed(function: Any, shape: list[int], axis: int, more: int, args: Any, kwargs: Any) -> Any:
    """The result for a tensor without memory, of some more rows; None where torch refuses those."""
    sizes = list(shape)
    sizes[axis] += more
    with without_dispatch():
        try:
            return function(torch.empty(sizes, device="meta"), *args, **kwargs)
        except RuntimeError:
            if not more:
                raise
            return None


@implements_each(torch.reshape, *functions_named("reshape view expand", torch.Tensor))
def _to_sizes(function: Any, x: Any, *sizes: Any) -> Any:
    """To sizes of the whole tensor, one of which is that of the split axis."""
    layout: Layout = x.spatial_layout
    old = _size(x)
    given = list(sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes)
    if not given or not all(isinstance(size, int) for size in given):
        raise NotImplementedError(f"{function.__name__} of a split tensor to {sizes}")
    axis = layout.axis
    if function.__name__ == "expand":
        kept = len(given) >= -axis and given[axis] in (-1, layout.total)
    else:
        with without_dispatch():  # finds a size of -1, and raises for others that do not fit
            given = list(torch.empty(old, device="meta").reshape(given).shape)
        behind = old[axis:][1:].numel()
        places = (
            place - len(given)
            for place, size in enumerate(given)
            if size == layout.total and torch.Size(given[place + 1 :]).numel() == behind
        )
        axis = next(places, 0)
        kept = axis < 0
    if not kept:
        raise NotImplementedError(
            f"{function.__name__} of a split tensor that changes its split axis "
            f"{layout.dim(len(old))}; call it on full_tensor()"
        )
    given[axis] = layout.lengths[layout.process]
    with without_dispatch():
        found = function(local(x), given)
    return wrap(found, Layout(layout.group, axis, layout.lengths))


def _axis_between(first: Any, second: Any, total: int) -> int | None:
    """The axis, from the end, with `total` elements in the first and one more in the second tensor,
    if they differ in that alone."""
    pairs = list(zip(first.shape, second.shape, strict=True))
    differing = [dim for dim, (a, b) in enumerate(pairs) if a != b]
    if [pairs[dim] for dim in differing] != [(total, total + 1)]:
        return None
    return differing[0] - len(pairs)
