"""Networks trained plainly, within limits, and in the other ways that PyTorch has for less memory:
the set `training` of `oocdnn bench`.

One row for each way of training. Of the bytes, `driver_gib` counts the context, libraries and all
that the allocator reserved, while the timed steps ran; `driver_most_gib` also in the steps before
them, which are recorded and watched. `steady` has what the timed steps added to the counters of
PyTorch's allocator and of page-locked host memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from oocdnn._arguments import lender
from oocdnn.bench.training.device import Device, loop_seconds, resident_bytes, seconds_of
from oocdnn.bench.training.models import MODELS, Training
from oocdnn.bench.training.peers import PEERS
from oocdnn.bench.training.profile import hooks, profiled
from oocdnn.bench.training.rows import GIB, Row, Rows, tidy
from oocdnn.errors import InvalidProblem, OutOfMemory
from oocdnn.network.planner import Plan

WARM, TIMED = 3, 5
WARM_COMPILED = 8  # the allocator's gaps are looked at in the first steps
FIRST = 60  # steps within a limit at most, until its plan is final
SEARCHING = 1000  # steps at most, until no faster one is searched for
FULL_SPEED = 1.01  # of the plain step's time
BATCHES = 32  # the largest batch is a multiple of it
FILL = 0.7  # of the device
TIMES = (1.24, 1.35)  # of the plain step's, for which the least activations are said
GAPS = 1.06  # of the least bytes, so that the allocator's gaps have room
SLOWEST = 1.5  # of the plain step's time: the search for the least activations ends


@dataclass(frozen=True)
class Case:
    """A network, the images of its batch (0: what fills the share `fill` of the device, or the
    model's own for a comparison), its arithmetic, whether channels are last, and limits where the
    command line has none."""

    model: str
    images: int = 0
    mode: str = "bf16"
    last: bool = False
    limits: tuple[str, ...] = ()
    fill: float = 0.0
    size: int = 0

    def training(self, device: Device, images: int = 0) -> Training:
        return Training(
            MODELS[self.model],
            self.mode,
            device.kind,
            images=images or self.images,
            size=self.size,
            last=self.last,
        )


CASES = {
    "resnet50-bf16": Case("resnet50", 512, "bf16", True, ("2x", "16", "10")),
    "resnet50-tf32": Case("resnet50", 512, "tf32", False, ("16",)),
    "vgg16-256": Case("vgg16", 256, "tf32", False, ("16",)),
    "vgg16-512": Case("vgg16", 512, "tf32", False, ("24",)),
    "unet3d-bf16": Case("unet3d", 2, "bf16", False, ("0.5x",)),
    "convnext-fill": Case("timm:convnext_base", 0, "bf16", False, ("0.5x",), FILL),
    "efficientnet-fill": Case("efficientnet_v2_s", 0, "bf16", True, ("0.5x",), FILL),
    "deeplab-fill": Case("deeplabv3_resnet101", 0, "bf16", True, ("0.5x",), FILL),
    "resnet1517-bf16": Case("resnet1517", 64, "bf16", True, ("12",)),
    # The table of activation bytes.
    "alexnet-tf32": Case("alexnet", 1024, "tf32"),
    "vgg16-tf32": Case("vgg16", 128, "tf32"),
    "resnet152-bf16": Case("resnet152", 256, "bf16", True),
}
LIMITS = ("0.5x",)
QUICK = ("small", "small_unet3d")  # with peers: in less than two minutes on two cores
QUICK_PEERS = ("save-on-cpu", "checkpoint", "accumulate")


@dataclass(frozen=True)
class Wish:
    """Options of a measurement.

    Args:
        images: In a batch; None: the case's.
        size: Pixels of an axis; None: the case's.
        mode: Arithmetic; None: the case's.
        last: Whether channels are last; None: as the case has it.
        limits: GiB, or with an x a share of what the plain step needs; none: the case's.
        borrow: Other GPUs within limits, as "cuda:1", or with bytes, as "cuda:1=40GiB".
        planning: Seconds for one plan.
        profile: Adds where the time goes, kernel by kernel, what the GPU idles beyond the plain
            step, and what the limit's hooks take the host.
        needs: Looks for the least limit at which the plain step runs at full speed; without it the
            plain step's own bytes stand for that.
        peers: Names of `PEERS`: each trains without a cap, and under each limit that is less than
            it took.
        compiled: Also compiles the network, in core and within each limit.
        only_peers: Leaves out the rows within limits.
        largest: Looks for the largest batch within each limit instead.
        tries: Batches that are tried within a limit.
        activations: Looks for the least bytes of activations instead: the peak of what is allocated
            less parameters, gradients, the state of the optimizer, and the batch.
        shares: Of the activations.
        steps: Further ones, and what grows in them.
    """

    images: int | None = None
    size: int | None = None
    mode: str | None = None
    last: bool | None = None
    limits: tuple[str, ...] = ()
    borrow: tuple[str, ...] = ()
    planning: float = 2.0
    profile: bool = False
    needs: bool = False
    peers: tuple[str, ...] = ()
    compiled: bool = False
    only_peers: bool = False
    largest: bool = False
    tries: int = 3
    activations: bool = False
    shares: tuple[float, ...] = (0.35, 0.2, 0.1, 0.05, 0.02)
    steps: int = 0


class Study:
    """One case: a row for each way of training."""

    def __init__(self, device: Device, rows: Rows, case: Case, name: str, given: Wish) -> None:
        self.device, self.rows, self.case, self.given = device, rows, case, given
        self.plain: Row = {}
        self.needs = 0
        self._peak = 0  # of the last batch that was tried
        self.about: Row = {"case": name, "gpu": device.name()}
        self.about |= {"torch": torch.__version__, "model": case.model, "images": case.images}
        self.about |= {"size": case.size or MODELS[case.model].size}
        self.about |= {"arithmetic": case.mode, "channels_last": case.last}

    def run(self) -> None:
        if self.case.fill and not self.case.images:
            most = int(self.case.fill * self.device.total())
            row = self._attempt("fill", lambda: {"images": self._largest_plain(most)})
            if row is None:
                return
            self._sized(row["images"])
        else:
            self._sized(self.case.images or MODELS[self.case.model].sample)
        given = self.given
        wanted = given.limits or self.case.limits or LIMITS
        if given.largest:
            for text in wanted:
                self.largest(int(float(text) * GIB))
            return
        self.plain = self._attempt("plain", self._plain) or {}
        self.needs = int(self.plain.get("needs_gib", 0) * GIB)
        if given.activations:
            self.activations()
            return
        limits = _limits(wanted, self.needs)
        if not given.only_peers:
            for limit in limits:
                self._attempt("limit", partial(self._within, limit), limit)
        if given.compiled:
            self.compiled(wanted)
        for name in given.peers:
            self.peer(name, limits)

    def _sized(self, images: int) -> None:
        self.case = dataclasses.replace(self.case, images=images)
        self.about["images"] = images

    def _attempt(
        self, way: str, measure: Callable[[], Row], limit: int | None = None, **more: Any
    ) -> Row | None:
        """The row of a way of training; beside the plain step, where there is one."""

        def beside() -> Row:
            # A mode that counts tensors would keep a network from being compiled.
            compiled = way.startswith("compiled")
            with contextlib.nullcontext() if compiled else self.device.counted():
                row = measure()
            if self.plain and "seconds" in row:
                row["of_plain"] = row["seconds"] / self.plain["seconds"]
            profile, plain = row.get("profile"), self.plain.get("profile")
            if profile and plain:
                idle = _idle_ms(profile) - _idle_ms(plain)
                row["idle_beyond_plain"] = idle / profile["span_ms"]
            return row

        known = self.about | {"way": way} | more
        if limit is not None:
            known["limit_gib"] = limit / GIB
        return self.rows.attempt(known, beside)

    # Ways of training.

    def _plain(self) -> Row:
        training = self.case.training(self.device)
        row, _ = self._timed(training, WARM, TIMED)
        if self.given.needs:
            row["needs_gib"] = self._needed(training, row) / GIB
        else:
            row["needs_gib"] = row["driver_gib"]
        return row

    def _within(self, limit: int) -> Row:
        training = self.case.training(self.device)
        borrow = dict(map(lender, self.given.borrow))
        run = self.device.limit(limit, self.given.planning, borrow)
        with run:
            row, batch = self._timed(
                training, WARM, TIMED, lambda: run.settled, lambda: run.searching
            )
            if run.plan is not None:
                told = run.plan.explain()
                row |= _told(run.plan, row)
                row["in_parts"] = sum(len(known.parts) for known in run._steps.kinds)
                if told.reserved is not None:
                    predicted = row["others_gib"] + told.reserved / GIB
                    row["predicted_driver_gib"] = predicted
                    row["driver_of_predicted"] = row["driver_gib"] / predicted
            row["borrow"] = borrow
            row["state"] = run._steps.mode.value
            row["within"] = row["driver_gib"] * GIB <= limit
            if self.given.profile:
                row["hooks"] = hooks(run, lambda: training.step(*batch))
            if self.given.steps:
                row["growth"] = self._growth(training, batch, self.given.steps)
        if self.plain:
            first = len(self.plain["losses"])
            row["losses_equal"] = row["losses"][:first] == self.plain["losses"]
        return row

    def compiled(self, wanted: tuple[str, ...]) -> None:
        """The network compiled: in core, and within the limits, of which shares are those of what
        the compiled step needs. The CPU's bytes are not counted."""
        core = self._attempt("compiled", self._compiled)
        needs = int(core["driver_gib"] * GIB) if core else 0
        for limit in _limits(wanted, needs):
            self._attempt("compiled limit", partial(self._compiled, limit, core), limit)

    def _compiled(self, limit: int | None = None, core: Row | None = None) -> Row:
        from oocdnn.torch.compiled import plans
        from oocdnn.torch.compiled.backend import oocdnn

        torch._dynamo.reset()
        training = self.case.training(self.device)
        if limit is None:
            training.forward = torch.compile(training.net)
        else:
            options = {"memory_limit": limit, "planning": self.given.planning}
            training.forward = torch.compile(training.net, backend=oocdnn, options=options)
        try:
            row, _ = self._timed(training, WARM_COMPILED, TIMED)
        finally:
            torch._dynamo.reset()
        if limit is not None:
            row |= _told(plans()[-1], row)
            row["within"] = row["driver_gib"] * GIB <= limit
        if core is not None:
            row["of_compiled"] = row["seconds"] / core["seconds"]
            apart = zip(row["losses"], core["losses"], strict=True)
            row["losses_apart"] = max(abs(one / other - 1) for one, other in apart)
        return row

    def _timed(
        self,
        training: Training,
        warm: int,
        timed: int,
        settled: Callable[[], bool] = lambda: True,
        searching: Callable[[], bool] = lambda: False,
    ) -> tuple[Row, Any]:
        """Steps with one batch; the last `timed` of them count, after `warm` ones and what it takes
        until it is settled and no faster plan is searched for. Also returns the batch."""
        device, batch = self.device, training.batch()
        losses: list[torch.Tensor] = []
        seconds, loops, most = [], [], 0
        before: dict[str, int] = {}
        while len(losses) < warm + timed:
            if len(losses) == warm:
                if warm < (SEARCHING if searching() else 0 if settled() else FIRST):
                    warm += 1
                else:
                    device.restart()
                    before = device.counters()
            loops.append(loop_seconds())
            took, loss = seconds_of(device, lambda: training.step(*batch))
            losses.append(loss)
            seconds.append(took)
            most = max(most, device.most_driver())
        after = device.counters()
        median = statistics.median(seconds[-timed:])
        row: Row = {
            "seconds": median,
            "least_seconds": min(seconds[-timed:]),
            "host_loop_ms": 1e3 * statistics.median(loops[-timed:]),
            "images_per_second": training.images / median,
            "first_steps": warm,
            "all_seconds": [round(one, 4) for one in seconds],
            "allocated_gib": device.most_allocated() / GIB,
            "reserved_gib": device.most_reserved() / GIB,
            "others_gib": device.others() / GIB,
            "driver_gib": device.most_driver() / GIB,
            "driver_most_gib": most / GIB,
            "fixed_gib": (training.fixed_bytes() + _bytes(batch)) / GIB,
            "steady": {name: after[name] - before[name] for name in after},
            "losses": [loss.item() for loss in losses],
        }
        if self.given.profile and device.kind == "cuda":
            row["profile"] = profiled(lambda: training.step(*batch))
        return row, batch

    def _growth(self, training: Training, batch: Any, steps: int) -> Row:
        """Bytes after 100 further steps, and after all."""
        found: Row = {}
        for number in range(1, steps + 1):
            training.step(*batch)
            if number in (100, steps):
                self.device.finish()
                found[f"after {number}"] = {
                    "allocated": self.device.allocated(),
                    "most_reserved": self.device.most_reserved(),
                    "driver": self.device.most_driver(),
                    "resident_in_host_memory": resident_bytes(),
                }
        return found

    def _needed(self, training: Training, plain: Row) -> int:
        """The least limit at which the plain step has its full speed, by bisection."""
        device, batch = self.device, training.batch()
        low, high = (int(plain[name] * GIB) for name in ("allocated_gib", "reserved_gib"))
        while high - low > max(high // 64, 1):
            middle = (low + high) // 2
            device.trim()
            device.cap(middle)
            try:
                for _ in range(WARM):
                    training.step(*batch)
                before = device.counters().get("retries", 0)
                spent = [seconds_of(device, lambda: training.step(*batch))[0] for _ in range(3)]
                full = statistics.median(spent) <= FULL_SPEED * plain["seconds"]
                full = full and device.counters().get("retries", 0) == before
            except torch.OutOfMemoryError:
                full = False
            low, high = (low, middle) if full else (middle, high)
        device.cap(None)
        return device.others() + high

    def peer(self, name: str, limits: list[int]) -> None:
        """A peer without a cap, and under the limits that are less than it takes so."""
        if name == "accumulate":
            for limit in limits:
                self._attempt(name, partial(self._accumulated, limit), limit)
            return
        trained: list[Training] = []

        def free() -> Row:
            trained.append(self.case.training(self.device))
            entered.enter_context(PEERS[name](trained[0]))
            return self._timed(trained[0], 2, 3)[0]

        def capped(limit: int) -> Row:
            self.device.cap(limit - self.device.others())
            return self._timed(trained[0], 2, 3)[0]

        with contextlib.ExitStack() as entered:
            row = self._attempt(name, free)
            smaller = (
                []
                if row is None
                else [
                    limit
                    for limit in sorted(limits, reverse=True)
                    if row["allocated_gib"] + row["others_gib"] <= limit / GIB < row["driver_gib"]
                ]
            )
            for limit in smaller:
                self._attempt(name, partial(capped, limit), limit)
        trained.clear()
        tidy(self.device)

    def _accumulated(self, limit: int) -> Row:
        """In 2, 4, 8, ... parts, the fewest that fit."""
        training, parts = self.case.training(self.device), 1
        while True:
            parts *= 2
            if parts > training.images:
                raise RuntimeError("one image alone does not fit")
            try:
                training.parts = parts
                self.device.cap(limit - self.device.others())
                return self._timed(training, 2, 3)[0] | {"parts": parts}
            except torch.OutOfMemoryError:
                training.optimizer.zero_grad(set_to_none=True)
            tidy(self.device)

    # The largest batch.

    def largest(self, limit: int) -> None:
        """The largest batches of the plain step and within the limit, and their images a second."""
        known = {"limit_gib": limit / GIB}

        def plain() -> Row:
            images = self._largest_plain(limit - self.device.others())
            tidy(self.device)
            training = self.case.training(self.device, images)
            self.device.cap(limit - self.device.others())
            row = self._timed(training, WARM, TIMED)[0]
            return row | {"images": images}

        self.plain = {}
        best = self._attempt("plain, largest", plain, limit)
        if best is None:
            return
        step, images = self._multiple(), 5 * best["images"]
        tried: set[int] = set()
        for _ in range(self.given.tries):
            images = max(images // step * step, step)
            if images in tried:
                return
            tried.add(images)
            case, self.case = self.case, dataclasses.replace(self.case, images=images)
            row = self._attempt("limit, largest", lambda: self._within(limit), limit, images=images)
            self.case = case
            if row is not None:
                times = images / best["images"]
                speed = row["images_per_second"] / best["images_per_second"]
                told = {"times_plain": times, "speed_of_plain": speed}
                self.rows.add(self.about | known | {"way": "largest", "images": images} | told)
                images = images * 5 // 4
            else:
                least = self.rows.rows[-1].get("least_gib", 0.0) * GIB
                others = self.device.others()
                short = (limit - others) / (least - others) if least > limit else 1.0
                images = int(min(short, 0.9) * images)

    def _multiple(self) -> int:
        """Of images, which batches are a multiple of."""
        return BATCHES if MODELS[self.case.model].dims == 2 else 1

    def _largest_plain(self, most: int) -> int:
        """The largest batch whose plain step fits into so many bytes for tensors: a first guess by
        the bytes of two small ones, then one multiple after the other."""
        peaks = []
        step = self._multiple()
        for images in (step, 2 * step):
            if not self._fits(images, most):
                raise OutOfMemory(f"{images} images do not fit into {most} bytes")
            peaks.append(self._peak)
        slope = max((peaks[1] - peaks[0]) / step, 1.0)
        guess = int((most - peaks[0]) / slope + step) // step * step
        images = max(guess, step)
        if self._fits(images, most):
            while self._fits(images + step, most):
                images += step
            return images
        while images > step and not self._fits(images - step, most):
            images -= step
        return images - step

    def _fits(self, images: int, most: int) -> bool:
        try:
            training = self.case.training(self.device, images)
            self.device.trim()
            self.device.cap(most)
            batch = training.batch()
            for _ in range(2):
                training.step(*batch)
            self.device.finish()
        except torch.OutOfMemoryError:
            return False
        finally:
            training = batch = None  # type: ignore[assignment]
            self._peak = self.device.most_allocated()
            tidy(self.device)
        return True

    # Activations.

    def activations(self) -> None:
        """Rows at smaller and smaller limits, and the least activations at two times."""
        if not self.plain:
            return
        fixed = int(self.plain["fixed_gib"] * GIB)
        whole = int(self.plain["allocated_gib"] * GIB) - fixed
        found: list[Row] = []
        shares = list(self.given.shares)
        while shares:
            share = shares.pop(0)

            def within(share: float = share) -> Row:
                row = self._within(self.device.others() + fixed + int(share * whole))
                left = int(row["allocated_gib"] * GIB) - fixed
                driver = int((row["driver_gib"] - row["others_gib"]) * GIB) - fixed
                return row | {
                    "activations_gib": left / GIB,
                    "plain_activations_gib": whole / GIB,
                    "saved": 1 - left / whole,
                    "saved_of_driver": 1 - driver / whole,
                }

            row = self._attempt("limit, activations", within, share=share)
            if row is None:  # once more with the least limit, where that is another one
                least = self.rows.rows[-1].get("least_gib", 0.0) * GIB
                least_share = GAPS * (least - self.device.others() - fixed) / whole
                shares = (
                    [least_share]
                    if share < least_share < (found[-1]["share"] if found else 1.0)
                    else []
                )
                continue
            found.append(row)
            if row["of_plain"] > SLOWEST:
                break
        for most in TIMES:
            fast = [row for row in found if row["of_plain"] <= most]
            if fast:
                best = max(fast, key=lambda row: row["saved"])
                names = ("share", "of_plain", "saved", "saved_of_driver", "activations_gib")
                told = {name: best[name] for name in names}
                self.rows.add(self.about | {"way": "least activations", "at_most": most} | told)


def _limits(wanted: tuple[str, ...], needs: int) -> list[int]:
    """Bytes of limits that are given in GiB, or as "0.5x" of the needs if these are known."""
    shares = [(text.rstrip("x"), text.endswith("x")) for text in wanted]
    return [int(float(n) * (needs if x else GIB)) for n, x in shares if needs or not x]


def _told(plan: Plan, row: Row) -> Row:
    """Columns of a row: the plan's predictions, and measurements divided by them."""
    told = plan.explain()
    return {
        "predicted_seconds": told.step,
        "of_predicted": row["seconds"] / told.step,
        "floor_seconds": told.floor,
        "predicted_gib": told.peak / GIB,
        "peak_of_predicted": row["allocated_gib"] * GIB / told.peak,
        "computed_again_ms": 1e3 * told.recomputing,
        "waiting_ms": 1e3 * told.waiting,
        "policies_gib": {policy.value: n / GIB for policy, n in told.nbytes.items() if n},
        "planning_seconds": plan.planning,
        "saved_tensors": len(told.rows),
    }


def _bytes(batch: Any) -> int:
    return sum(one.numel() * one.element_size() for one in batch)


def _idle_ms(profile: Row) -> float:
    return float(profile["idle_host_ms"] + profile["idle_waiting_ms"])


def quick(wish: Wish) -> Wish:
    """For small networks on the CPU, where nothing else is wished."""
    return dataclasses.replace(
        wish,
        images=wish.images or 8,
        mode=wish.mode or "fp32",
        limits=wish.limits or ("0.8x", "0.6x"),
        planning=min(wish.planning, 0.2),
    )


def case_of(name: str, wish: Wish) -> Case:
    """A case by its name, or of a network by its; with what is wished otherwise.

    Raises InvalidProblem where there is neither.
    """
    if name not in CASES and name not in MODELS:
        raise InvalidProblem(f"there is no case {name}; there are {', '.join(CASES)}")
    case = CASES.get(name) or Case(name)
    changed = {
        key: getattr(wish, key)
        for key in ("images", "mode", "last", "size")
        if getattr(wish, key) is not None
    }
    return dataclasses.replace(case, **changed)


def measure(device: Device, rows: Rows, names: Sequence[str], wish: Wish) -> None:
    """The rows of the cases, one after the other, until the time is over."""
    cases = [(name, case_of(name, wish)) for name in names]
    for name, case in cases:
        if rows.over():
            rows.add({"case": name, "skipped": "the time is over"})
        else:
            Study(device, rows, case, name, wish).run()
