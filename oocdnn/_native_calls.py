"""What the core says of a call without running it, through cffi. No context is needed."""

from collections.abc import Mapping

from oocdnn._call import Convolution, Slot, Tensor
from oocdnn._native import _check, _ffi, _idle_call, _library, _text


def problem_text(call: Convolution, tensors: Mapping[Slot, Tensor]) -> str:
    """The problem string of a call, as it stands in logs."""
    text = _ffi().new("const char **")
    with _idle_call() as c:
        c.fill(call, tensors)
        _check(_library().oocdnn_problem_text(c.convolution, c.operands, text))
        return _text(text[0])


def saved_bytes(call: Convolution, tensors: Mapping[Slot, Tensor]) -> int:
    """Of what a forward call saves for backward."""
    size = _ffi().new("int64_t *")
    with _idle_call() as c:
        c.fill(call, tensors)
        _check(_library().oocdnn_saved_bytes(c.convolution, c.operands, size))
        return int(size[0])
