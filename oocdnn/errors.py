"""What can go wrong. Each error is also the builtin that a caller would expect.

The text says what failed, with which numbers, and what to do next. A context stays usable after
any of these.
"""


class InvalidProblem(ValueError):
    """Ranks, shapes, parameters or operands that do not make a convolution."""


class InvalidDtype(TypeError):
    """An element type that is not served, types that do not go together, or no array at all."""


class OutOfMemory(MemoryError):
    """No plan fits the budget, or no division the workspace.

    `least` is the smallest budget or workspace in bytes that works, or 0 where it is not known.
    """

    def __init__(self, text: str = "", least: int = 0) -> None:
        super().__init__(text)
        self.least = least


class Unsupported(NotImplementedError):
    """Well formed, but nothing here computes it; the text names the nearest thing that works."""


class DeviceError(RuntimeError):
    """The device, its driver or the core library failed."""


class FileError(DeviceError, OSError):
    """Reading or writing an operand in a file failed, for example because the disk is full.

    `errno` is the system's number, or None where it gave none.
    """

    def __init__(self, text: str = "", errno: int | None = None) -> None:
        super().__init__(text)
        self.errno = errno

    def __reduce__(self) -> tuple[type["FileError"], tuple[str, int | None]]:
        return type(self), (str(self), self.errno)
