"""The options of a context that the library reads as texts."""

from oocdnn._shown import shown
from oocdnn._window import integer
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
