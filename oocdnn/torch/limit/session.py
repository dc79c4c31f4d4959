"""`memory_limit`: the context manager under which a program trains within so many device bytes."""

from __future__ import annotations

import importlib.util
import json
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from oocdnn._arguments import byte_count
from oocdnn._files import write
from oocdnn.errors import InvalidProblem, Unsupported
from oocdnn.network.timeline import Link, Timeline
from oocdnn.torch._warning import warn
from oocdnn.torch.limit.aside import Hooks
from oocdnn.torch.limit.card import Card
from oocdnn.torch.limit.collector import collector
from oocdnn.torch.limit.cuda_card import CudaCard
from oocdnn.torch.limit.gpus import Borrow, borrowed_of, gpu_of
from oocdnn.torch.limit.links import Links
from oocdnn.torch.limit.plans import Plans

if TYPE_CHECKING:
    from oocdnn.network.plan_file import PlanFile
    from oocdnn.network.planner import Plan, Reserved


class memory_limit:
    """Trains PyTorch networks within `limit` device bytes, with the bits of plain PyTorch.

        with oocdnn.torch.memory_limit("16GiB"):
            for x, target in batches:
                optimizer.zero_grad()
                loss = loss_function(model(x), target)
                loss.backward()
                optimizer.step()

    What autograd saves in forward is kept, copied to page-locked host memory and back, computed
    again, or held in a smaller form, whichever combination takes the least time within the limit.
    The first step of each kind (a kind has its own shapes and operations) copies to the host what
    exceeds half of the limit, the oldest first, and is recorded. The second follows a first plan
    and is recorded again; plans are made anew from the fourth and, as a rule, the eighth, whose
    operations are timed. A step that differs from the recorded one is computed right, and slower.

    A step ends with an optimizer's step, with `step()`, or where forward begins again after
    backward. Only the thread that enters the context is limited, and the backward passes of what it
    computed there. Code that takes no saved-tensor hooks (`torch.func`, for instance), CUDA graphs
    under capture, tensors of other devices and what is saved on another stream than the step's
    first tensor are left alone.

    Args:
        limit: Device bytes of this process as the driver counts them, CUDA's context and libraries
            included: an integer, or text such as "16GiB". The device has to be this process's
            alone: what other processes hold there counts as well.
        device: The GPU; PyTorch's current one by default.
        borrow: Other GPUs of this process: a list, as ["cuda:1"], over whose links this GPU copies
            to and from host memory too; or with bytes that are taken before host memory as well,
            for instance {"cuda:1": "40GiB"}. This GPU has to reach their memory. What
            they lend is allocated as it is needed, kept for the following steps, and freed with
            this object. Copies over a link take 48 MiB of its GPU, and where this process had not
            used that yet, CUDA's context there takes some hundred more.
        planning: Seconds that the search for one plan may take; up to four times as long where the
            gaps of PyTorch's allocator pass the limit, and twice that where more is swapped than
            other GPUs lend. Near the least limit a much faster plan may nearly fit; then searches
            go on for up to thirty times as long, three at most for each kind of steps, on threads
            of low priority beside them.
        plan_file: A file whose plans are used for steps of the same structure, without a search,
            and to which the plans that are made are written.

    Raises:
        InvalidProblem: The limit or the time is no positive number, or what is borrowed is not of
            other GPUs.
        FileError: The file of plans cannot be read, or is something else's.
        DeviceError: PyTorch has no such GPU.
        Unsupported: highspy is not installed, or the GPU does not reach another one's memory.
        OutOfMemory: Less is free on another GPU than is to be borrowed. At the end of a recorded
            step: no plan fits the limit; the error's `least` is a limit that suffices.
    """

    _raises = True  # where no plan fits; else such steps are swapped
    _tell = staticmethod(warn)  # called with what the program should know

    def __init__(
        self,
        limit: int | str,
        device: torch.device | int | str | None = None,
        *,
        borrow: Borrow | None = None,
        planning: float = 4.0,
        plan_file: str | os.PathLike[str] | None = None,
        card: Card | None = None,
    ) -> None:
        self.limit = _checked(limit, planning)
        file = _file_of(plan_file)
        if card is None:
            gpu = gpu_of(device)
            card = CudaCard(gpu, borrowed_of(gpu, {} if borrow is None else borrow))
        self._card, self._links = card, Links(card)
        self._plans = Plans(self._links, planning, file, self._tell)
        from oocdnn.torch.limit.steps import Steps  # needs more of PyTorch than the rest of oocdnn

        self._steps = Steps(
            card, self.limit, self._plan, planning / 8, self._plans.keep, self._raises, self._tell
        )
        self._hooks = Hooks(self._steps.pack, self._steps.unpack)
        self._entered: ExitStack | None = None  # what leaving undoes

    def __enter__(self) -> memory_limit:
        if self._entered is not None:
            raise InvalidProblem("this memory limit is in use already; make another one")
        self._card.begin()
        self._links.measure()
        with ExitStack() as entered:
            collector.begin()
            entered.callback(collector.end)
            self._hooks.push()
            entered.callback(self._hooks.pop)
            self._steps.table.enter()
            entered.callback(self._steps.table.leave)
            for handle in self._watched():
                entered.callback(handle.remove)
            self._entered = entered.pop_all()
        return self

    def _watched(self) -> Iterator[Any]:
        """Watches the optimizers of this thread; gives the handles of that."""
        thread = threading.get_ident()

        def stepped(*_: Any) -> None:
            if threading.get_ident() == thread:
                self.step()

        def steps(*_: Any) -> None:
            if threading.get_ident() == thread:
                self._steps.optimizes()

        yield register_optimizer_step_pre_hook(steps)
        yield register_optimizer_step_post_hook(stepped)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        entered, self._entered = self._entered, None
        assert entered is not None, "__enter__ comes before"
        entered.close()
        self._steps.close()

    def step(self) -> None:
        """Marks the end of a step."""
        self._steps.step()

    @property
    def plan(self) -> Plan | None:
        """The plan of the kind of step that ran last; None before there is one."""
        return self._steps.plan

    def report(self, path: str | os.PathLike[str] | None = None) -> str:
        """A page of HTML about the plan of the kind of step that ran last: memory over the step,
        copies beside operations, the policy of each tensor, predicted beside measured. It needs no
        network.

        Args:
            path: A file that the page is written to.

        Raises:
            InvalidProblem: There is no plan yet.
            OSError: The file cannot be written.
        """
        from oocdnn.network.report import Measured, page

        plan, known = self._planned(), self._steps.kinds.latest
        seconds = () if known is None or known.course is None else tuple(known.course.seconds)
        others, taken = self._card.others(), self._card.taken()
        made = page(plan, Measured(seconds, others + taken if taken else 0, others))
        if path is not None:
            write(Path(path), made.encode())
        return made

    def trace(self, path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
        """The predicted step of the same plan as Chrome trace events.

        Args:
            path: A file that they are written to as JSON.

        Raises:
            InvalidProblem: There is no plan yet.
            OSError: The file cannot be written.
        """
        from oocdnn.network.report import trace

        made = trace(self._planned())
        if path is not None:
            write(Path(path), json.dumps(made).encode())
        return made

    def _planned(self) -> Plan:
        if self.plan is None:
            raise InvalidProblem(
                "there is no plan yet: one is made at the end of the first step that is trained "
                "within the limit"
            )
        return self.plan

    @property
    def settled(self) -> bool:
        """Whether the kind of step that ran last follows its final plan, or keeps everything."""
        latest = self._steps.kinds.latest
        return latest is not None and latest.final

    @property
    def searching(self) -> bool:
        """True while a faster plan for the latest kind of step may still replace its plan: other
        threads search for it, or its first steps are compared with those of the earlier plan."""
        latest = self._steps.kinds.latest
        return latest is not None and latest.faster.pending

    @property
    def timelines(self) -> list[Timeline]:
        """The recorded steps, the last used first."""
        return [known.timeline for known in self._steps.kinds]

    @property
    def links(self) -> list[Link]:
        """The wires to other GPUs, where they lend memory, and to the host, as measured."""
        return list(self._links.each)

    def _plan(
        self, timeline: Timeline, room: int, reserved: Reserved | None, copying: float | None
    ) -> Plan:
        return self._plans.plan(self.limit, timeline, room, reserved, copying)


def _checked(limit: int | str, planning: float) -> int:
    """The limit in bytes; raises where it or the time is none, or nothing can plan."""
    nbytes = byte_count("limit", limit)
    if nbytes <= 0:
        raise InvalidProblem(f"limit is {limit!r}; it must be positive")
    if not 0 < planning < float("inf"):
        raise InvalidProblem(f"planning is {planning} s; it must be positive and finite")
    if importlib.util.find_spec("highspy") is None:
        raise Unsupported("memory_limit plans by highspy, which is not there; install it by pip")
    return nbytes


def _file_of(path: str | os.PathLike[str] | None) -> PlanFile | None:
    if path is None:
        return None
    from oocdnn.network.plan_file import PlanFile

    return PlanFile(Path(path))
