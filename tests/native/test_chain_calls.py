"""The C function of chains, as a program in C calls it wrongly."""

import numpy as np
import pytest

from oocdnn._core import native
from oocdnn._core.cdefs import Direction, DType, Status

FFI, NULL = native._ffi(), native._ffi().NULL


@pytest.mark.parametrize(("link", "name"), [(1, "x"), (2, "x"), (0, "y"), (1, "y")])
def test_what_is_between_two_links_is_nobodys(link, name):
    lib = native._library()
    links, operands = FFI.new("oocdnn_convolution[3]"), FFI.new("oocdnn_operands[3]")
    kept = []

    def tensor(*shape: int):
        array = np.ones(shape, np.float32)
        made = FFI.new("oocdnn_tensor *")
        sizes, data = FFI.new("int64_t[]", shape), FFI.from_buffer(array)
        made[0] = lib.oocdnn_dense_tensor(DType.FLOAT32, len(shape), sizes, data)
        kept.extend([data, made])
        return made

    for i in range(3):
        links[i] = lib.oocdnn_default_convolution(Direction.FORWARD, 2)
        operands[i].w = tensor(4, 4, 1, 1)
    operands[0].x, operands[2].y = tensor(2, 4, 5, 5), tensor(2, 4, 5, 5)
    options, context = FFI.new("oocdnn_options *"), FFI.new("oocdnn_context **")
    options[0] = lib.oocdnn_default_options()
    device, profile = FFI.new("char[]", b"cpu"), FFI.new("char[]", b"none")
    options.device, options.profile = device, profile
    assert lib.oocdnn_create(options, context) == Status.OK
    assert lib.oocdnn_run_chain(context[0], links, operands, NULL, 3) == Status.OK
    setattr(operands[link], name, tensor(2, 4, 5, 5))
    assert lib.oocdnn_run_chain(context[0], links, operands, NULL, 3) == Status.INVALID_PROBLEM
    text = FFI.string(lib.oocdnn_last_error()).decode()
    assert f"link {link} of a chain" in text
    assert f"{name} is between two links and must be NULL" in text
    lib.oocdnn_destroy(context[0])
