"""Plans of steps in a file, which later programs use again.

A step is known by its structure: operations, tensors, their sizes, positions and recipes. Times are
not part of it, so that a plan serves again where they differ a little; positions of copies are
found anew for the times of the step.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeGuard

from oocdnn._files import replacing
from oocdnn.errors import FileError
from oocdnn.network.plan import Choice, Policy
from oocdnn.network.planner import Plan, planned
from oocdnn.network.reserving import Reserved
from oocdnn.network.timeline import Link, Timeline

_FORMAT = "oocdnn plans of steps 1"
_MOST = 256  # plans in a file; the oldest leave


class PlanFile:
    """The plans that a file had when it was opened, and those that are added.

    Args:
        path: The file; it need not be there.

    Raises:
        FileError: It cannot be read, or is no file of plans.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found = _read(path)
        self._made: dict[str, dict[str, Any]] = {}

    def find(
        self,
        timeline: Timeline,
        links: Sequence[Link],
        limit: int,
        reserved: Reserved | None = None,
    ) -> Plan | None:
        """The plan of such a step that the file had; None where it has none, or where that does not
        keep to the limit. With `reserved`, the result is its faster plan where that keeps to the
        limit, else it has that plan. Arguments as those of `planner.plan`."""
        known = self._found.get(key_of(timeline))
        if known is None:
            return None
        step = timeline, links, limit
        plan = _planned(known, *step)
        if reserved is None:
            return plan
        faster = None if known.get("faster") is None else _planned(known["faster"], *step)
        for one in (faster, plan):
            told = None if one is None else one.reserving(reserved)
            if told is not None and told.reserved is not None and told.reserved <= limit:
                told.faster = faster if one is plan else None
                return told
        return None

    def keep(self, plan: Plan) -> None:
        """Adds a plan and its faster one, in place of those of such a step, and writes the file.

        Raises FileError where it cannot be written, or has become something else's.
        """
        key = key_of(plan.timeline)
        self._made.pop(key, None)
        self._made[key] = {"label": plan.timeline.label} | _entry(plan)
        if plan.faster is not None:
            self._made[key]["faster"] = _entry(plan.faster)
        elif key in self._found:
            self._found[key].pop("faster", None)
        others = {at: one for at, one in _read(self._path).items() if at not in self._made}
        latest = dict([*others.items(), *self._made.items()][-_MOST:])  # others write it too
        try:
            with replacing(self._path) as file:
                file.write(json.dumps({"format": _FORMAT, "plans": latest}).encode())
        except OSError as error:
            raise FileError(f"{self._path} cannot be written to: {error}") from error


def key_of(timeline: Timeline) -> str:
    """Equal for steps of one structure."""
    operations = [one.name for one in timeline.operations]
    saved = [
        (
            one.name, one.nbytes, one.produced, one.last_forward_use, one.uses, one.movable,
            [(recipe.name, recipe.inputs) for recipe in one.recipes],
            one.squeeze is not None and (one.squeeze.name, one.squeeze.nbytes),
        )
        for one in timeline.saved
    ]  # fmt: skip
    text = json.dumps([operations, timeline.forward, saved])
    return hashlib.sha256(text.encode()).hexdigest()


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        content = json.loads(path.read_bytes() or b"null")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error}") from error
    except (ValueError, RecursionError):  # the latter of lists within lists
        content = False
    if content is None:  # it is empty
        return {}
    plans = content.get("plans") if isinstance(content, dict) else None
    if not isinstance(plans, dict) or content.get("format") != _FORMAT:
        raise FileError(
            f"{path} is not a file of plans of steps and stays as it is; name another, or delete it"
        )
    return {key: one for key, one in plans.items() if _is_plan(one)}


def _is_plan(one: object) -> bool:
    return _is_one(one) and (one.get("faster") is None or _is_one(one["faster"]))


def _is_one(one: object) -> TypeGuard[dict[str, Any]]:
    return (
        isinstance(one, dict)
        and isinstance(one.get("choices"), list)
        and isinstance(one.get("bound"), int | float)
        and 0 <= one["bound"] <= 1
        and all(_is_size(one.get(name, 0)) for name in ("limit", "peak"))
        and ("peak" not in one or "limit" in one)
    )


def _is_size(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < 1 << 63


def _entry(plan: Plan) -> dict[str, Any]:
    """The entry of a plan in the file."""
    seconds = plan.seconds
    return {
        "limit": plan.limit,
        "peak": plan.peak_bytes,
        "seconds": seconds,
        "bound": plan.bound / seconds if seconds > 0 else 1.0,
        "choices": [[one.policy.value, one.recipe] for one in plan.schedule.choices],
    }


def _planned(
    entry: dict[str, Any], timeline: Timeline, links: Sequence[Link], limit: int
) -> Plan | None:
    """The plan of an entry. It leaves as many bytes to an allocator as it did, where the times of
    the step allow that; None where its tensors pass the limit, or it is not for the step."""
    choices = _choices(entry["choices"], timeline)
    if choices is None:
        return None
    left = max(entry["limit"] - entry["peak"], 0) if "peak" in entry else 0
    plan = planned(timeline, links, limit, choices, limit - left)
    if plan is None and left > 0:
        plan = planned(timeline, links, limit, choices)
    if plan is not None:
        plan.bound = plan.seconds * float(entry["bound"])
    return plan


def _choices(given: list[Any], timeline: Timeline) -> list[Choice] | None:
    """None where they are not choices for the step."""
    if len(given) != len(timeline.saved):
        return None
    try:
        made = [Choice(Policy(policy), int(recipe)) for policy, recipe in given]
    except (TypeError, ValueError, OverflowError):  # of infinity
        return None
    for choice, one in zip(made, timeline.saved, strict=True):
        moves = choice.policy is not Policy.KEEP
        recipe = choice.policy is Policy.REBUILD
        if (moves and not one.movable) or (recipe and not 0 <= choice.recipe < len(one.recipes)):
            return None
        if choice.policy is Policy.SQUEEZE and one.squeeze is None:
            return None
    return made
