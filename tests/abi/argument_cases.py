"""Calls every function of the C interface with odd arguments, one at a time: null pointers, sizes
and enumerators at the ends of their types, NaN and infinities, in arguments and in each field of
the structures behind them. Run as a program, because a crash would end it.

Whatever is passed, a function returns a status of the interface, with a text if it failed and
without one if not; and the context goes on working.
"""

import faulthandler
import itertools
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from oocdnn._core import native
from oocdnn._core.cdefs import CDEF, Direction, DType, PoolMode, Status

FFI, LIB = native._ffi(), native._library()
NULL = FFI.NULL
NAN, INFINITY = float("nan"), float("inf")
INT64 = (-1, 0, -(2**63), 2**63 - 1, 2**62)
# Enumerators, ranks, numbers of threads and plans.
INT32 = (-1, 77, -(2**31), 2**31 - 1, 1_000_000)
DOUBLES = (NAN, INFINITY, -INFINITY, 1e308, -1.0)
PROBLEM = b"conv2d:fwd x2x4x9x9 w4x4x3x3"
STRINGS = (
    b"", b"\xff\xfe", b"conv2d:fwd", b"conv2d:fwd x2x4x9x9 w4x4x3x3x3", b"n1", b"%s%n",
    b"x" * 100_000,
    b"conv2d:fwd x0x4x9x9 w4x4x3x3", b"conv2d:fwd x2x4x9x9 w4x4x3x3 pad99999999999999999999999",
    b"conv2d:fwd x9223372036854775807x4x9x9 w4x4x3x3", b"conv2d:fwd x2x4x9x9 w4x4x3x3 groups0",
    b"conv1d:fwd x1x1x9 w1x1x3 dil-9223372036854775808",
)  # fmt: skip
# Pointers that may be null, by function and argument.
MAY_BE_NULL = {
    ("oocdnn_create", "options"), ("oocdnn_forget_plans", "path"), ("oocdnn_calibrate", "path"),
    ("oocdnn_calibrate", "progress"), ("oocdnn_calibrate", "progress_user"),
    ("oocdnn_plan_for_profile", "budget"), ("oocdnn_plan_for_profile", "busy_gpus"),
    ("oocdnn_run_chain", "residuals"), ("oocdnn_price_chain", "residuals"),
    ("oocdnn_make_schedule", "movements"), ("oocdnn_make_schedule", "bytes_at"),
    ("oocdnn_make_schedule", "waits"),
    ("oocdnn_improve_policies", "progress"), ("oocdnn_improve_policies", "progress_user"),
    ("oocdnn_steer_heap", "progress"), ("oocdnn_steer_heap", "progress_user"),
}  # fmt: skip


class Failed(Exception):
    pass


cases = 0


def check(label: str, status: int, wanted: set[int] | None = None) -> None:
    global cases
    cases += 1
    text = FFI.string(LIB.oocdnn_last_error()).decode("utf-8", "replace")
    if not 0 <= status <= Status.INTERNAL or (status == Status.OK) != (text == ""):
        raise Failed(f"{label}: status {status} with the text {text!r}")
    if status == Status.INTERNAL:
        raise Failed(f"{label}: an internal error: {text}")
    if wanted is not None and status not in wanted:
        raise Failed(f"{label}: status {status}, {text!r}")


def parsed_functions() -> dict[str, list[tuple[str, str]]]:
    """The functions that return a status: (type, name) of each argument."""
    text = " ".join(CDEF.split())
    found = {}
    for name, arguments in re.findall(r"oocdnn_status (oocdnn_\w+)\((.*?)\);", text):
        found[name] = [
            (re.sub(r"\w+$", "", one).strip(), re.search(r"\w+$", one)[0])
            for one in arguments.split(", ")
        ]
    return found


class Scene:
    """A call that is right, and what it points to."""

    def __init__(self, label: str, direction: int, dtype: int = DType.FLOAT32) -> None:
        self.label, self.dtype = label, dtype
        self.kept: list[Any] = []
        self.convolution = FFI.new("oocdnn_convolution *")
        self.convolution[0] = LIB.oocdnn_default_convolution(direction, 2)
        self.operands = FFI.new("oocdnn_operands *")
        self.tensors: dict[str, Any] = {}

    def add(self, slot: str, *shape: int, dtype: int | None = None) -> "Scene":
        dtype = self.dtype if dtype is None else dtype
        kind = {DType.BYTE: np.uint8, DType.FLOAT64: np.float64}.get(dtype, np.float32)
        array = np.ones(shape, kind)
        tensor = FFI.new("oocdnn_tensor *")
        data = FFI.from_buffer(array)
        tensor[0] = LIB.oocdnn_dense_tensor(dtype, len(shape), FFI.new("int64_t[]", shape), data)
        setattr(self.operands, slot, tensor)
        self.tensors[slot] = tensor
        self.kept += [array, data]
        return self

    def in_files(self) -> "Scene":
        for tensor in self.tensors.values():
            file = tempfile.TemporaryFile()  # noqa: SIM115
            file.write(bytes(1 << 14))
            file.flush()
            self.kept.append(file)
            tensor.fd = file.fileno()
        return self


def scenes() -> Iterator[Scene]:
    w, x, y = (4, 4, 3, 3), (2, 4, 9, 9), (2, 4, 7, 7)
    z = (2, 4, 3, 3)
    for mode in (0, 1):
        plain = Scene(f"forward, mode {mode}", Direction.FORWARD)
        plain.add("x", *x).add("w", *w).add("y", *y)
        plain.convolution.mode = mode
        yield plain
        for direction in (Direction.BACKWARD_DATA, Direction.BACKWARD_FILTER):
            gradient = Scene(f"direction {direction}, mode {mode}", direction)
            gradient.add("x", *x).add("w", *w).add("y", *y)
            gradient.convolution.mode = mode
            yield gradient
    files = Scene("forward in files", Direction.FORWARD)
    files.convolution.mode = 1
    yield files.add("x", *x).add("w", *w).add("y", *y).in_files()
    full = Scene("forward with all", Direction.FORWARD)
    full.add("x", *x).add("w", *w).add("y", *y).add("bias", 4).add("scale", 4).add("residual", *y)
    yield full.add("prologue", 2, 4, 2).add("sums", 2, 4, 2, dtype=DType.FLOAT64)
    pooled = Scene("pooled, saved", Direction.FORWARD).add("x", *x).add("w", *w).add("z", *z)
    joint = Scene("three gradients", Direction.BACKWARD_DATA).add("x", *x).add("w", *w)
    joint.add("z", *z).add("input", *x).add("dw", *w).add("db", 4)
    for scene in (pooled, joint):
        scene.convolution.activation = 1
        scene.convolution.pool.mode = PoolMode.MAX
        scene.convolution.pool.window[1:3] = scene.convolution.pool.stride[1:3] = [2, 2]
        scene.add("saved", 4096, dtype=DType.BYTE)
        yield scene
    pooled.convolution.saves = 1
    bias = Scene("bias gradient", Direction.BACKWARD_BIAS)
    yield bias.add("y", *y).add("bias", 4)
    empty = Scene("no samples", Direction.FORWARD)
    yield empty.add("x", 0, *x[1:]).add("w", *w).add("y", 0, *y[1:])


def leaves(kind: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Numbers and pointers within a structure, by path, with their types."""
    if kind.kind == "struct":
        for name, field in kind.fields:
            yield from leaves(field.type, (*path, name))
    elif kind.kind == "array":
        for i in range(kind.length):
            yield from leaves(kind.item, (*path, i))
    else:
        yield path, kind


def reached(owner: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        owner = owner[step] if isinstance(step, int) else getattr(owner, step)
    return owner


def put(owner: Any, path: tuple[Any, ...], value: Any) -> None:
    owner = reached(owner, path[:-1])
    if isinstance(path[-1], int):
        owner[path[-1]] = value
    else:
        setattr(owner, path[-1], value)


def odd_values(kind: Any, name: Any) -> tuple[Any, ...]:
    if kind.kind in ("pointer", "function"):
        return (NULL,)
    if kind.cname == "double":
        return DOUBLES
    if kind.cname == "int64_t":
        return INT64
    # A descriptor of a file may be one that is open.
    return (-(2**31), 2**31 - 1) if name == "fd" else INT32


def spoilt(owner: Any, label: str, but: tuple[str, ...] = ()) -> Iterator[str]:
    """A structure with each field odd in turn."""
    for path, kind in leaves(FFI.typeof(owner).item):
        if path[-1] in but:
            continue
        before = reached(owner, path)
        for value in odd_values(kind, path[-1]):
            put(owner, path, value)
            yield f"{label}.{'.'.join(map(str, path))} = {value}"
        put(owner, path, before)


def oddities(scene: Scene) -> Iterator[str]:
    yield from spoilt(scene.convolution, "convolution")
    yield from spoilt(scene.operands, "operands")
    for slot, tensor in scene.tensors.items():
        yield from spoilt(tensor, slot)


def calls_of(context: Any, scene: Scene) -> list[tuple[str, Callable[[], int]]]:
    c, o = scene.convolution, scene.operands
    size, text, seconds = FFI.new("int64_t *"), FFI.new("const char **"), FFI.new("double *")
    source = FFI.new("int64_t *", -2)
    return [
        ("run", lambda: LIB.oocdnn_run(context, c, o)),
        ("plan_in_core", lambda: LIB.oocdnn_plan_in_core(context, c, o, 0, size)),
        ("saved_bytes", lambda: LIB.oocdnn_saved_bytes(c, o, size)),
        ("problem_text", lambda: LIB.oocdnn_problem_text(c, o, text)),
        ("run_chain", lambda: LIB.oocdnn_run_chain(context, c, o, source, 1)),
        ("price_chain", lambda: LIB.oocdnn_price_chain(context, c, o, NULL, 1, seconds)),
        ("run_chain_backward", lambda: LIB.oocdnn_run_chain_backward(context, c, o, 1)),
        (
            "price_chain_backward",
            lambda: LIB.oocdnn_price_chain_backward(context, c, o, 1, seconds),
        ),
    ]


def structures(context: Any) -> None:
    for scene in scenes():
        calls = calls_of(context, scene)
        check(f"{scene.label}: run", calls[0][1](), {Status.OK})
        check(f"{scene.label}: plan_in_core", calls[1][1](), {Status.OK, Status.UNSUPPORTED})
        for label in oddities(scene):
            for name, call in calls:
                check(f"{scene.label}: {label}: {name}", call())
        check(f"{scene.label}: run again", calls[0][1](), {Status.OK})


def chains(context: Any) -> None:
    """Two links, of which what lies between is worked out from the first one."""
    first = Scene("first", Direction.FORWARD).add("x", 2, 4, 9, 9).add("w", 4, 4, 3, 3)
    second = Scene("second", Direction.FORWARD).add("w", 4, 4, 3, 3).add("y", 2, 4, 5, 5)
    first.convolution.pool.window[1:3] = [1, 1]
    gradients = Scene("gradients", Direction.FORWARD)
    gradients.add("x", 2, 4, 9, 9).add("w", 4, 4, 3, 3).add("dw", 4, 4, 3, 3).add("db", 4)
    gradients.operands.input = gradients.tensors["x"]
    gradients.operands.x = NULL
    last = Scene("last", Direction.FORWARD).add("w", 4, 4, 3, 3).add("z", 2, 4, 5, 5)
    links = FFI.new("oocdnn_convolution[2]")
    operands = FFI.new("oocdnn_operands[2]")
    residuals, seconds = FFI.new("int64_t[2]", [-2, -2]), FFI.new("double *")

    def play(label: str, scenes: tuple[Scene, Scene], wanted: set[int] | None = None) -> None:
        for i, scene in enumerate(scenes):
            links[i], operands[i] = scene.convolution[0], scene.operands[0]
        if scenes[0] is first:
            check(label, LIB.oocdnn_run_chain(context, links, operands, residuals, 2), wanted)
            arguments = context, links, operands, residuals, 2, seconds
            check(label, LIB.oocdnn_price_chain(*arguments), wanted)
        else:
            check(label, LIB.oocdnn_run_chain_backward(context, links, operands, 2), wanted)
            arguments = context, links, operands, 2, seconds
            check(label, LIB.oocdnn_price_chain_backward(*arguments), wanted)

    for pair in ((first, second), (gradients, last)):
        play("a chain", pair, {Status.OK})
        for scene in pair:
            for mode in (PoolMode.NONE, PoolMode.MAX):
                scene.convolution.pool.mode = mode
                for label in oddities(scene):
                    play(f"{scene.label}, pool {mode}: {label}", pair)
            scene.convolution.pool.mode = PoolMode.NONE
        play("a chain again", pair, {Status.OK})
        for scene in pair:
            scene.convolution.beta = 0.5
            play(f"{scene.label}, with beta", pair, {Status.UNSUPPORTED})
            scene.convolution.beta = 0.0
    for i, source in itertools.product(range(2), (*INT64, 1, -3)):
        residuals[i] = source
        play(f"residual {i} from {source}", (first, second))
        residuals[i] = -2


def options() -> None:
    made, given = FFI.new("oocdnn_context **"), FFI.new("oocdnn_options *")
    given[0] = LIB.oocdnn_default_options()
    device, budget = FFI.new("char[]", b"cpu"), FFI.new("char[]", b"1MiB")
    given.device, given.budget = device, budget
    profile = FFI.new("char[]", b"none")
    given.profile = profile
    check("create", LIB.oocdnn_create(given, made), {Status.OK})
    LIB.oocdnn_destroy(made[0])
    pointers = (
        "device",
        "budget",
        "engine",
        "wrap",
        "profile",
        "planning",
        "workspace",
        "busy_gpus",
        "borrow",
    )
    for label in spoilt(given, "options", but=pointers):
        name, _, value = label.removeprefix("options.").partition(" = ")
        possible = name in ("reproducible", "trace") or value == "0"
        possible = possible or (name, value) == ("threads", "77")
        possible = possible or (name == "planning_seconds" and value == "1e+308")
        check(label, LIB.oocdnn_create(given, made), None if possible else {Status.INVALID_PROBLEM})
        if made[0] != NULL:
            LIB.oocdnn_destroy(made[0])
            made[0] = NULL
    for name in pointers:
        before = getattr(given, name)
        for text in (*STRINGS, b"nan", b"inf%", b"-1", b"1e400", b"99999999999999999999"):
            if name == "profile":  # a file, which may be made
                continue
            kept = FFI.new("char[]", text)
            setattr(given, name, kept)
            check(f"options.{name} = {text[:40]!r}", LIB.oocdnn_create(given, made))
            if made[0] != NULL:
                LIB.oocdnn_destroy(made[0])
                made[0] = NULL
        setattr(given, name, before)
    del profile


class Step:
    """A training step of two saved tensors, one of which can be computed from the other."""

    def __init__(self) -> None:
        self.operations = FFI.new("oocdnn_step_operation[]", [(1e-3, 1e-4, 8, 4)] * 4)
        rows = [(64, 0, 1, 3, 3, 8, 1e-4, 0.0, 0, 1, 0), (32, 1, 1, 2, 3, -1, 0.0, 0.0, 1, 1, 0)]
        self.tensors = FFI.new("oocdnn_step_tensor[]", rows)
        self.recipes = FFI.new("oocdnn_step_recipe[]", [(1e-4, 1e-4, 8, 1)])
        self.inputs = FFI.new("int64_t[]", [0])
        self.given = FFI.new("oocdnn_training_step *")
        self.given[0] = (
            self.operations, self.tensors, self.recipes, self.inputs,
            4, 2, 2, 1, 1, 1e9, 1e9, 1e-6, 1e-6,
        )  # fmt: skip
        self.policies = FFI.new("int32_t[]", [1, 3])
        made = FFI.new("oocdnn_scheduler **")
        check("create_scheduler", LIB.oocdnn_create_scheduler(self.given, made), {Status.OK})
        self.scheduler = FFI.gc(made[0], LIB.oocdnn_destroy_scheduler)


def schedules() -> None:
    step, totals = Step(), FFI.new("oocdnn_schedule_totals *")
    made = FFI.new("oocdnn_scheduler **")

    def play(label: str) -> None:
        if LIB.oocdnn_create_scheduler(step.given, made) != Status.OK:
            check(label, LIB.oocdnn_create_scheduler(step.given, made), {Status.INVALID_PROBLEM})
            return
        search = FFI.new("oocdnn_search *", (40, 50, 1, 1e-3, 1.0))
        for limit in (-1, 0, 40, 2**60):
            given = FFI.new("int32_t[]", [1, 3])
            status = LIB.oocdnn_make_schedule(made[0], limit, given, totals, NULL, NULL, NULL)
            check(f"{label}: a schedule", status)
        given = FFI.new("int32_t[]", [0, 0])
        status = LIB.oocdnn_improve_policies(made[0], search, NULL, NULL, given, totals)
        check(f"{label}: a search", status, {Status.OK})
        LIB.oocdnn_destroy_scheduler(made[0])

    play("a step")
    for array in (step.operations, step.tensors, step.recipes):
        for i in range(len(array)):
            for label in spoilt(FFI.addressof(array, i), f"element {i}"):
                play(label)
    for label in spoilt(step.given, "step"):
        play(label)
    for source in (*INT64, 1):
        step.inputs[0] = source
        play(f"an input {source}")
    step.inputs[0] = 0
    search = FFI.new("oocdnn_search *", (40, 50, 1, 1e-3, 1.0))
    for label in spoilt(search, "search", but=("trials",)):
        arguments = search, NULL, NULL, step.policies, totals
        check(label, LIB.oocdnn_improve_policies(step.scheduler, *arguments))
    for policies in itertools.product((*INT32, 0, 2, 3, 4), repeat=2):
        given = FFI.new("int32_t[]", policies)
        possible = policies[0] in (0, 2) and policies[1] in (0, 3)
        status = LIB.oocdnn_make_schedule(step.scheduler, 64, given, totals, NULL, NULL, NULL)
        check(f"{policies}", status, {Status.OK if possible else Status.INVALID_PROBLEM})


class Heap:
    """An allocator's memory, two blocks of one segment; and a step that ends one of them."""

    def __init__(self) -> None:
        mib, base = 1 << 20, 1 << 40
        rows = [(base, 8 * mib, base, 0, 1, 1), (base + 8 * mib, 12 * mib, base, 0, 1, 0)]
        self.blocks = FFI.new("oocdnn_heap_block[]", rows)
        self.given = FFI.new("oocdnn_heap *", (self.blocks, 2, mib, 2 * mib, 20 * mib, 1))
        self.items = FFI.new("oocdnn_heap_item[]", [(7, 0), (1, 30 * mib), (1, 0), (7, 8 * mib)])
        self.carried = FFI.new("oocdnn_heap_item[]", [(7, 8 * mib)])
        self.persistent = FFI.new("int64_t[]", [0])
        self.step = FFI.new("oocdnn_heap_step *")
        self.groups = FFI.new("oocdnn_heap_group[]", [(2, 1, 0), (2, 0, 1)])
        self.step[0] = self.items, self.groups, self.carried, self.persistent, 4, 2, 1, 1
        self.search = FFI.new("oocdnn_steering_search *", (60 * mib, 1, 0.1))
        made = FFI.new("oocdnn_allocator **")
        check("create_allocator", LIB.oocdnn_create_allocator(self.given, made), {Status.OK})
        self.allocator = FFI.gc(made[0], LIB.oocdnn_destroy_allocator)


def heaps() -> None:
    heap = Heap()
    made, block = FFI.new("oocdnn_allocator **"), FFI.new("oocdnn_heap_block *")
    totals, steering = FFI.new("oocdnn_heap_totals *"), FFI.new("oocdnn_steering *")
    trimming = FFI.new("oocdnn_trimming *")
    sizes, length = FFI.new("const int64_t **"), FFI.new("int64_t *")

    def play(label: str) -> None:
        check(f"{label}: steps", LIB.oocdnn_simulate_heap(heap.given, heap.step, totals))
        arguments = heap.given, heap.step, heap.search, NULL, NULL, steering
        check(f"{label}: steering", LIB.oocdnn_steer_heap(*arguments))
        for limit in (*INT64, 60 * 2**20):
            arguments = heap.given, heap.step, limit, trimming
            check(f"{label}: trims", LIB.oocdnn_find_trims(*arguments))
        if LIB.oocdnn_create_allocator(heap.given, made) != Status.OK:
            check(label, LIB.oocdnn_create_allocator(heap.given, made), {Status.INVALID_PROBLEM})
            return
        for nbytes in (*INT64, 1, 2**43):
            check(f"{label}: a request", LIB.oocdnn_allocate_block(made[0], nbytes, block))
        check(f"{label}: a free", LIB.oocdnn_free_block(made[0], block.address), {Status.OK})
        for end in (*INT64, 2**40 + 2**30):
            check(f"{label}: filled", LIB.oocdnn_fill_heap(made[0], end, sizes, length))
        check(f"{label}: trimmed", LIB.oocdnn_trim_heap(made[0]), {Status.OK})
        LIB.oocdnn_destroy_allocator(made[0])

    play("a heap")
    for structure in (heap.blocks, heap.items, heap.groups, heap.carried):
        for i in range(len(structure)):
            for label in spoilt(FFI.addressof(structure, i), f"element {i}"):
                play(label)
    for owner, name in (
        (heap.given, "heap"),
        (heap.step, "requests"),
        (heap.search, "search"),
    ):
        for label in spoilt(owner, name):
            play(label)


def good_arguments(context: Any, scene: Scene) -> dict[str, dict[str, Any]]:
    """Valid values of each argument, by function; "" is for all."""
    micro = FFI.new("oocdnn_micro_batch[]", [(1, 1.0, 8), (2, 1.5, 16)])
    option = FFI.new("oocdnn_workspace_option[]", [(1.0, 8), (2.0, 4)])
    step, heap = Step(), Heap()
    scene.kept += [micro, option, step, heap]
    return {
        "": {
            "context": context,
            "convolution": scene.convolution,
            "links": scene.convolution,
            "operands": scene.operands,
            "residuals": FFI.new("int64_t *", -2),
            "problem": FFI.new("char[]", PROBLEM),
            "plan": FFI.new("char[]", b"n1"),
            "profile": FFI.new("char[]", b"/nowhere/profile"),
            "budget": FFI.new("char[]", b"1MiB"),
            "busy_gpus": FFI.new("char[]", b"0"),
            "policy": 1, "batch": 4, "count": 1, "best": 1, "random": 1, "seed": 1,
            "bytes": FFI.new("int64_t *"),
            "data": FFI.from_buffer(scene.kept[0]),
            "compute_seconds": FFI.new("double[]", [1.0]),
            "seconds": FFI.new("double *"),
            "choices": micro, "limit": 64, "total": 64, "kernels": 1,
            "options": FFI.new("const oocdnn_workspace_option *[]", [option]),
            "counts": FFI.new("int64_t[]", [2]),
            "chosen": FFI.new("int64_t[1]"),
            "progress": NULL, "progress_user": NULL,
            "step": step.given, "scheduler": step.scheduler, "policies": step.policies,
            "search": FFI.new("oocdnn_search *", (64, 10, 1, 0.1, 1.0)),
            "movements": FFI.new("oocdnn_movement[2]"), "bytes_at": FFI.new("int64_t[4]"),
            "waits": FFI.new("double[2]"),
            "heap": heap.given, "allocator": heap.allocator, "requests": heap.step,
            "address": 1 << 40, "end": (1 << 40) + (1 << 30),
        },
        "oocdnn_plan_in_core": {"budget": 0},
        "oocdnn_allocate_host": {"bytes": 64},
        "oocdnn_allocate_block": {"bytes": 64},
        "oocdnn_steer_heap": {"search": heap.search},
        "oocdnn_find_trims": {"limit": 60 * 2**20},
        "oocdnn_pin": {"bytes": 64},
        "oocdnn_create": {"options": FFI.new("oocdnn_options *")},
        "oocdnn_measure_parts": {"choices": FFI.new("const oocdnn_micro_batch **"),
                                 "count": FFI.new("int64_t *"), "batch": FFI.new("int64_t *")},
    }  # fmt: skip


def odd_arguments(name: str, kind: str, parameter: str) -> list[tuple[Any, set[int] | None]]:
    """Values of an argument, with the statuses that are right; None: any."""
    if kind.endswith("*"):
        possible = (name, parameter) in MAY_BE_NULL
        odd: list[tuple[Any, set[int] | None]]
        odd = [(NULL, None if possible else {Status.INVALID_PROBLEM})]
        if kind == "const char*":
            odd += [(FFI.new("char[]", text), None) for text in STRINGS]
        return odd
    values = {"int64_t": INT64, "int32_t": INT32}.get(kind, ())
    return [(value, None) for value in values]


def arguments(context: Any) -> None:
    scene = Scene("forward", Direction.FORWARD)
    scene.add("x", 2, 4, 9, 9).add("w", 4, 4, 3, 3).add("y", 2, 4, 7, 7)
    good = good_arguments(context, scene)
    functions = parsed_functions()
    if len(functions) < 30:
        raise Failed("functions were overlooked")
    calibrate = functions.pop("oocdnn_calibrate")  # takes minutes
    nothing = [NULL] * len(calibrate)
    check("calibrate", LIB.oocdnn_calibrate(*nothing), {Status.INVALID_PROBLEM})
    without_swapper(functions)
    for name, parameters in functions.items():
        values = []
        for kind, parameter in parameters:
            value = good.get(name, {}).get(parameter, good[""].get(parameter))
            made = kind.endswith("**") and name != "oocdnn_divide_workspace"
            if made or value is None:
                value = FFI.new(f"{kind.removesuffix('*').strip()} *")
            values.append(value)
        function = getattr(LIB, name)
        check(name, function(*values))
        for i, (kind, parameter) in enumerate(parameters):
            for value, wanted in odd_arguments(name, kind, parameter):
                given = [*values[:i], value, *values[i + 1 :]]
                check(f"{name}({parameter} = {value})", function(*given), wanted)


def without_swapper(functions: dict[str, Any]) -> None:
    """Takes the functions of swappers from the table: there is a swapper where a GPU is, and
    tests/gpu/test_swap.py has its cases."""
    for name in [name for name in functions if "oocdnn_swapper" in str(functions[name])]:
        parameters = functions.pop(name)
        function = getattr(LIB, name)
        if name == "oocdnn_create_swapper":
            check(name, function(0, NULL), {Status.INVALID_PROBLEM})
            made = FFI.new("oocdnn_swapper **")
            for ordinal in INT32:
                check(f"{name}({ordinal})", function(ordinal, made), {Status.UNSUPPORTED})
            continue
        for number in INT64:
            given = []
            for kind, _ in parameters[1:]:
                made = FFI.new(kind) if kind.endswith("*") else number % (1 << 31)
                given.append(made)
            check(f"{name}, {number}", function(NULL, *given), {Status.INVALID_PROBLEM})


def divisions() -> None:
    for kernels in ([(1e308, 1)], [(1e308, 1), (-1e308, 0)]):
        lists = [FFI.new("oocdnn_workspace_option[]", kernels) for _ in range(3)]
        counts = FFI.new("int64_t[]", [len(kernels)] * 3)
        chosen, made = FFI.new("int64_t[3]"), FFI.new("oocdnn_workspace_division *")
        lists_of = FFI.new("const oocdnn_workspace_option *[]", lists)
        for total in INT64:
            status = LIB.oocdnn_divide_workspace(lists_of, counts, 3, total, chosen, made)
            check(f"divide_workspace {kernels}", status, {Status.INVALID_PROBLEM})
    for seconds, samples, size in itertools.product((1e308, *DOUBLES), (1, *INT64), (0, *INT64)):
        one = FFI.new("oocdnn_micro_batch[]", [(samples, seconds, size)])
        found, length = FFI.new("const oocdnn_division **"), FFI.new("int64_t *")
        label = f"a choice of {samples} samples, {seconds} s, {size} bytes"
        for front in (LIB.oocdnn_pareto_divisions, LIB.oocdnn_even_divisions):
            check(label, front(one, 1, 8, found, length))
        check(label, LIB.oocdnn_divide_batch(one, 1, 8, 64, found))


def without_status() -> None:
    LIB.oocdnn_destroy(NULL)
    LIB.oocdnn_destroy_scheduler(NULL)
    LIB.oocdnn_destroy_allocator(NULL)
    LIB.oocdnn_destroy_swapper(NULL)
    LIB.oocdnn_free_host(NULL)
    LIB.oocdnn_unpin(NULL)
    if LIB.oocdnn_host_data(NULL) != NULL:
        raise Failed("host_data(NULL) is not NULL")
    shape = FFI.new("int64_t[]", [2**62] * 5)
    for rank in (*INT32, 0, 3, 5, 6):
        LIB.oocdnn_default_convolution(rank, rank)
        for given in (shape, NULL):
            tensor = LIB.oocdnn_dense_tensor(rank, rank, given, NULL)
            if any(tensor.shape[i] for i in range(5)) != (given != NULL and rank > 0):
                raise Failed(f"dense_tensor of rank {rank}")


def main() -> None:
    faulthandler.enable()
    options()
    made, given = FFI.new("oocdnn_context **"), FFI.new("oocdnn_options *")
    texts = [FFI.new("char[]", text) for text in (b"cpu", b"none", b"1MiB")]
    given.device, given.profile, given.budget = texts
    given.threads = 1
    check("create", LIB.oocdnn_create(given, made), {Status.OK})
    structures(made[0])
    chains(made[0])
    arguments(made[0])
    divisions()
    schedules()
    heaps()
    without_status()
    LIB.oocdnn_destroy(made[0])
    print(cases)


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(str(failure))
