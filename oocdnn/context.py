"""Contexts: a device with a budget, and what its last call did."""

import functools
import inspect
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Concatenate, ParamSpec, TypeVar

from oocdnn import chain, chain_gradients, functions, fused, gradients, upsampling, workspace
from oocdnn._arguments import flag, number_of, real, several
from oocdnn._arrays import pins
from oocdnn._arrays.results import Results
from oocdnn._calls import stack, windows
from oocdnn._calls.axes import by_axis
from oocdnn._calls.budget import budget_text, gpus_text
from oocdnn._calls.operation import MathName, math_of
from oocdnn._calls.prepared import Memory
from oocdnn._core.call import Convolution, Options, Slot, Tensor
from oocdnn._core.native import HostMemory, NativeContext, Progress
from oocdnn._core.repeated import Repeated
from oocdnn._core.requests import (
    price_chain,
    price_chain_backward,
    run_chain,
    run_chain_backward,
)
from oocdnn._core.workspace import measure_parts
from oocdnn.errors import InvalidProblem
from oocdnn.plans import Plan, Planning, Refinement, RunnerUp, plan_of

P = ParamSpec("P")
T = TypeVar("T")
MOST_THREADS = 1024
MOST_PLANS = 2**31 - 1


@dataclass(frozen=True)
class Stats:
    """What the last call on a context did. Bytes and seconds; times of the engines are busy times.

    `peak_device_bytes` is the high-water mark of what was booked, over all calls of the context
    since it was made or released, and never above `budget_bytes`. `overhead_device_bytes` are held
    by drivers and libraries and not bounded by the budget. `bytes_h2d` and `bytes_d2h` crossed
    toward and from the device, on the CPU device too. `device_allocations` and `prepared`
    (executables) are 0 after warm-up.
    `planning_seconds` went to looking for the plan; a first call searches for one, prepares engines
    and, on a GPU, times them. `overlap` is the sum of the three engines' seconds over `seconds`;
    where a call's arrays are all on a GPU it returns before its work is done, and times are those
    that the host saw. `split` gives the pieces on each axis: n, groups, k, c, d, h, w.
    """

    tiles: int = 0
    peak_device_bytes: int = 0
    overhead_device_bytes: int = 0
    bytes_h2d: int = 0
    bytes_d2h: int = 0
    device_allocations: int = 0
    prepared: int = 0
    budget_bytes: int = 0
    seconds: float = 0.0
    fetch_seconds: float = 0.0
    compute_seconds: float = 0.0
    drain_seconds: float = 0.0
    overlap: float = 0.0
    predicted_seconds: float = 0.0
    planning_seconds: float = 0.0
    split: dict[str, int] = field(default_factory=dict)
    engine: str = ""


def _bound(function: Callable[P, T]) -> Callable[Concatenate["Context", P], T]:
    """`function` as a method of Context: the same call, on that context."""

    @functools.wraps(function)
    def method(self: "Context", /, *args: P.args, **kwargs: P.kwargs) -> T:
        stack.push(self)
        try:
            return function(*args, **kwargs)
        finally:
            stack.pop(self)

    signature = inspect.signature(function)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    parameters = [own, *signature.parameters.values()]
    method.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return method


class Context:
    """A device and how it may be used.

    Arguments that are None are taken from the variable named with them, else from the default.

    device: "auto", "cpu" or "cuda:N" (OOCDNN_DEVICE).
    devices: several devices, of one kind or unlike ones, as ["cuda:0", "cuda:1"] or ["cuda:0",
        "cpu"]; excludes `device`. Each call is cut into a share for each of them, by what the
        profile and the first calls of the problem say of their speed: along samples, groups, rows
        or channels, whichever takes the least time. Arrays are in host memory or in files. Budget,
        `threads` and `host_cap` are of each device. Gradients of filters may be sums of shares,
        which are added in the order of the devices. In a reproducible context they are cut along
        channels and have the bits of one device; a GPU together with the CPU is refused there.
        Timelines, calibration and plans given as text are of one device; `plan` describes the
        share that takes longest.
    budget: the most memory of each device that tiles, resident operands, accumulators and workspace
        may take: bytes, "2GiB", "50%" of what is free, or "auto" (OOCDNN_BUDGET). The caller's
        arrays are not counted.
    reproducible: use only engines whose bits do not depend on the budget.
    math: what float32 is computed in. "fp32": products and sums of float32 alone (OOCDNN_MATH);
        "tf32": tensor cores, which round factors to 11 bits; "fp32x3": tensor cores, three products
        of TF32 for one of float32, with about float32's error; "fp32_fast": that, and Winograd's
        and Fourier's transforms, which round more often. Engines of a reproducible context, and of
        a device without such engines, compute in fp32 all the same. Where OOCDNN_MATH is set,
        "fp32" is what it says.
    threads: of the CPU device, or of staging for a GPU; None or 0 for all cores of the process, of
        staging for at most 12 (OOCDNN_THREADS).
    trace: record a timeline, see `take_trace`.
    engine: use only this one, "cudnn", "onednn", "depthwise", "fp32x3", "direct" or "reference"
        (OOCDNN_ENGINE).
    host_cap: bytes of host memory for staging, as many for arrays that are pinned because calls use
        them again, and as many for results that calls make (OOCDNN_PINNED_LIMIT, OOCDNN_AUTO_PIN).
    link_gb_per_s: put the CPU device behind a wire of this rate in each direction (OOCDNN_LINK).
    profile: file with the machine's constants (OOCDNN_PROFILE).
    planning: how plans are chosen (OOCDNN_PLANNING). "estimate": by the model of the machine; on a
        GPU a run of what it chose is timed, and others are looked at if that disappoints.
        "gradual": the same, but others are looked at only while that takes no longer than a call of
        the problem and a twentieth of all its calls so far. "measure": of the best few by the
        model, runs of a tile are timed in the first call, and the fastest is kept. "exhaustive": by
        the model, among all tile lengths and loop orders.
    planning_seconds: what measuring, an exhaustive search or the search for a chain may take, about
        (OOCDNN_PLANNING_SECONDS).
    workspace: the most device memory that an engine may take for its workspace, of the budget:
        bytes, "64MiB", or None for no limit (OOCDNN_WORKSPACE_LIMIT). Where arrays lie on the
        device, a batch is divided if engines that want more are faster so.
    busy_gpus: how many other GPUs of this host are busy at the same time, 0 to 63: plans count on
        the slower wires beside them that `oocdnn calibrate` has measured (OOCDNN_BUSY_GPUS).
        Without either, all but one of the programs that a launcher such as torchrun says it has
        started here (LOCAL_WORLD_SIZE). The CPU device does not mind.
    borrow: other GPUs, as ["cuda:1", "cuda:2"], over whose links copies between host memory and the
        device go too, through 24 MiB of their memory for each direction, beside CUDA's context
        there (OOCDNN_BORROW). The device has to reach their memory, best over NVLink; what it does
        not reach is an error here, and left out where the variable names it. Such a context has a
        profile of its own.
    wrap: devices around the device, inner first, for tests: "check", "limit:64MiB",
        "fault:copy:3", separated by commas.

    Used in a `with` block a context serves the functions called in it, and is closed at its end.
    Threads may share a context; calls on it take turns. A forked child may use it too.
    """

    def __init__(
        self,
        device: str | None = None,
        budget: int | str | None = None,
        *,
        devices: Sequence[str] | None = None,
        reproducible: bool = False,
        math: MathName = "fp32",
        threads: int | None = None,
        trace: bool = False,
        engine: str | None = None,
        host_cap: int | None = None,
        link_gb_per_s: float | None = None,
        profile: str | os.PathLike[str] | None = None,
        planning: Planning | None = None,
        planning_seconds: float | None = None,
        workspace: int | str | None = None,
        busy_gpus: int | None = None,
        borrow: Sequence[str] | None = None,
        wrap: str | None = None,
    ) -> None:
        self.math = math_of(math)
        self._entries: list[None] = []  # one for each block entered; appending is atomic
        self._last = Stats()
        options = Options(
            device=_devices_text(device, devices),
            budget=budget_text(budget),
            engine=engine,
            wrap=wrap,
            profile=profile,
            planning=planning,
            workspace=_workspace_text(workspace),
            busy_gpus=gpus_text(busy_gpus),
            borrow=None if borrow is None else _names_text("borrow", borrow),
            threads=windows.integer("threads", 0 if threads is None else threads, 0, MOST_THREADS),
            reproducible=flag("reproducible", reproducible),
            trace=flag("trace", trace),
            host_cap=windows.integer("host_cap", 0 if host_cap is None else host_cap, 0),
            link_gb_per_s=real(
                "link_gb_per_s", 0.0 if link_gb_per_s is None else link_gb_per_s, 0.0
            ),
            planning_seconds=number_of(
                "planning_seconds", 0.0 if planning_seconds is None else planning_seconds
            ),
        )
        self._native = NativeContext(options)
        self.prepared = Memory()
        self.device = self._native.device  # "cpu", "cuda:0", "cuda:0,cuda:1", ...
        # Bytes of arrays that are pinned without being asked for (see pins), and of results.
        self.auto_pin_bytes = self._native.auto_pin_bytes()
        self.results = Results(self._native.allocate_host, self.auto_pin_bytes)

    def __enter__(self) -> "Context":
        stack.push(self)
        self._entries.append(None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        stack.pop(self)
        self._entries.pop()
        if not self._entries:
            self.close()

    def run(
        self,
        call: Convolution,
        tensors: dict[Slot, Tensor],
        progress: Progress | None = None,
    ) -> None:
        """Runs a call whose arrays were looked at already; the functions end here."""
        self._native.run(call, tensors, progress)

    def run_again(self, repeated: Repeated, addresses: Sequence[int]) -> None:
        """The same of a call that ran before; the last address is the stream."""
        repeated.run(self._native, addresses)

    def run_chain(
        self,
        calls: Sequence[Convolution],
        tensors: Sequence[dict[Slot, Tensor]],
        residuals: Sequence[int],
        progress: Progress | None = None,
    ) -> None:
        """The same of a chain's links."""
        run_chain(self._native, calls, tensors, residuals, progress)

    def run_chain_backward(
        self,
        calls: Sequence[Convolution],
        tensors: Sequence[dict[Slot, Tensor]],
        progress: Progress | None = None,
    ) -> None:
        """The same of a chain's gradients."""
        run_chain_backward(self._native, calls, tensors, progress)

    def price_chain(
        self,
        calls: Sequence[Convolution],
        tensors: Sequence[dict[Slot, Tensor]],
        residuals: Sequence[int],
    ) -> float:
        """The seconds that `run_chain` is predicted to take; tensors may be without memory."""
        return price_chain(self._native, calls, tensors, residuals)

    def price_chain_backward(
        self, calls: Sequence[Convolution], tensors: Sequence[dict[Slot, Tensor]]
    ) -> float:
        """The same of `run_chain_backward`."""
        return price_chain_backward(self._native, calls, tensors)

    @property
    def stats(self) -> Stats:
        """What the last call did; readable after `close` too."""
        if not self._native.closed:
            fields = self._native.stats()
            self._last = Stats(**{**fields, "split": by_axis(fields["split"])})
        return self._last

    def plan(self, problem: str) -> Plan:
        """Plans a problem string without running it, operands in pageable memory but for those that
        it says are pinned (`x@pin`), on the device (`x@dev`) or in a file (`x@file`).

        Raises InvalidProblem for a string that cannot be read, OutOfMemory where nothing fits.
        """
        return plan_of(problem, self._native.plan(problem))

    def price(self, problem: str, plan: str) -> Plan:
        """What a plan of one's own would take.

        `plan` is written as in `Plan.plan`; what it leaves out is a whole axis, the usual loop
        order, two slots, the engine that is predicted to be the fastest: "n1 h16 slots 3".

        Nothing is prepared: bytes are estimates, and the budget does not bound them. Raises
        InvalidProblem for what cannot be read, or is no plan for the problem.
        """
        return plan_of(problem, self._native.price(problem, plan))

    def use_plan(self, problem: str, plan: str) -> None:
        """Follows a plan in calls of this problem with all operands where the problem string says,
        in host memory where it says nothing.

        Where the plan was found with another engine's bits, results have those. Raises
        InvalidProblem for what is no plan of the problem, OutOfMemory where it is too large for
        the budget, Unsupported where its engine refuses.
        """
        self._native.use_plan(problem, plan)

    def candidates(
        self, problem: str, best: int = 8, random: int = 0, seed: int = 0
    ) -> list[RunnerUp]:
        """Plans that fit by estimate, with the operands where the problem string says: the best
        that the search found, fastest first, then random ones, the same for the same seed."""
        numbers = [windows.integer("best", best, 0, MOST_PLANS)]
        numbers += [windows.integer("random", random, 0, MOST_PLANS)]
        numbers += [windows.integer("seed", seed, -(2**60))]
        found: list[RunnerUp] = json.loads(self._native.candidates(problem, *numbers))
        return found

    def measure_parts(
        self, problem: str, policy: workspace.Policy = "powers_of_two"
    ) -> list[workspace.MicroBatch]:
        """Times a problem on parts of its batch, all arrays on the device.

        Parts of the sizes of `workspace.micro_batch_sizes`, on every engine, each with as much
        workspace as the context allows and then with less and less: what the functions of
        `oocdnn.workspace` choose from. Tiles are timed in device memory within the budget; sizes
        that do not fit are left out. Raises OutOfMemory where none fits, Unsupported where no
        engine serves.
        """
        found, _ = measure_parts(self._native, problem, workspace.batch_policy(policy))
        return [workspace.MicroBatch(*one) for one in found]

    def divisions(
        self, problem: str, policy: workspace.Policy = "powers_of_two"
    ) -> list[workspace.Division]:
        """The ways to run a problem that are worth having, by measurement: fastest first, each with
        less workspace than the one before. A call is run so with `workspace=` its bytes."""
        found, batch = measure_parts(self._native, problem, workspace.batch_policy(policy))
        return workspace.even([workspace.MicroBatch(*one) for one in found], batch)

    def calibrate(self, progress: Progress | None = None) -> Path:
        """Measures this machine for all types and directions, and keeps that in its profile.

        Plans rest on it. The first call of each kind measures the little that it needs, in well
        under a second; this measures more tiles, and takes up to three minutes on a GPU. What has
        been measured is not again, so it may be interrupted. `progress(done, total)` is told after
        each piece. Returns the profile's file. Raises InvalidProblem where nothing is kept.
        """
        return Path(self._native.calibrate(progress))

    def refine(self, problem: str, compute_seconds: Sequence[float]) -> Refinement:
        """Has the machine's profile agree with calls of a problem that were made.

        `compute_seconds` are those of `stats` after each call, all arrays in host memory. The rate
        of the tile of the problem's plan becomes that of the fastest call, is kept, and later plans
        rest on it. Raises InvalidProblem where nothing is kept, or no time is given.
        """
        given = several("compute_seconds", compute_seconds, "a list of seconds")
        seconds = [number_of(f"compute_seconds[{i}]", one) for i, one in enumerate(given)]
        return Refinement(**json.loads(self._native.refine(problem, seconds)))

    def host_memory(self, size: int) -> HostMemory:
        """New host memory that the device reaches at full speed; `oocdnn.empty` makes arrays."""
        return self._native.allocate_host(windows.integer("size", size, 0))

    def pin(self, address: int, size: int) -> HostMemory:
        """Makes the caller's memory as good, until `close` of the result; see `oocdnn.pin`."""
        return self._native.pin(address, size)

    def release(self) -> None:
        """Gives memory back until the next call: the device's, and what is pinned by itself."""
        self._native.release()
        self.results.release()
        pins.release(self)

    def take_trace(self) -> str:
        """The timeline since creation or the last take, as Chrome trace JSON. Needs trace=True."""
        return self._native.take_trace()

    def check_reports(self) -> list[str]:
        """What a device wrapped with "check" complains about."""
        return self._native.check_reports().splitlines()

    def info(self) -> str:
        """What was found and what is missing, as JSON."""
        return self._native.info()

    @property
    def closed(self) -> bool:
        return self._native.closed

    def close(self) -> None:
        """Frees everything; calls of other threads are let end first. May be called again."""
        if not self._native.closed:
            self._last = self.stats
            self._native.close()
            self.auto_pin_bytes = 0
            self.results.close()
            pins.release(self)

    conv1d = _bound(functions.conv1d)
    conv2d = _bound(functions.conv2d)
    conv3d = _bound(functions.conv3d)
    conv_transpose1d = _bound(functions.conv_transpose1d)
    conv_transpose2d = _bound(functions.conv_transpose2d)
    conv_transpose3d = _bound(functions.conv_transpose3d)
    conv_backward_data = _bound(gradients.conv_backward_data)
    conv_backward_filter = _bound(gradients.conv_backward_filter)
    conv_backward_bias = _bound(gradients.conv_backward_bias)
    conv_bias_act_pool = _bound(fused.conv_bias_act_pool)
    conv_bias_act_pool_backward = _bound(fused.conv_bias_act_pool_backward)
    conv_upsample = _bound(upsampling.conv_upsample)
    conv_chain = _bound(chain.conv_chain)
    conv_chain_backward = _bound(chain_gradients.conv_chain_backward)


def _devices_text(device: str | None, devices: Sequence[str] | None) -> str | None:
    """The devices as the core library takes them."""
    if devices is None:
        return device
    if device is not None:
        raise InvalidProblem(f"device is {device!r} and devices {devices!r}: give one of the two")
    text = _names_text("devices", devices)
    if not text:
        raise InvalidProblem("devices is empty; name at least one device")
    return text


def _names_text(argument: str, names: Sequence[str]) -> str:
    """Names of devices as the core library takes them."""
    if isinstance(names, Mapping) or not isinstance(names, Iterable):
        raise InvalidProblem(f'{argument} is {names!r}; write names such as ["cuda:0"]')
    names = [names] if isinstance(names, str) else list(names)
    for name in names:
        if not isinstance(name, str) or not name or "," in name:
            raise InvalidProblem(f'{argument} has {name!r}; write names such as "cuda:0"')
    return ",".join(names)


def _workspace_text(workspace: int | str | None) -> str | None:
    if workspace is None or isinstance(workspace, str):
        return workspace
    return str(windows.integer("workspace", workspace, 0))


stack.set_factory(Context)
