"""Results that take less than their floor: its rates are measured anew, or it says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import oocdnn
from oocdnn.bench import results, suite, task
from oocdnn.cli import main


@pytest.mark.parametrize(
    ("by_profile", "anew", "said", "check"),
    [
        (1e-9, 1e-9, False, "pass"),
        (1e6, 1e-9, True, "pass"),
        (1e6, 1e5, True, "mistrusted"),
    ],
)
def test_a_floor_that_calls_pass_is_measured_anew(
    by_profile: float, anew: float, said: bool, check: str, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    """Once such times were shown as results, 0.32 of their floor."""
    asked = iter([by_profile, anew])

    def floor_seconds(self: task.Convolution, context: oocdnn.Context, pinned: bool) -> float:
        return next(asked)

    profiles = []
    own = oocdnn.Context.__init__

    def opened(self: oocdnn.Context, *given: object, **named: object) -> None:
        profiles.append(named.get("profile"))
        own(self, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(oocdnn.Context, "__init__", opened)
    monkeypatch.setattr(suite, "rates", lambda *_: {"arithmetic": 1e9})
    monkeypatch.setattr(task.Convolution, "floor_seconds", floor_seconds)
    problem = "conv2d:fwd x1x8x12x12 w8x8x1x1 f32"
    options = ("--device", "cpu", "--quick", "--peer", "none", "--out", str(tmp_path / "out"))
    done = CliRunner().invoke(main, ["bench", "run", problem, *options])
    assert done.exit_code == 0, done.output
    assert ("1 took less than their floor by this machine's profile" in done.output) == said
    assert any(profile is not None for profile in profiles) == said  # a profile of its own
    (row,) = results.read(tmp_path / "out")
    assert row["floor_seconds"] == (anew if said else by_profile)
    assert row["check"].partition(":")[0] == check
    assert ("less than the floor of 100 ks" in row["check"]) == (check == "mistrusted")
