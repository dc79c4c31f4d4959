"""Arithmetic of windows along an axis: the input rows that a range of output rows needs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from oocdnn.torch.spatial.layout import Rows, lengths_of


def _shares(
    lengths: Sequence[int], outputs: int, first_of: Callable[[int], int]
) -> tuple[int, ...]:
    """Output rows of each process; `first_of` has the first one from the first row of the input."""
    starts = (sum(lengths[:process]) for process in range(1, len(lengths)))
    inner = (min(max(first_of(start), 0), outputs) for start in starts)
    return lengths_of((0, *inner, outputs))


@dataclass(frozen=True)
class Window:
    """The window of a convolution or a pool: output row `o` reads the rows
    o * stride - before + tap * dilation."""

    taps: int
    stride: int = 1
    dilation: int = 1
    before: int = 0
    after: int = 0

    @property
    def reach(self) -> int:
        """The rows from the first to the last that one output row reads."""
        return self.dilation * (self.taps - 1) + 1

    def outputs(self, rows: int) -> int:
        """The length of the output for an input of `rows`."""
        return (rows + self.before + self.after - self.reach) // self.stride + 1

    def lengths(self, lengths: Sequence[int], outputs: int) -> tuple[int, ...]:
        """Output rows of each process: a row is where the middle of its window is."""
        middle = self.before - (self.reach - 1) // 2
        return _shares(lengths, outputs, lambda start: -(-(start + middle) // self.stride))

    def inputs(self, outputs: Rows) -> Rows:
        """The rows that `outputs`, which are not empty, read. Rows of the padding are negative, or
        past the end of the input."""
        begin, end = outputs
        first = begin * self.stride - self.before
        return first, first + (end - begin - 1) * self.stride + self.reach

    def inputs_of_each(self, outputs: Sequence[Rows]) -> tuple[tuple[Rows, ...], ...]:
        """For each process, whose `outputs` may be empty, the ranges of rows that they read."""
        return tuple((self.inputs(rows),) if rows[0] < rows[1] else () for rows in outputs)


@dataclass(frozen=True)
class TransposedWindow:
    """The reverse of a window, in transposed convolutions and in gradients of inputs: input row `i`
    adds to the output rows i * stride - before + tap * dilation."""

    window: Window

    def lengths(self, lengths: Sequence[int], outputs: int) -> tuple[int, ...]:
        """Output rows of each process: around the middle of what its input rows add to."""
        w = self.window
        middle = (w.reach - w.stride + 1) // 2 - w.before
        return _shares(lengths, outputs, lambda start: start * w.stride + middle)

    def inputs(self, outputs: Rows, inputs: int) -> "TransposedInputs":
        """The input rows and paddings from which the rows `outputs`, which are not empty, are
        computed; `inputs` is the length of the whole input."""
        begin, end = outputs
        w = self.window
        low = max(-(-(begin + w.before - w.reach + 1) // w.stride), 0)
        high = min((end - 1 + w.before) // w.stride + 1, inputs)
        low = min(low, high)
        # A padding cuts as many rows from both ends. Rows of zeros in front raise it by the stride.
        first = low
        while True:
            padding = begin - first * w.stride + w.before
            room = end - begin + 2 * padding - w.reach
            count = room // w.stride + 1
            if padding >= 0 and room >= 0 and first + count >= high:
                break
            first -= 1
        zeros = (low - first, first + count - high)
        rows = ((-zeros[0], 0), (low, high), (inputs, inputs + zeros[1]))
        return TransposedInputs(rows, padding, room % w.stride)


@dataclass(frozen=True)
class TransposedInputs:
    """Input rows of a transposed convolution, what it cuts from both ends of their output
    (`padding`), and the rows that it adds behind (`output_padding`)."""

    rows: tuple[Rows, ...]
    padding: int
    output_padding: int
