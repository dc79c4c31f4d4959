"""The options of a context that the library reads as texts, and what a limit leaves beside them."""

import os

from oocdnn._arguments import byte_count
from oocdnn._calls.windows import integer
from oocdnn._shown import shown
from oocdnn.errors import InvalidProblem


def budget_text(budget: int | str | None) -> str | None:
    """Bytes, or what the variable OOCDNN_BUDGET may be."""
    if budget is None or isinstance(budget, str):
        return budget
    if not hasattr(budget, "__index__"):
        raise InvalidProblem(
            f'budget is {shown(budget)}; write whole bytes, "2GiB", "50%" or "auto"'
        )
    return str(integer("budget", budget, 1))


def gpus_text(busy_gpus: int | None) -> str | None:
    """The number of busy GPUs as text for the library, which checks it."""
    if busy_gpus is None:
        return None
    try:
        return str(busy_gpus)
    except Exception:
        return shown(busy_gpus)


def program_share() -> int | None:
    """Device bytes that `oocdnn run --limit` leaves the program: OOCDNN_LIMIT without the drop-in's
    OOCDNN_BUDGET. None without a limit.

    Raises:
        InvalidProblem: A variable is no number of bytes, or the budget leaves nothing.
    """
    limit, budget = os.environ.get("OOCDNN_LIMIT"), os.environ.get("OOCDNN_BUDGET", "0")
    if limit is None:
        return None
    share = byte_count("OOCDNN_LIMIT", limit) - byte_count("OOCDNN_BUDGET", budget)
    if share <= 0:
        raise InvalidProblem(
            f"OOCDNN_LIMIT is {limit}, of which OOCDNN_BUDGET {budget} leaves none"
        )
    return share
