"""Training steps of whole networks as a recorder would see them: exact bytes, modelled seconds.

A network is built operation by operation in forward, as PyTorch runs it with in-place activations;
backward follows from it. Seconds are those of an H100 in bf16: 400 TFLOP/s, 2.5 TB/s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from oocdnn.network.timeline import Link, Operation, Recipe, Saved, Squeeze, Timeline

H100_LINK = Link(to_host=52e9, from_host=52e9, both=95e9, latency=10e-6)

_FLOPS, _BANDWIDTH, _LAUNCH = 400e12, 2.5e12, 3e-6
_ELEMENT = 2  # bytes of bf16
_PARAMETER = 4 + 4 + 2  # bytes of a parameter: value, momentum, copy in bf16
_WORKSPACE = 64 << 20


@dataclass
class _Storage:
    """Memory that one operation allocates and that others may overwrite."""

    name: str
    nbytes: int
    allocated: int
    produced: int  # last operation that writes it
    last_use: int
    readers: list[int] = field(default_factory=list)  # operations whose backward reads it
    formulas: list[_Formula] = field(default_factory=list)
    squeezed: int = 0  # bytes of a lossless smaller form

    @property
    def saved(self) -> bool:
        return bool(self.readers)


@dataclass(frozen=True)
class _Formula:
    """A way to compute a storage from others, saved or not."""

    reads: tuple[_Storage, ...]
    seconds: float
    temporary: int = 0
    name: str = "rebuild"


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor in forward: channels and extents, in a storage."""

    channels: int
    extents: tuple[int, ...]
    storage: _Storage


@dataclass
class _Node:
    name: str
    forward: float
    backward: float
    inputs: tuple[Value, ...]
    output: Value
    parameters: int = 0
    passes: bool = False  # its inputs' gradients are its output's


def _moved(*nbytes: int) -> float:
    return sum(nbytes) / _BANDWIDTH + _LAUNCH


class Builder:
    """Forward operations of one step, and the timeline of the step.

    Convolutions with more channels out than in can run again; all of them with `replays`.
    """

    def __init__(
        self, batch: int, channels: int, extents: tuple[int, ...], *, replays: bool = False
    ) -> None:
        self._batch, self._replays = batch, replays
        self._nodes: list[_Node] = []
        self._storages: list[_Storage] = []
        nbytes = batch * channels * prod(extents) * _ELEMENT
        self.input = Value(channels, extents, _Storage("input", nbytes, -1, -1, -1))

    def conv(
        self, x: Value, channels: int, kernel: int, stride: int = 1, *, up: bool = False
    ) -> Value:
        """A convolution, or a transposed one that doubles the extents. Its backward reads x."""
        extents = tuple(2 * n if up else -(-n // stride) for n in x.extents)
        y = self._allocate("y", channels, extents)
        taps = 1 if up else kernel ** len(extents)
        flops = 2 * self._batch * prod(extents) * channels * x.channels * taps
        seconds = max(flops / _FLOPS, _moved(x.storage.nbytes, y.storage.nbytes))
        twice = seconds if x is self.input else 2 * seconds
        if self._replays or channels > x.channels:
            reads = () if x is self.input else (x.storage,)  # the input stays
            y.storage.formulas.append(_Formula(reads, seconds, _WORKSPACE, "replay"))
        weights = channels * x.channels * (2 if up else kernel) ** len(extents)
        self._run("conv", seconds, twice, (x,), y, saves=(x,), parameters=weights)
        return y

    def norm(self, y: Value) -> Value:
        """A batch or instance norm; its backward reads y."""
        b, n = self._allocate("b", y.channels, y.extents), y.storage.nbytes
        b.storage.formulas.append(_Formula((y.storage,), _moved(n, n)))
        self._run("norm", _moved(n, n, n), _moved(n, n, n, n, n), (y,), b, saves=(y,))
        return b

    def relu(self, b: Value) -> Value:
        """A ReLU in place; its backward reads its result."""
        r, n = Value(b.channels, b.extents, b.storage), b.storage.nbytes
        self._run("relu", _moved(n, n), _moved(n, n, n), (b,), r, saves=(r,))
        return r

    def add(self, b: Value, x: Value) -> Value:
        """b += x, in place."""
        out, n = Value(b.channels, b.extents, b.storage), b.storage.nbytes
        made = []
        for formula in b.storage.formulas:
            for reads, seconds in self._ways(x.storage):
                made.append(_Formula((*formula.reads, *reads), formula.seconds + seconds))
        b.storage.formulas = made
        self._run("add", _moved(n, n, n), 0.0, (b, x), out, passes=True)
        return out

    def pool(self, x: Value, stride: int = 2) -> Value:
        """Max pooling; its backward reads x and int64 indices."""
        extents = tuple(-(-n // stride) for n in x.extents)
        out = self._allocate("pooled", x.channels, extents)
        n, m = x.storage.nbytes, out.storage.nbytes
        count = m // _ELEMENT
        indices = self._allocate("indices", x.channels, extents, nbytes=8 * count)
        indices.storage.squeezed = count
        out.storage.formulas.append(_Formula((x.storage,), _moved(n, m)))
        self._run("pool", _moved(n, m, 8 * count), _moved(n, m), (x,), out, saves=(x, indices))
        return out

    def cat(self, a: Value, b: Value) -> Value:
        out = self._allocate("cat", a.channels + b.channels, a.extents)
        n = out.storage.nbytes
        for first, one in self._ways(a.storage):
            for second, two in self._ways(b.storage):
                seconds = _moved(n, n) + one + two
                out.storage.formulas.append(_Formula((*first, *second), seconds))
        self._run("cat", _moved(n, n), _moved(n, n), (a, b), out)
        return out

    def dense(self, x: Value, channels: int) -> Value:
        """A fully connected layer on all of x; its backward reads x."""
        out = self._allocate("y", channels, ())
        weights = x.channels * prod(x.extents) * channels
        seconds = max(2 * self._batch * weights / _FLOPS, _moved(weights * _ELEMENT))
        self._run("dense", seconds, 2 * seconds, (x,), out, saves=(x,), parameters=weights)
        return out

    def mean(self, x: Value) -> Value:
        out = self._allocate("mean", x.channels, ())
        n = x.storage.nbytes
        self._run("mean", _moved(n), _moved(n), (x,), out)
        return out

    def _allocate(
        self, name: str, channels: int, extents: tuple[int, ...], nbytes: int = 0
    ) -> Value:
        size = nbytes or self._batch * channels * prod(extents) * _ELEMENT
        here = len(self._nodes)
        storage = _Storage(f"{name}{len(self._storages)}", size, here, here, here)
        self._storages.append(storage)
        return Value(channels, extents, storage)

    def _ways(self, storage: _Storage) -> list[tuple[tuple[_Storage, ...], float]]:
        """A storage itself, if it is saved, or else what it is computed from."""
        if storage.saved:
            return [((storage,), _moved(storage.nbytes))]
        return [(formula.reads, formula.seconds) for formula in storage.formulas]

    def _run(
        self,
        name: str,
        forward: float,
        backward: float,
        inputs: tuple[Value, ...],
        output: Value,
        *,
        saves: Sequence[Value] = (),
        parameters: int = 0,
        passes: bool = False,
    ) -> None:
        here = len(self._nodes)
        for value in (*inputs, output):
            value.storage.last_use = here
        output.storage.produced = here
        for value in saves:
            value.storage.readers.append(here)
        self._nodes.append(_Node(name, forward, backward, inputs, output, parameters, passes))

    def timeline(self, label: str, *, composites: bool = False) -> Timeline:
        """The step. `composites` adds recipes that compute an input of another one on the way."""
        count = len(self._nodes)
        names = [f"{node.name} {i}" for i, node in enumerate(self._nodes)]
        fixed = [
            before + after
            for before, after in zip(self._transient(), self._gradients(), strict=True)
        ]
        base = sum(node.parameters for node in self._nodes) * _PARAMETER
        base += self.input.storage.nbytes
        seconds = [node.forward for node in self._nodes]
        seconds += [node.backward for node in reversed(self._nodes)]
        names += [f"{name} backward" for name in reversed(names)]
        operations = tuple(
            Operation(*entry)
            for entry in zip(names, seconds, [base + n for n in fixed], strict=True)
        )
        return Timeline(operations, count, self._saved(composites), label)

    def _saved(self, composites: bool) -> tuple[Saved, ...]:
        count = len(self._nodes)
        kept = sorted((one for one in self._storages if one.saved), key=lambda one: one.produced)
        number = {id(one): i for i, one in enumerate(kept)}
        found = []
        for one in kept:
            formulas = list(one.formulas)
            for formula in one.formulas if composites else ():
                formulas += _through(formula)
            recipes = tuple(
                Recipe(
                    tuple(dict.fromkeys(number[id(read)] for read in formula.reads)),
                    formula.seconds,
                    formula.temporary,
                    formula.name,
                )
                for formula in formulas
                if all(id(read) in number for read in formula.reads)
            )
            uses = tuple(sorted({2 * count - 1 - reader for reader in one.readers}))
            small = None
            if one.squeezed:
                small = Squeeze(one.squeezed, _moved(one.nbytes, one.nbytes))
            found.append(
                Saved(
                    one.name,
                    one.nbytes,
                    one.produced,
                    one.last_use,
                    uses,
                    recipes=recipes,
                    squeeze=small,
                )
            )
        return tuple(found)

    def _transient(self) -> list[int]:
        """Bytes in forward of what backward does not read, or not yet; workspaces."""
        found = [0] * (2 * len(self._nodes))
        for one in self._storages:
            for position in range(one.allocated, one.produced if one.saved else one.last_use + 1):
                found[position] += one.nbytes
        for position, node in enumerate([*self._nodes, *reversed(self._nodes)]):
            found[position] += _WORKSPACE if node.name == "conv" else 0
        return found

    def _gradients(self) -> list[int]:
        """Bytes of gradients at each position: those of tensors on their way, and of parameters."""
        count = len(self._nodes)
        found, parameters = [0] * (2 * count), 0
        buffers: dict[int, int] = {}  # bytes by the node that wrote them
        grads: dict[Value, int] = {self._nodes[-1].output: -1}
        buffers[-1] = self._nodes[-1].output.storage.nbytes
        for number, node in reversed(list(enumerate(self._nodes))):
            here = grads.pop(node.output)
            parameters += 4 * node.parameters
            fresh = 0
            for value in node.inputs:
                if value is self.input:
                    continue
                if node.passes:
                    grads[value] = here
                    continue
                fresh += value.storage.nbytes
                buffers[number] = buffers.get(number, 0) + value.storage.nbytes
                grads[value] = number  # a sum takes the place of what was there
            held = sum(buffers.values())
            buffers = {i: n for i, n in buffers.items() if i in grads.values()}
            found[2 * count - 1 - number] = held + parameters
        return found


def _through(formula: _Formula) -> list[_Formula]:
    """The formula with one of its inputs computed on the way, by what that is computed from."""
    found = []
    for read in formula.reads:
        rest = tuple(other for other in formula.reads if other is not read)
        for inner in read.formulas:
            if inner.name == "replay":
                temporary = formula.temporary + inner.temporary + read.nbytes
                seconds = formula.seconds + inner.seconds
                found.append(_Formula((*inner.reads, *rest), seconds, temporary))
    return found


def resnet(
    blocks: Sequence[int],
    batch: int,
    *,
    size: int = 224,
    replays: bool = False,
    composites: bool = False,
) -> Timeline:
    """A ResNet of bottlenecks: (3, 4, 6, 3) is ResNet-50, (3, 8, 36, 3) is ResNet-152."""
    net = Builder(batch, 3, (size, size), replays=replays)
    x = net.pool(net.relu(net.norm(net.conv(net.input, 64, 7, 2))))
    for stage, count in enumerate(blocks):
        width = 64 << stage
        for block in range(count):
            stride = 2 if stage and not block else 1
            r = net.relu(net.norm(net.conv(x, width, 1)))
            r = net.relu(net.norm(net.conv(r, width, 3, stride)))
            b = net.norm(net.conv(r, 4 * width, 1))
            if not block:
                x = net.norm(net.conv(x, 4 * width, 1, stride))
            x = net.relu(net.add(b, x))
    net.dense(net.mean(x), 1000)
    depth = 3 * sum(blocks) + 2
    return net.timeline(f"resnet{depth} x {batch}", composites=composites)


def vgg16(batch: int, *, size: int = 224, replays: bool = True) -> Timeline:
    net = Builder(batch, 3, (size, size), replays=replays)
    x = net.input
    for channels, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            x = net.relu(net.conv(x, channels, 3))
        x = net.pool(x)
    for channels in (4096, 4096, 1000):
        x = net.relu(net.dense(x, channels))
    return net.timeline(f"vgg16 x {batch}")


def unet(batch: int, size: int, *, width: int = 32, levels: int = 4) -> Timeline:
    """A 3-D U-Net with norms: two convolutions a level, transposed convolutions on the way up."""
    net = Builder(batch, 1, (size,) * 3)

    def two(x: Value, channels: int) -> Value:
        for _ in range(2):
            x = net.relu(net.norm(net.conv(x, channels, 3)))
        return x

    x, skips = net.input, []
    for level in range(levels):
        x = two(x, width << level)
        if level < levels - 1:
            skips.append(x)
            x = net.pool(x)
    for level in reversed(range(levels - 1)):
        x = two(net.cat(net.conv(x, width << level, 2, up=True), skips[level]), width << level)
    net.conv(x, 2, 1)
    return net.timeline(f"unet {batch} x {size}^3")
