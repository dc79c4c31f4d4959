"""How much of a card is in use, by all processes, as the driver's management library says."""

from __future__ import annotations

import ctypes
import threading
import time


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class Card:
    """The first GPU. Raises OSError where there is no such library."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        self._device = ctypes.c_void_p()
        self._call("nvmlInit_v2")
        self._call("nvmlDeviceGetHandleByIndex_v2", 0, ctypes.byref(self._device))

    def _call(self, name: str, *arguments) -> None:
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            raise OSError(f"{name} answers {code}")

    def used(self) -> int:
        memory = _Memory()
        self._call("nvmlDeviceGetMemoryInfo", self._device, ctypes.byref(memory))
        return memory.used

    def name(self) -> str:
        text = ctypes.create_string_buffer(96)
        self._call("nvmlDeviceGetName", self._device, text, len(text))
        return text.value.decode()


class Watch:
    """The most that was in use while it watched, beyond what was when it began."""

    def __init__(self, card: Card) -> None:
        self._card, self._before = card, card.used()
        self._rises = [(0.0, 0)]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._stop.wait(0.002):
            used = self._card.used() - self._before
            if used > self.peak:
                self._rises.append((time.time(), used))

    @property
    def peak(self) -> int:
        return self._rises[-1][1]

    def peak_until(self, moment: float) -> int:
        """The most before that moment of time.time()."""
        return [used for when, used in self._rises if when <= moment][-1]

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
