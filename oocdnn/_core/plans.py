"""The core library's functions of plans that need no context, through cffi."""

import os

from oocdnn._core.loading import _ffi, _library
from oocdnn._core.native import _check, _Frame, _text


def plan_for_profile(
    profile: os.PathLike[str], problem: str, budget: str | None, busy_gpus: str | None
) -> str:
    """The plan as JSON; what is None is as the variable says."""
    frame, json = _Frame(), _ffi().new("const char **")
    given: dict[str, str | os.PathLike[str] | None]
    given = {"profile": profile, "problem": problem, "budget": budget, "busy_gpus": busy_gpus}
    arguments = [frame.string(name, text) for name, text in given.items()]
    _check(_library().oocdnn_plan_for_profile(*arguments, json))
    return _text(json[0])


def forget_plans() -> str:
    """Where the plans were that are forgotten now."""
    path = _ffi().new("const char **")
    _check(_library().oocdnn_forget_plans(path))
    return _text(path[0])
