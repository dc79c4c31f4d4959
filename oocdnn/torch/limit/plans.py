"""Plans of recorded steps within a limit: from the file of plans, else by a search."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from oocdnn.errors import FileError, OutOfMemory
from oocdnn.network.timeline import Link, Timeline
from oocdnn.torch.limit.links import Links, links_with

if TYPE_CHECKING:
    from oocdnn.network.plan_file import PlanFile
    from oocdnn.network.planner import Plan, Reserved


class Plans:
    """Makes plans.

    Args:
        links: Measured before the first plan.
        seconds: That the search for one plan may take.
        file: Has plans, and is given those that are made; None: there is none.
        tell: Called with what the program should know.
    """

    def __init__(
        self,
        links: Links,
        seconds: float,
        file: PlanFile | None,
        tell: Callable[[str], object],
    ) -> None:
        self._links, self._seconds = links, seconds
        self._file, self._tell = file, tell

    def plan(
        self,
        limit: int,
        timeline: Timeline,
        room: int,
        reserved: Reserved | None,
        copying: float | None,
    ) -> Plan:
        """A plan for the room that a limit leaves; other arguments are those of `planning.Planner`.
        Where more is swapped than lenders lend, the plan is made again with the rates of all links.
        Raises OutOfMemory where none fits."""
        _check(limit, timeline, room)
        links, borrowed = self._links, self._links.borrowed
        joined = links_with([links.joined_for(borrowed)], copying)
        made = self._found_or_made(timeline, room, reserved, joined)
        if 0 < borrowed < made.swapped_bytes:
            joined = links_with([links.joined_for(made.swapped_bytes)], copying)
            made = self._found_or_made(timeline, room, reserved, joined)
        return made

    def _found_or_made(
        self, timeline: Timeline, room: int, reserved: Reserved | None, links: list[Link]
    ) -> Plan:
        """The plan of the file, else one that is looked for."""
        from oocdnn.network.planner import plan

        found = None if self._file is None else self._file.find(timeline, links, room, reserved)
        if found is not None:
            return found
        made = plan(timeline, links, room, seconds=self._seconds, reserved=reserved)
        self.keep(made)
        return made

    def keep(self, made: Plan) -> None:
        """Writes a plan to the file, where there is one. A file that cannot be written is left from
        then on."""
        if self._file is None:
            return
        try:
            self._file.keep(made)
        except FileError as error:
            self._file = None
            self._tell(f"plans are not kept: {error}")


def _check(limit: int, timeline: Timeline, room: int) -> None:
    """Raises OutOfMemory where no plan fits."""
    from oocdnn.network.planner import least_limit

    least, others = least_limit(timeline), limit - room
    if least > room:
        raise OutOfMemory(
            f"the step needs {least} bytes for tensors where everything that can move is "
            f"moved, and {others} for CUDA's context, libraries and gaps between tensors; the "
            f"limit is {limit}: raise it to {least + others}, or take a smaller batch",
            least=least + others,
        )
