"""Autograd kernels of operators: reverse and forward mode, under function transforms too.

`torch.library.register_autograd` records no forward-mode tangents: a call whose operands have
tangents and need no gradients returns a result without one, and `torch.func` refuses the operator.
A kernel registered here is a function of one autograd level. It calls the operator again below that
level, where the kernel runs for the next level, as the kernels of torch's own operators do. The
keys are those of single devices, which take precedence over the kernel for all of them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

_LIBRARY = torch.library.Library("oocdnn", "FRAGMENT")
_DEVICES = ("CPU", "CUDA", "Meta")


class Derivatives(NamedTuple):
    """The derivatives of an operator with one result.

    keep(ctx, inputs, output) saves what the other two read. backward(ctx, gradient) returns as many
    gradients as ctx.needs_input_grad has entries: those of the inputs, and one None for the call's
    dispatch keys. tangent(ctx, *tangents) returns the tangent of the result from those of the
    inputs, None where an input has none.
    """

    keep: Callable[..., None]
    backward: Callable[..., Any]
    tangent: Callable[..., Any]


def in_forward_mode() -> bool:
    """True where operands may have tangents: inside `forward_ad.dual_level` and transforms of
    torch.func. Compiled code enters the level of a transform where Python does not see it."""
    transformed = torch._C._functorch.peek_interpreter_stack() is not None
    return transformed or bool(forward_ad._current_level >= 0)


def register(operator: Any, derivatives: Derivatives) -> None:
    """Makes `derivatives` those of `operator`, which `torch.library.custom_op` made."""
    overload = operator._opoverload
    name = overload._schema.name.split("::")[1]

    def below(keyset: Any, *inputs: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return overload.redispatch(keyset & torch._C._after_autograd_keyset, *inputs)

    def forward(*inputs: Any) -> Any:
        # `apply` disables both modes, which the levels below need.
        with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
            return below(inputs[-1], *inputs[:-1])

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.set_materialize_grads(False)
        derivatives.keep(ctx, inputs[:-1], output)

    def backward(ctx: Any, gradient: Any) -> Any:
        if gradient is None:
            return (None,) * len(ctx.needs_input_grad)
        return derivatives.backward(ctx, gradient)

    def jvp(ctx: Any, *tangents: Any) -> Any:
        return derivatives.tangent(ctx, *tangents[:-1])

    # Its inputs are those of the operator, then the dispatch keys; grad_fn shows its name.
    methods = {"forward": forward, "setup_context": setup_context, "backward": backward, "jvp": jvp}
    level: Any = type(
        f"oocdnn_{name}_",
        (_SingleLevelFunction,),
        {key: staticmethod(method) for key, method in methods.items()},
    )

    def kernel(keyset: Any, *inputs: Any) -> Any:
        tensors = (one for one in inputs if isinstance(one, torch.Tensor))
        records = torch.is_grad_enabled() and any(one.requires_grad for one in tensors)
        if not (records or in_forward_mode()):
            return below(keyset, *inputs)
        with enable_single_level_autograd_function():
            return level.apply(*inputs, keyset)

    for device in _DEVICES:
        _LIBRARY.impl(name, kernel, f"Autograd{device}", with_keyset=True)
