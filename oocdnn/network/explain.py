"""Explanations of plans: the policy of each tensor with its reason, totals, and a table as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oocdnn._shown import bytes_text
from oocdnn.network.plan import Choice, Policy, Schedule
from oocdnn.network.simulate import Simulation
from oocdnn.network.timeline import Saved, Timeline

NAMES = {
    Policy.KEEP: "kept",
    Policy.SWAP: "swapped",
    Policy.REBUILD: "computed again",
    Policy.SQUEEZE: "squeezed",
}


@dataclass(frozen=True)
class Row:
    """One saved tensor: its policy, the recipe's name where it has one, and the reason."""

    name: str
    nbytes: int
    policy: Policy
    recipe: str
    why: str


@dataclass(frozen=True)
class Explanation:
    """A plan in numbers. Times are seconds, sizes are bytes.

    Args:
        rows: One for each saved tensor.
        step: Predicted step.
        plain: The step where everything is kept.
        floor: Bound below which the planner knows of no plan.
        limit: Bytes that the plan was made for.
        peak: Predicted peak of the tensors.
        reserved: Predicted bytes that the allocator reserves, or None where that is not known.
        waiting: Part of the step in which the device waits for copies.
        recomputing: Part of the step for recipes and squeezing.
        late: Part of the step in which the device waits for the host.
        nbytes: Bytes of the saved tensors by policy.
    """

    rows: tuple[Row, ...]
    step: float
    plain: float
    floor: float
    limit: int
    peak: int
    reserved: int | None
    waiting: float
    recomputing: float
    late: float
    nbytes: dict[Policy, int]

    def amounts(self) -> str:
        """Bytes by policy: 1.00 GiB kept, 2.00 GiB swapped."""
        return ", ".join(f"{bytes_text(n)} {NAMES[p]}" for p, n in self.nbytes.items() if n)

    def summary(self) -> str:
        """Bytes by policy and the step's time, as part of a sentence."""
        return (
            f"of what backward reads {self.amounts()}; a step takes {self.step:.3g} s, "
            f"{self.step / self.plain:.2f} of what it takes with everything kept"
        )

    def __str__(self) -> str:
        reserved = "" if self.reserved is None else f", reserved {bytes_text(self.reserved)}"
        lines = [
            f"step {_ms(self.step)} (plain {_ms(self.plain)}, floor {_ms(self.floor)}): "
            f"{_ms(self.recomputing)} computed again, {_ms(self.waiting)} waiting for copies, "
            f"{_ms(self.late)} for the host",
            f"peak {bytes_text(self.peak)}{reserved} of {bytes_text(self.limit)}; "
            + ", ".join(
                f"{policy.value} {bytes_text(n)}" for policy, n in self.nbytes.items() if n
            ),
        ]
        width = max((len(row.name) for row in self.rows), default=0)
        lines += [
            f"{row.name:<{width}}  {bytes_text(row.nbytes):>10}  {row.policy.value:<8}  {row.why}"
            for row in self.rows
        ]
        return "\n".join(lines)


def explain(
    timeline: Timeline,
    made: Schedule,
    simulation: Simulation,
    limit: int,
    floor: float,
    reserved: int | None,
) -> Explanation:
    copies = {(index, out): end - begin for index, out, begin, end in simulation.copies}
    rows = tuple(_row(timeline, index, choice, copies) for index, choice in enumerate(made.choices))
    nbytes = dict.fromkeys(Policy, 0)
    for row in rows:
        nbytes[row.policy] += row.nbytes
    return Explanation(
        rows,
        simulation.seconds,
        timeline.plain_seconds,
        floor,
        limit,
        simulation.peak_bytes,
        reserved,
        simulation.waiting,
        made.recomputing,
        simulation.late,
        nbytes,
    )


def _row(
    timeline: Timeline, index: int, choice: Choice, copies: dict[tuple[int, bool], float]
) -> Row:
    one = timeline.saved[index]
    recipe = one.recipes[choice.recipe] if choice.policy is Policy.REBUILD else None
    if recipe is not None:
        why = f"{recipe.name} in {_ms(recipe.seconds)}{_sources(timeline.saved, recipe.inputs)}"
    elif choice.policy is Policy.SWAP:
        out, back = copies.get((index, True), 0.0), copies.get((index, False), 0.0)
        why = f"copied out in {_ms(out)}, back in {_ms(back)}"
    elif choice.policy is Policy.SQUEEZE and one.squeeze is not None:
        why = f"{bytes_text(one.squeeze.nbytes)} stay, {_ms(one.squeeze.seconds)}"
    else:
        why = "there is room" if one.movable else "it cannot move"
    return Row(one.name, one.nbytes, choice.policy, recipe.name if recipe else "", why)


def _sources(saved: Sequence[Saved], inputs: Sequence[int]) -> str:
    return " from " + ", ".join(saved[i].name for i in inputs) if inputs else ""


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2f} ms"
