"""An independent simulation of a schedule on three engines, by events, for judging prices.

It shares with the planner only the schedule itself (boxes, slots, rolled rows). Times come from
the profile by its documented meaning; waits are tasks that depend on tasks.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections import defaultdict

from geometry import doors
from geometry.doors import BIAS, OLD, RESIDUAL, SCALE, Direction, W
from model.planner import HOST, IS_TILE, ON_HOST

ELEMENT_BYTES = {0: 4, 1: 8, 2: 2, 3: 2}
SUM_BYTES = {0: 4, 1: 8, 2: 4, 3: 4}
ACTIVATION_AXES = [0, 1, None, 4, 5, 6]  # of N, G, channel, D, H, W


@dataclasses.dataclass
class Task:
    engine: str
    seconds: float
    after: list[Task]
    end: float | None = None


@dataclasses.dataclass
class Outcome:
    seconds: float
    busy: dict[str, float]
    bytes_in: int
    bytes_out: int


def shaped_as(problem, operand: int) -> int:
    return doors.output_of(problem) if operand in (OLD, RESIDUAL) else operand


def axes_of(problem, operand: int) -> list[int | None]:
    """The axis that cuts each dimension of the operand."""
    operand = shaped_as(problem, operand)
    if operand == W:
        return [1, 2, 3, None, None, None]
    if operand in (BIAS, SCALE):
        made = 3 if problem.direction == Direction.BWD_DATA else 2
        return [None, 1, made, None, None, None]
    channel = 3 if operand == doors.X else 2
    return [channel if axis is None else axis for axis in ACTIVATION_AXES]


def row_dimensions(problem, tiling, operand: int) -> set[int]:
    """The dimensions along which a tile's piece of memory goes on without a gap."""
    counts, axes = doors.counts(tiling), axes_of(problem, operand)
    strides = problem.stride[doors.output_of(problem) if operand == OLD else operand]
    dims = doors.dims_of(problem, operand)
    inside, run = set(), 1
    for d in sorted((d for d in range(6) if dims[d] > 1), key=lambda d: strides[d]):
        if strides[d] != run:
            break
        inside.add(d)
        if axes[d] is not None and counts[axes[d]] > 1:
            break
        run *= dims[d]
    return inside


class Pipeline:
    def __init__(self, problem, tiling, order, depths, profile, homes=HOST):
        self.problem, self.tiling, self.profile = problem, tiling, profile
        self.homes, self.inner = homes, 0.0  # seconds of copies inside the device
        self.element, self.sum = ELEMENT_BYTES[problem.dtype], SUM_BYTES[problem.dtype]
        self.out = doors.output_of(problem)
        self.used = [i for i in range(7) if doors.uses(problem, i)]
        self.inside = {i: row_dimensions(problem, tiling, i) for i in self.used}
        self.tasks: list[Task] = []
        self.bytes = {"fetch": 0, "drain": 0}
        # By operand and engine, the bytes and seconds of each transfer.
        self.crossings: dict[tuple[int, str], list[tuple[int, float]]] = defaultdict(list)
        self.fill(doors.schedule(problem, tiling, order, depths))

    def outcome(self) -> Outcome:
        busy = {e: sum(t.seconds for t in self.tasks if t.engine == e) for e in ENGINES}
        if self.profile.shared_engines:
            seconds = sum(busy.values())
        else:
            together = sum(self.bytes.values()) / self.profile.both_bytes_per_second
            wire = max(together, self.wire_seconds())
            arithmetic = self.inner + busy["compute"]
            host = self.steps * self.profile.step_seconds
            seconds = max(simulate(self.tasks, self.profile.hop_seconds), wire, arithmetic, host)
        return Outcome(seconds, busy, self.bytes["fetch"], self.bytes["drain"])

    def wire_seconds(self) -> float:
        """The first transfer of each operand is alone on the wire, all others share it."""
        profile, crossing = self.profile, [c for c in self.crossings.values() if c]
        alone = sum(sum(seconds for _, seconds in c) / len(c) for c in crossing)
        shared = sum(sum(bytes_ for bytes_, _ in c) * (1 - 1 / len(c)) for c in crossing)
        more = {e: sum(len(c) - 1 for (_, on), c in self.crossings.items() if on == e and c)
                for e in self.bytes}  # fmt: skip
        copies = max(more.values()) * profile.copy_seconds
        return alone + shared / profile.both_bytes_per_second + copies

    def fill(self, steps) -> None:
        filled, used, drained = {}, {}, {}  # by (operand, slot): the last task of each kind
        self.steps = 0
        for step in steps:
            self.steps += 1
            needs = []
            for i in self.used:
                mine = step.operand[i]
                place = (i, mine.slot)
                if i == self.out:
                    needs += [drained.get(place)] if mine.enter else []
                    continue
                if mine.enter:
                    seconds = self.transfer(i, mine, "fetch")
                    filled[place] = self.put("fetch", seconds, used.get(place))
                needs.append(filled[place])
            for i in self.used:
                mine = step.operand[i]
                if mine.enter and mine.from_slot >= 0 and self.homes[i] != IS_TILE:
                    seconds = self.moved(mine) * self.sum / self.profile.move_bytes_per_second
                    used[i, mine.from_slot] = self.put("compute", seconds)
            last = step.operand[self.out].leave
            run = self.put("compute", self.run_seconds(last), *needs)
            used |= {(i, step.operand[i].slot): run for i in self.used if i != self.out}
            if last:
                mine = step.operand[self.out]
                seconds = self.transfer(self.out, mine, "drain")
                drained[self.out, mine.slot] = self.put("drain", seconds, run)

    def put(self, engine: str, seconds: float, *after: Task | None) -> Task | None:
        if seconds == 0:
            return None
        self.tasks.append(Task(engine, seconds, [task for task in after if task]))
        return self.tasks[-1]

    def transfer(self, operand: int, step, engine: str) -> float:
        box = step.box
        span = [max(e - b, 0) for b, e in zip(box.valid_begin, box.valid_end, strict=True)]
        if step.from_slot >= 0:
            d = step.roll_axis
            known = box.origin[d] + step.kept
            span[d] = max(box.valid_end[d] - max(box.valid_begin[d], known), 0)
        elements = math.prod(span)
        outside = [d for d in range(6) if d not in self.inside[operand]]
        rows = math.prod(span[d] for d in outside)
        far = math.prod(span[d] for d in outside if self.far(operand, d))
        if self.homes[operand] != ON_HOST:
            seconds = self.within(operand, elements, rows)
            self.inner += seconds
            return seconds
        self.bytes[engine] += elements * self.element
        rate = getattr(self.profile, f"{engine}_bytes_per_second")
        extra = (rows - far) * self.profile.row_bytes + far * self.profile.far_row_bytes
        wire = (elements * self.element + extra) / rate
        seconds = self.profile.copy_seconds + wire
        self.crossings[operand, engine].append((elements * self.element, seconds))
        return seconds

    def moved(self, step) -> int:
        """Elements that are rolled over."""
        extent = step.box.extent
        return step.kept * math.prod(extent) // extent[step.roll_axis]

    def far(self, operand: int, dimension: int) -> bool:
        """Whether a step along the dimension is one of 64 KiB or more."""
        place = self.out if operand == OLD else operand
        return abs(self.problem.stride[place][dimension]) * self.element >= 65536

    def within(self, operand: int, elements: int, rows: int) -> float:
        """Of what lies on the device: copied into a tile there, or the tile itself."""
        if self.homes[operand] == IS_TILE:
            return 0.0
        known = self.profile.wires
        rate = known.get("direct/nchw/inside", self.profile.move_bytes_per_second)
        bytes_ = elements * self.element + rows * known.get("direct/nchw/inside_row_bytes", 0)
        return self.profile.copy_seconds + bytes_ / rate

    def run_seconds(self, finishes: bool) -> float:
        problem, tile = self.problem, doors.tile_shape(self.problem, self.tiling)
        if problem.direction == Direction.BWD_BIAS:
            work = tile.n * tile.g * tile.k * math.prod(tile.out)
        else:
            k = min(-(-tile.k // 16) * 16, problem.shape.k)
            c = min(-(-tile.c // 16) * 16, problem.shape.c)
            work = 2 * tile.n * tile.g * k * c * math.prod(tile.out) * math.prod(tile.filter)
        computing = max(work / self.profile.flops_fallback, self.pass_seconds(tile))
        seconds = self.profile.run_seconds + computing
        return seconds + (self.finish_seconds(tile) if finishes else 0.0)

    def pass_seconds(self, tile) -> float:
        """Of reading and writing the tile's operands once; moves count what they read and write."""
        outputs = tile.n * tile.g * tile.k * math.prod(tile.out)
        elements = outputs
        if self.problem.direction != Direction.BWD_BIAS:
            elements += tile.n * tile.g * tile.c * math.prod(tile.input)
            elements += tile.g * tile.k * tile.c * math.prod(tile.filter)
        return elements * self.element / (2 * self.profile.move_bytes_per_second)

    def finish_seconds(self, tile) -> float:
        problem, epilogue = self.problem, self.problem.epilogue
        plain = problem.alpha == 1 and problem.beta == 0 and epilogue.activation == 0
        if plain and not (epilogue.bias or epilogue.scale or epilogue.residual):
            return 0.0
        channels = tile.c if problem.direction == Direction.BWD_DATA else tile.k
        sizes = {
            Direction.FWD: tile.n * tile.g * tile.k * math.prod(tile.out),
            Direction.BWD_DATA: tile.n * tile.g * tile.c * math.prod(tile.input),
            Direction.BWD_FILTER: tile.g * tile.k * tile.c * math.prod(tile.filter),
            Direction.BWD_BIAS: tile.g * channels,
        }
        passes = 2 + bool(problem.beta) + bool(epilogue.residual)
        moved = sizes[Direction(problem.direction)] * self.sum * passes
        return moved / self.profile.move_bytes_per_second


ENGINES = ("fetch", "compute", "drain")


def simulate(tasks: list[Task], hop: float) -> float:
    """When the last task ends. Each engine takes its tasks in order, one at a time, and those that
    wait for another engine's a hop after that has ended."""
    queues = {engine: [t for t in tasks if t.engine == engine][::-1] for engine in ENGINES}
    running: list[tuple[float, int, Task | None]] = []  # None: somebody may begin now
    busy: set[str] = set()
    now, last, number = 0.0, 0.0, 0
    while any(queues.values()) or running:
        for engine, queue in queues.items():
            ends = [task.end for task in queue[-1].after] if queue else [None]
            if engine in busy or None in ends or now < max(ends, default=-hop) + hop:
                continue
            task = queue.pop()
            busy.add(engine)
            heapq.heappush(running, (now + task.seconds, number, task))
            number += 1
        now, _, done = heapq.heappop(running)
        if done is not None:
            done.end = last = now
            busy.discard(done.engine)
            heapq.heappush(running, (now + hop, -number, None))
    return last
