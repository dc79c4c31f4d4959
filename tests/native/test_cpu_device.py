"""What only the CPU device promises: life after a fork, a throttled link, exact half precision."""

import ctypes
from typing import Any

import testing_library


def call(function: str, *arguments: Any) -> None:
    library = testing_library.load()
    message = ctypes.create_string_buffer(4096)
    code = getattr(library, f"oocdnn_testing_cpu_{function}")(
        *arguments, message, ctypes.c_int64(len(message))
    )
    assert code == 0, message.value.decode()


def test_forked_child_can_use_the_device() -> None:
    call("fork", 20)


def test_link_is_a_wire_that_leaves_the_cores_free() -> None:
    call("throttle")


def test_halves_are_rounded_once_and_one_way() -> None:
    call("halves")
