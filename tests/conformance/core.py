"""The testing library on devices: conformance cases by name, scenes for the wrapping devices."""

from __future__ import annotations

import ctypes
import functools
from ctypes import c_char_p, c_int, c_int64
from dataclasses import dataclass
from itertools import count, takewhile

import testing_library

OK, OUT_OF_MEMORY, UNSUPPORTED, DEVICE_ERROR, FAILED = 0, 3, 4, 5, 8
MESSAGE_BYTES = 4096
TEXT_BYTES = 1 << 20


@dataclass(frozen=True)
class Outcome:
    """The code and text of a Status, and what a scene has written."""

    code: int
    message: str
    text: str = ""


@functools.cache
def library() -> ctypes.CDLL:
    core = testing_library.load()
    for name in ("conformance_name", "lie_name"):
        function = getattr(core, f"oocdnn_testing_{name}")
        function.restype = c_char_p
        function.argtypes = [c_int]
    core.oocdnn_testing_device.argtypes = [c_char_p, c_char_p, c_int64]
    core.oocdnn_testing_conformance_run.argtypes = [c_char_p, c_int, c_char_p, c_int64]
    core.oocdnn_testing_play.argtypes = [c_char_p, c_char_p, c_char_p, c_int64, c_char_p, c_int64]
    return core


@functools.cache
def cases() -> dict[str, int]:
    """The names of all conformance cases, each with its number."""
    core = library()
    numbers = range(core.oocdnn_testing_conformance_count())
    return {core.oocdnn_testing_conformance_name(i).decode(): i for i in numbers}


def lies() -> set[str]:
    """What a lying device can lie about."""
    names = map(library().oocdnn_testing_lie_name, count())
    return {name.decode() for name in takewhile(lambda name: name is not None, names)}


@functools.cache
def unavailable(device: str) -> str:
    """Why this machine has no such device, or an empty string."""
    message = ctypes.create_string_buffer(MESSAGE_BYTES)
    code = library().oocdnn_testing_device(device.encode(), message, MESSAGE_BYTES)
    assert code in (OK, UNSUPPORTED), message.value.decode()
    return message.value.decode()


def run_case(device: str, case: str) -> Outcome:
    """Runs one conformance case on a new device."""
    message = ctypes.create_string_buffer(MESSAGE_BYTES)
    code = library().oocdnn_testing_conformance_run(
        device.encode(), cases()[case], message, MESSAGE_BYTES
    )
    return Outcome(code, message.value.decode())


def play(scene: str, device: str) -> Outcome:
    """Plays a scene on a new device."""
    text = ctypes.create_string_buffer(TEXT_BYTES)
    message = ctypes.create_string_buffer(MESSAGE_BYTES)
    code = library().oocdnn_testing_play(
        scene.encode(), device.encode(), text, TEXT_BYTES, message, MESSAGE_BYTES
    )
    return Outcome(code, message.value.decode(), text.value.decode())
