"""Whether a GPU's clocks are held down by heat or its power supply, as NVML says."""

import ctypes
from collections.abc import Callable
from ctypes import byref, c_int, c_ulonglong, c_void_p, create_string_buffer
from typing import Any

from oocdnn.bench.gpu.memory import Driver, ordinal_of

# The hardware's slowdown, either thermal one, the power brake. A cap on power is a card's usual
# state under load, and is none of them.
REASONS = 0x8 | 0x20 | 0x40 | 0x80
BUS_ID = 32  # bytes of "00000000:01:00.0"


def watch(device: str, nvml: Any = None, driver: Any = None) -> Callable[[], bool]:
    """A function that says whether the device is throttled now. On the CPU, and where NVML is not
    there or does not know the card, it never is."""
    if device == "cpu":
        return _never
    try:
        library = nvml or ctypes.CDLL("libnvidia-ml.so.1")
        handle = _handle(library, driver or Driver(), ordinal_of(device))
    except (OSError, RuntimeError):
        return _never
    reasons = c_ulonglong()

    def throttled() -> bool:
        code = library.nvmlDeviceGetCurrentClocksThrottleReasons(handle, byref(reasons))
        return code == 0 and bool(reasons.value & REASONS)

    return throttled


def _never() -> bool:
    return False


def _handle(library: Any, driver: Any, ordinal: int) -> c_void_p:
    """NVML counts cards in its own order, so a card is named by its bus."""
    device, bus, handle = c_int(), create_string_buffer(BUS_ID), c_void_p()
    driver("cuInit", 0)
    driver("cuDeviceGet", byref(device), ordinal)
    driver("cuDeviceGetPCIBusId", bus, BUS_ID, device)
    if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByPciBusId_v2(bus, byref(handle)):
        raise RuntimeError("NVML does not know the card")
    return handle
