"""Profiles that come with the package: machines to plan for that are not here."""

import os
from importlib import resources
from pathlib import Path

from oocdnn._arguments import path_of
from oocdnn.errors import InvalidProblem
from oocdnn.perfmodel.profile import UNMEASURED, Profile, parse

_SUFFIX = ".txt"


def folder() -> Path:
    """Where the shipped profiles lie, one file each."""
    return Path(str(resources.files("oocdnn.perfmodel").joinpath("profiles")))


def names() -> list[str]:
    """Of the shipped profiles, in order of the alphabet."""
    return sorted(file.stem for file in folder().glob(f"*{_SUFFIX}"))


def find(profile: str | os.PathLike[str]) -> Path:
    """A profile's file: itself, or that of the shipped profile of this name."""
    given = path_of("profile", profile, "a file, or the name of a shipped one")
    if os.fspath(profile) in names():
        return folder() / f"{given}{_SUFFIX}"
    if os.path.isfile(given):  # which takes names that no file can have
        return given
    raise InvalidProblem(
        f"profile {str(given)!r} is no file, and none of the shipped ones: " + ", ".join(names())
    )


def machine(profile: Path) -> str:
    """What a profile says of its machine and, where they are estimates, of its rates."""
    return _read(profile).machine


def provenance(profile: Path) -> str:
    """Whether a profile's rates were measured, and then with what and when."""
    read = _read(profile)
    known = [name for name in read.rates() if read.mark(name) != UNMEASURED]
    if not known:
        return "nothing of it was measured"
    return (
        f"{len(known)} of {len(read.rates())} rates were measured {read.date[:10]}, "
        f"driver {read.driver}, engines {read.engines}"
    )


def _read(profile: Path) -> Profile:
    return parse(profile.read_text(encoding="utf-8"))
