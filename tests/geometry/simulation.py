"""A schedule executed by NumPy alone: slots are arrays, tiles are convolutions by the oracle.

Every slot begins as NaN and every fetched or drained element is counted, so that a schedule which
forgets, repeats or misplaces anything gives another result than the whole problem.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import oracle
from geometry import core
from geometry.core import (
    BIAS,
    DB,
    DW,
    INPUT,
    OLD,
    RESIDUAL,
    SAVED,
    SCALE,
    Activation,
    Direction,
    PoolMode,
    Problem,
    Saved,
    W,
    X,
    Y,
    Z,
)

# Without a parameter elu gives whole numbers too, and slopes that are 0 or 1.
ACTIVATIONS = {Activation.IDENTITY: "identity", Activation.RELU: "relu", Activation.ELU: "elu"}
TYPES = {0: np.float32, 1: np.float64, 2: np.float16, 3: ml_dtypes.bfloat16}  # by DType
MODES = {PoolMode.MAX: "max", PoolMode.AVERAGE: "avg", PoolMode.AVERAGE_INSIDE: "avg_inside"}
ALL = range(len(core.OPERANDS))


def random_tensors(problem: Problem, seed: int) -> dict[int, np.ndarray]:
    """Small whole numbers for every operand that is read, in the operand's six dimensions."""
    rng = np.random.default_rng(seed)
    made = [i for i in ALL if core.writes(problem, i) or core.stays(problem, i)]
    read = [i for i in ALL if core.uses(problem, i) and i not in made]
    tensors = {i: rng.integers(-4, 5, core.dims_of(problem, i)).astype(np.float64) for i in read}
    if SAVED in tensors:
        tensors[SAVED] = random_bits(problem, rng)
    if pools_average(problem):  # whose shares are whole numbers
        tensors[Z] *= math.prod(math.lcm(*range(1, w + 1)) for w in problem.pool.window)
    return tensors


def restores(problem: Problem) -> bool:
    """Whether dy is made of dz and of what was saved."""
    return problem.direction != Direction.FWD and core.stays(problem, Y)


def pools_average(problem: Problem) -> bool:
    return restores(problem) and problem.pool.mode not in (PoolMode.NONE, PoolMode.MAX)


def random_bits(problem: Problem, rng) -> np.ndarray:
    """Bytes of what a forward pass may have saved; places in the padding win nothing."""
    what, bits = core.saving(problem)
    dims = list(core.dims_of(problem, SAVED))
    if what == Saved.WINNERS:
        dims[5] = problem.shape.pooled[2]
        most = math.prod(problem.pool.window) + problem.clips
    else:
        dims[5] = reached(problem)
        most = 2
    if problem.slopes:
        slopes, size = rng.integers(0, 3, dims), oracle.code_bytes(pool_of(problem))
        codes = rng.integers(0, most, dims)
        return oracle.sloped(slopes, codes, size, TYPES[problem.dtype]).astype(np.float64)
    return oracle.packed(rng.integers(0, most, dims), bits).astype(np.float64)


def reached(problem: Problem) -> int:
    """Elements of a row of y up to the last that a window reaches."""
    pool, width = pool_of(problem), problem.shape.out[2]
    return width if pool is None else pool.reached(tuple(problem.shape.out))[2]


def restored(problem: Problem, dz, bits) -> np.ndarray:
    """dy of tensors in six dimensions."""
    pool, extents = pool_of(problem), tuple(problem.shape.out)
    what, width = core.saving(problem)
    codes = None
    slopes = np.ones(())
    if problem.slopes:
        size = oracle.code_bytes(pool)
        slopes, codes = oracle.unsloped(bits.astype(np.uint8), size, TYPES[problem.dtype])
    elif what != Saved.NOTHING:
        count = problem.shape.pooled[2] if what == Saved.WINNERS else reached(problem)
        codes = oracle.unpacked(bits.astype(np.uint8), width, count)
    if pool is None:
        dy = dz
    else:
        winners = codes if what == Saved.WINNERS else np.zeros(dz.shape, int)
        passing = dz * slopes if what == Saved.WINNERS else dz
        dy = oracle.pool_backward(passing, winners, extents, pool)
    if what != Saved.ALIVE:
        return dy
    alive = np.zeros(dy.shape)
    alive[tuple(slice(n) for n in codes.shape)] = slopes if problem.slopes else codes
    return np.where(alive == 0, 0.0, alive * dy)


def convolve(problem: Problem, shape: core.Shape, tensors) -> np.ndarray:
    """The sum of `problem`'s direction over sizes `shape`, in the output's six dimensions."""

    def array(operand):
        tensor = tensors[operand]
        merged = (0, 1) if operand == W else (1, 2)
        dims = list(tensor.shape)
        dims[merged[0] : merged[1] + 1] = [dims[merged[0]] * dims[merged[1]]]
        return tensor.reshape(dims)

    window = {
        "stride": tuple(shape.stride),
        "padding": tuple(zip(shape.pad_before, shape.pad_after, strict=True)),
        "dilation": tuple(shape.dilation),
        "groups": shape.g,
        "flip": problem.flip,
    }
    n, g, k, c = shape.n, shape.g, shape.k, shape.c
    match problem.direction:
        case Direction.FWD:
            y = oracle.forward(array(X), array(W), **window)
            return y.reshape(n, g, k, *shape.out)
        case Direction.BWD_DATA:
            dx = oracle.backward_data(array(Y), array(W), (n, g * c, *shape.input), **window)
            return dx.reshape(n, g, c, *shape.input)
        case Direction.BWD_FILTER:
            dw = oracle.backward_filter(array(X), array(Y), (g * k, c, *shape.filter), **window)
            return dw.reshape(g, k, c, *shape.filter)
    return oracle.backward_bias(array(Y)).reshape(1, g, k, 1, 1, 1)


def gradients_along(problem: Problem, shape: core.Shape, x, dy, own_dy) -> dict[int, np.ndarray]:
    """What of dw and db comes along with dx: `own_dy` holds each row of dy that counts in db."""
    made, gradient = {}, Problem.from_buffer_copy(problem)
    if problem.also.dw:
        gradient.direction = Direction.BWD_FILTER
        made[DW] = convolve(gradient, shape, {X: x, Y: dy})
    if problem.also.db:
        made[DB] = own_dy.sum(axis=(0, 3, 4, 5)).reshape(1, shape.g, shape.k, 1, 1, 1)
    return made


def finish(problem: Problem, total, tensors) -> np.ndarray:
    """The epilogue in six dimensions: per-channel operands broadcast as they are."""
    epilogue = problem.epilogue
    v = problem.alpha * total
    if epilogue.scale:
        v = v * tensors[SCALE]
    if epilogue.bias:
        v = v + tensors[BIAS]
    if epilogue.residual:
        v = v + epilogue.residual_alpha * tensors[RESIDUAL]
    if problem.beta != 0.0:
        v = v + problem.beta * tensors[OLD]
    return oracle.activate(v, ACTIVATIONS[epilogue.activation])


def pool_of(problem: Problem) -> oracle.Pool | None:
    pool = problem.pool
    if pool.mode == PoolMode.NONE:
        return None
    padding = tuple(zip(pool.pad_before, pool.pad_after, strict=True))
    window, stride = tuple(pool.window), tuple(pool.stride)
    return oracle.Pool(MODES[pool.mode], window, stride, padding, pool.ceil)


def bits_of(problem: Problem, y) -> np.ndarray | None:
    """What is saved. Elu without a parameter has the slopes of its results."""
    pool, activation = pool_of(problem), ACTIVATIONS[problem.epilogue.activation]
    if activation != "elu":
        return oracle.saved(y, pool, activation)
    values, codes = oracle.slopes(y, pool, activation)
    return oracle.sloped(values, codes, oracle.code_bytes(pool), TYPES[problem.dtype])


def outputs(problem: Problem, y) -> dict[int, np.ndarray]:
    """What leaves the device of a finished sum."""
    pool, made = pool_of(problem) if problem.direction == Direction.FWD else None, {}
    made[core.output_of(problem)] = y if pool is None else oracle.pool(y, pool)[0]
    if problem.saves:
        made[SAVED] = bits_of(problem, y)
    return {operand: array for operand, array in made.items() if array is not None}


def whole(problem: Problem, tensors) -> np.ndarray:
    """The output."""
    return all_of(problem, tensors)[core.output_of(problem)]


def all_of(problem: Problem, tensors) -> dict[int, np.ndarray]:
    """All that leaves the device."""
    if restores(problem):
        tensors = {**tensors, Y: restored(problem, tensors[Z], tensors.get(SAVED))}
    made = outputs(problem, finish(problem, convolve(problem, problem.shape, tensors), tensors))
    dy = tensors.get(Y)
    return made | gradients_along(problem, problem.shape, tensors.get(INPUT), dy, dy)


def ranges(box: core.Box) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """The valid part of a box, as indices into the tensor and into the tile."""
    tensor, tile = [], []
    for d in range(6):
        begin, end = box.valid_begin[d], max(box.valid_end[d], box.valid_begin[d])
        assert box.origin[d] <= begin or begin == end
        assert end <= box.origin[d] + box.extent[d] or begin == end
        tensor.append(slice(begin, end))
        tile.append(slice(begin - box.origin[d], end - box.origin[d]))
    return tuple(tensor), tuple(tile)


def fetched(tensor, box: core.Box) -> np.ndarray:
    """The box with zeros where it is not valid."""
    tile = np.zeros(tuple(box.extent))
    from_tensor, to_tile = ranges(box)
    if tensor[from_tensor].size:
        tile[to_tile] = tensor[from_tensor]
    return tile


def is_short(tiling: core.Tiling, index) -> bool:
    """Whether the tile is one of a tapered axis's ends: the first, or no more than that is left."""
    axis, length = tiling.taper.axis, tiling.taper.length
    if length == 0:
        return False
    before = length + (index[axis] - 1) * tiling.length[axis]
    return index[axis] == 0 or tiling.extent[axis] - before <= length


class Simulation:
    """Runs all steps on creation. `outputs` are the results, `output` the one that is no bits;
    `fetches[i]` and `drains[i]` count how often each element crossed, `enters[i]` how many boxes
    were brought in."""

    def __init__(self, problem, tiling, order, depths, tensors):
        self.problem, self.tensors = problem, tensors
        self.tiling = tiling
        self.sum = Y if core.output_of(problem) == Z else core.output_of(problem)
        written = [i for i in ALL if core.writes(problem, i)]
        self.outputs = {i: np.full(core.dims_of(problem, i), np.nan) for i in written}
        self.output = self.outputs[core.output_of(problem)]
        self.drains = {i: np.zeros(array.shape, dtype=int) for i, array in self.outputs.items()}
        self.fetches = {i: np.zeros(t.shape, dtype=int) for i, t in tensors.items()}
        self.enters = dict.fromkeys(ALL, 0)
        self.rolled_rows = 0
        used = [i for i in ALL if core.uses(problem, i)]
        self.slots = {i: [np.nan] * max(1, depths[i]) for i in used}
        self.shapes = [core.tile_shape(problem, tiling, short) for short in (False, True)]
        for step in core.schedule(problem, tiling, order, depths):
            self._run(step)

    def _tile_dims(self, shape: core.Shape, operand: int) -> tuple[int, ...]:
        tile = Problem.from_buffer_copy(self.problem)
        tile.shape = shape
        return core.dims_of(tile, operand)

    def _run(self, step: core.Step) -> None:
        now = {}
        shape = self.shapes[is_short(self.tiling, step.index)]
        for i in self.slots:
            assert tuple(step.operand[i].box.extent) == self._tile_dims(shape, i)
            if i in self.tensors:
                now[i] = self._bring(i, step.operand[i])
        if restores(self.problem):
            now[Y] = self._restore(step, now)
        end = step.operand[self.sum]
        total = self._add(self.sum, end, convolve(self.problem, shape, now))
        assert all(step.operand[i].leave == end.leave for i in self.outputs if i not in (DW, DB))
        if total is not None:
            self._drain(finish(self.problem, total, now), step)
        own_dy = self._own_rows(step, now[Y]) if self.problem.also.db else None
        along = gradients_along(self.problem, shape, now.get(INPUT), now.get(Y), own_dy)
        for operand, part in along.items():
            how = step.operand[operand]
            total = self._add(operand, how, part)
            if total is not None:
                self._put(operand, how, total)

    def _add(self, operand: int, how: core.OperandStep, part):
        """Adds a step's part to the tile in the slot, which is the answer where it is the last."""
        slots = self.slots[operand]
        self.enters[operand] += how.enter
        total = slots[how.slot] = part if how.enter else slots[how.slot] + part
        if not how.leave:
            return None
        slots[how.slot] = np.nan
        return total

    def _put(self, operand: int, how: core.OperandStep, total) -> None:
        part, of_tile = ranges(how.box)
        self.outputs[operand][part] = total[of_tile]
        self.drains[operand][part] += 1

    def _own_rows(self, step: core.Step, dy) -> np.ndarray:
        """The tile of dy without what other tiles add to db."""
        box = core.own_rows(self.problem, self.tiling, step.index)
        assert list(box.origin) == list(step.operand[Y].box.origin)
        _, own = ranges(box)
        alone = np.zeros(dy.shape)
        alone[own] = dy[own]
        return alone

    def _restore(self, step: core.Step, now) -> np.ndarray:
        """A tile of dy, made of tensors that hold nothing but the tiles: bits that are elsewhere
        say that all is dead, and would be missed."""
        sources = []
        for operand, missing in ((Z, np.nan), (SAVED, 0)):
            alone = np.full(core.dims_of(self.problem, operand), missing, dtype=np.float64)
            if operand in now:
                part, of_tile = ranges(step.operand[operand].box)
                alone[part] = now[operand][of_tile]
            sources.append(alone)
        how = step.operand[Y]
        slots = self.slots[Y]
        assert how.from_slot < 0
        if how.enter:
            self.enters[Y] += 1
            slots[how.slot] = fetched(restored(self.problem, *sources), how.box)
        return slots[how.slot]

    def _bring(self, operand: int, how: core.OperandStep) -> np.ndarray:
        slots = self.slots[operand]
        expected = fetched(self.tensors[operand], how.box)
        if how.enter:
            self.enters[operand] += 1
            tile = np.full(tuple(how.box.extent), np.nan)
            self._roll(operand, how, tile)
            rows = [slice(None)] * 6
            rows[how.roll_axis] = slice(how.kept, None)
            tile[tuple(rows)] = expected[tuple(rows)]
            self._count_fetch(operand, how)
            slots[how.slot] = tile
        np.testing.assert_array_equal(slots[how.slot], expected)
        return slots[how.slot]

    def _roll(self, operand: int, how: core.OperandStep, tile) -> None:
        if how.from_slot < 0:
            assert how.kept == 0
            return
        assert how.from_slot != how.slot
        assert how.kept > 0
        to, source = [slice(None)] * 6, [slice(None)] * 6
        to[how.roll_axis] = slice(0, how.kept)
        source[how.roll_axis] = slice(how.from_row, how.from_row + how.kept)
        tile[tuple(to)] = self.slots[operand][how.from_slot][tuple(source)]
        self.rolled_rows += how.kept

    def _count_fetch(self, operand: int, how: core.OperandStep) -> None:
        rows, _ = ranges(how.box)
        rows = list(rows)
        axis = how.roll_axis
        first = max(rows[axis].start, how.box.origin[axis] + how.kept)
        rows[axis] = slice(first, max(first, rows[axis].stop))
        self.fetches[operand][tuple(rows)] += 1

    def _drain(self, tile, step: core.Step) -> None:
        """What is made of a tile is made of a tensor that holds nothing but the tile."""
        to_tensor, from_tile = ranges(step.operand[self.sum].box)
        alone = np.full(core.dims_of(self.problem, self.sum), np.nan)
        alone[to_tensor] = tile[from_tile]
        for operand, array in outputs(self.problem, alone).items():
            part, _ = ranges(step.operand[operand].box)
            self.outputs[operand][part] = array[part]
            self.drains[operand][part] += 1
