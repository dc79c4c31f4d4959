"""Calls in which a GPU was throttled do not count."""

from __future__ import annotations

from typing import Any

import pytest

from oocdnn.bench import measure
from oocdnn.bench.gpu.throttle import watch
from oocdnn.bench.measure import Call, Patience


class Nvml:
    """Knows one card, by its bus, and says reasons one after the other."""

    def __init__(self, *reasons: int) -> None:
        self.reasons = list(reasons)

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetHandleByPciBusId_v2(self, bus: Any, handle: Any) -> int:
        return 0 if bus.value == b"0000:07:00.0" else 6

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any, reasons: Any) -> int:
        reasons._obj.value = self.reasons.pop(0)
        return 0


def driver(bus: bytes) -> Any:
    def call(name: str, *arguments: Any) -> None:
        if name == "cuDeviceGetPCIBusId":
            arguments[0].value = bus

    return call


def test_heat_and_the_power_brake_throttle_and_a_power_cap_does_not() -> None:
    throttled = watch("cuda:1", Nvml(0x0, 0x1, 0x4, 0x8, 0x20, 0x40, 0x84), driver(b"0000:07:00.0"))
    assert [throttled() for _ in range(7)] == [False] * 3 + [True] * 4


def test_what_is_not_known_is_not_throttled() -> None:
    assert not watch("cpu", Nvml(0x8), driver(b"0000:07:00.0"))()
    assert not watch("cuda:0", Nvml(0x8), driver(b"0000:08:00.0"))()
    assert not watch("cuda:0")()  # no NVML, or no such reason


def test_throttled_calls_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([2.0, 1.0, 1.0, 1.0])
    monkeypatch.setattr(measure, "timed", lambda _: Call(next(seconds), 0.0, 0.0))
    throttled = iter([True, False, False, False])
    patience = Patience(least=3, most=3)
    times = measure.time_calls(lambda: None, patience, throttled=lambda: next(throttled))
    assert (times.warm, times.dropped) == ([1.0, 1.0, 1.0], 1)
