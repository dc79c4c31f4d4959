"""A tensor one of whose axes is split over the processes of a group.

`SpatialTensor` is the part of this process, with the layout of the whole. Functions of torch look
their implementation for split tensors up in a table, which the modules of this package fill; those
that are not in it raise an error, as their result would be wrong.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from oocdnn.torch.spatial.exchange import whole
from oocdnn.torch.spatial.layout import Layout

Handler = Callable[..., Any]

_TABLE: dict[Any, Handler] = {}
without_dispatch = torch._C.DisableTorchFunctionSubclass  # functions compute on local rows within


def implements(*functions: Any) -> Callable[[Handler], Handler]:
    """Enters a handler for functions of torch; it gets their arguments."""

    def enter(handler: Handler) -> Handler:
        _TABLE.update(dict.fromkeys(functions, handler))
        return handler

    return enter


def implements_each(*functions: Any) -> Callable[[Handler], Handler]:
    """Registers one handler for several functions; it gets the function, then the arguments."""

    def enter(handler: Handler) -> Handler:
        for function in functions:
            _TABLE[function] = _of(handler, function)
        return handler

    return enter


def _of(handler: Handler, function: Any) -> Handler:
    return lambda *args, **kwargs: handler(function, *args, **kwargs)


def functions_named(names: str, *owners: Any) -> Iterator[Any]:
    """The functions with these names, of each owner that has one; at least one does."""
    for name in names.split():
        found = [getattr(owner, name) for owner in owners if hasattr(owner, name)]
        # torch.float and torch.cuda, say, are a type and a module.
        yield from (one for one in found if callable(one) or hasattr(one, "__get__"))


class SpatialTensor(torch.Tensor):
    """The rows of this process of a tensor that is split along an axis.

    `shape`, `size` and `numel` are those of the whole tensor. `to_local()` is the part of this
    process, `full_tensor()` the whole one. Both are differentiable.
    """

    spatial_layout: Layout

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        handler = _TABLE.get(func)
        if handler is None:
            name = getattr(func, "__name__", str(func))
            if name == "__get__":
                name = f"Tensor.{getattr(func.__self__, '__name__', '')}"
            raise NotImplementedError(
                f"oocdnn.torch.spatial does not implement {name} for split tensors; call it on "
                "full_tensor(), which is the whole tensor on each process, or, if each row of the "
                "result depends on the same row of the operands only, by spatial.pointwise"
            )
        return handler(*args, **(kwargs or {}))

    def to_local(self) -> Tensor:
        """The rows of this process, as a plain tensor over the same memory."""
        return local(self)

    def full_tensor(self) -> Tensor:
        """The whole tensor, on each process; its gradient is that of each process alike."""
        return whole(local(self), self.spatial_layout)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise NotImplementedError(
            "a split tensor has rows of one process only and cannot be saved or copied; save "
            "to_local() or full_tensor()"
        )


def local(x: Tensor) -> Tensor:
    """The local rows as a plain tensor over the same memory."""
    with without_dispatch():
        return x.as_subclass(torch.Tensor)


def wrap(rows: Tensor, layout: Layout) -> SpatialTensor:
    """A split tensor of which this process has `rows`, a new tensor that nothing else refers to.

    The object itself becomes the split tensor: a view of it could not be changed in place where it
    comes from a function of autograd.
    """
    if type(rows) is not torch.Tensor:
        return share(rows, layout)
    rows.__class__ = SpatialTensor
    found: Any = rows
    found.spatial_layout = layout
    return found  # type: ignore[no-any-return]


def share(rows: Tensor, layout: Layout) -> SpatialTensor:
    """A split tensor of which this process has `rows`, over their memory."""
    with without_dispatch():
        found: Any = rows.as_subclass(SpatialTensor)
    found.spatial_layout = layout
    return found  # type: ignore[no-any-return]


def layout_of(x: Any, function: Any) -> Layout:
    """The layout of an operand that has to be split. Raises TypeError for others."""
    if not isinstance(x, SpatialTensor):
        raise TypeError(
            f"{function.__name__} of a plain tensor with a split one: split its first operand too, "
            "or call it on full_tensor()"
        )
    return x.spatial_layout


def axis_of(dim: int, ndim: int) -> int:
    """A dimension, counted from the first. Raises IndexError as torch does."""
    if not -ndim <= dim < ndim:
        raise IndexError(f"dimension {dim} of a tensor of {ndim} dimensions")
    return dim % ndim


def per_axis(value: Any, rank: int) -> tuple[int, ...]:
    """One number for all spatial axes, or one for each, as a number for each."""
    found = (value,) if isinstance(value, int) else tuple(value)
    return found * rank if len(found) == 1 else found


def split_in(*values: Any) -> Iterator[SpatialTensor]:
    """The split tensors among arguments, also within tuples and lists."""
    for value in values:
        if isinstance(value, SpatialTensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from split_in(*value)
