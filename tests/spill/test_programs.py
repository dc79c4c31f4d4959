"""What tests/gpu/spill_programs.py finds wrong in figures, and how it starts its programs."""

import copy
import os
import sys
from pathlib import Path

import pytest
from gpu.spill_programs import PARTS, WARM, command_of, environment_of, judge, outcome_of
from spill.scene import MIB, spill_path

LEDGER = {
    "limit": 64 * MIB, "budget": 8 * MIB, "others": 0, "device_bytes": 0, "device_peak": 56 * MIB,
    "host_bytes": 0, "host_peak": 9 * MIB, "pinned_bytes": 9 * MIB, "refused": 2,
}  # fmt: skip


LOSSES = [7.0 - 0.1 * step for step in range(20)]


def losses(**others):
    """Twenty, of which some are others."""
    return [others.get(f"at_{step}", loss) for step, loss in enumerate(LOSSES)]


def row(part, seconds, **more):
    common = {"part": part, "card_peak": 60 * MIB, "taken": 3, "said": [], "ledger": None}
    return common | {"losses": LOSSES, "seconds": [*[9.0] * 5, seconds]} | more


GOOD = {
    one["part"]: one
    for one in (
        row("vgg16-256-alone", 0.4),
        row("vgg16-256-save", 1.6),
        row("vgg16-256-spill", 2.0, ledger=LEDGER, losses=losses(at_10=6.005)),
        row("vgg16-256-naive", 8.0, losses=LOSSES[:7]),
        row("many", 0.0, pinned=[5, 5, 5], ledger=LEDGER),
        row("workers", 0.0, ledger=LEDGER, losses=[1.0] * 10),
        row(
            "expandable", 0.0, said=["oocdnn: no limit is kept: expandable_segments"],
            losses=LOSSES[:5],
        ),
    )
}  # fmt: skip
NAN = float("nan")
SPILL = "vgg16-256-spill"
BAD = [
    (SPILL, {"losses": losses(at_10=6.007)}, "losses are 0.0012 from alone's"),
    (SPILL, {"losses": losses(at_0=NAN)}, "not 20 losses that are numbers"),
    (SPILL, {"losses": losses(at_19=NAN)}, "not 20 losses that are numbers"),
    (SPILL, {"losses": [NAN] * 20}, "not 20 losses that are numbers"),
    (SPILL, {"losses": LOSSES[:1]}, "not 20 losses that are numbers"),
    (SPILL, {"losses": []}, "not 20 losses that are numbers"),
    (SPILL, {"seconds": [*[1.0] * 5, 2.1, 2.1]}, "2.10 s, naive 8.00 s"),
    (SPILL, {"seconds": [1.0] * 5}, "nan s, naive 8.00 s"),
    (SPILL, {"card_peak": 65 * MIB}, "the card's peak is 1 MiB above"),
    (SPILL, {"card_peak": 0}, "or was not seen"),
    (SPILL, {"ledger": LEDGER | {"host_peak": 0}}, "nothing spilled"),
    (SPILL, {"ledger": None}, "there was no ledger"),
    (SPILL, {"taken": 0}, "no convolution was taken"),
    ("vgg16-256-alone", {"losses": [NAN] * 20}, "not 20 losses that are numbers"),
    ("vgg16-256-alone", {"losses": LOSSES[:19]}, "not 20 losses that are numbers"),
    ("vgg16-256-naive", {"seconds": [8.0] * 3}, "2.00 s, naive nan s"),
    ("vgg16-256-naive", {"failed": "exit status 1"}, "exit status 1"),
    ("many", {"pinned": [5, 6, 7]}, "pinned bytes grew"),
    ("many", {"pinned": [0, 0]}, "pinned bytes grew"),
    ("workers", {"losses": [1.0] * 9}, "workers"),
    ("workers", {"losses": [NAN] * 10}, "workers"),
    ("workers", {"ledger": None}, "workers"),
    ("expandable", {"said": []}, "expandable"),
    ("expandable", {"ledger": LEDGER}, "expandable"),
    ("expandable", {"losses": [NAN] * 5}, "expandable"),
]


def test_good_figures_pass():
    assert judge(GOOD) == []


@pytest.mark.parametrize(("part", "wrong", "complaint"), BAD)
def test_what_is_wrong_is_named(part, wrong, complaint):
    rows = copy.deepcopy(GOOD)
    rows[part] |= wrong
    (failure,) = judge(rows)
    assert complaint in failure


@pytest.mark.parametrize("how", ["alone", "save", "naive"])
def test_what_a_training_is_compared_with_must_be_there(how):
    rows = {name: row for name, row in GOOD.items() if name != f"vgg16-256-{how}"}
    assert judge(rows) == [f"{SPILL}: vgg16-256-{how} is missing"]


def test_a_slow_naive_spill_is_no_excuse():
    """The time is held to what was measured before as well."""
    rows = copy.deepcopy(GOOD)
    rows["vgg16-256-naive"]["seconds"] = [100.0] * 7
    assert judge(rows) == []
    rows[SPILL]["seconds"] = [2.5] * 20
    (failure,) = judge(rows)
    assert "2.50 s, naive 100.00 s, before 9.7 s" in failure


@pytest.mark.parametrize(
    ("program", "failure"),
    [
        ("import time; time.sleep(60)", "no end after 0 s"),
        ("raise SystemExit(3)", "exit status 3"),
        ("print('words')", "its last line is no JSON"),
        ("pass", "its last line is no JSON"),
    ],
)
def test_a_program_that_ends_badly_is_a_failed_part(program, failure):
    most = 0.3 if "sleep" in program else 60
    answer, _ = outcome_of([sys.executable, "-c", program], dict(os.environ), most)
    assert failure in answer["failed"]


def test_parts_make_the_steps_that_are_judged():
    for name, part in PARTS.items():
        if name.endswith(("-alone", "-spill")):
            assert part.options[-2:] == ("--steps", "20")
        if name.endswith("-naive"):
            assert int(part.options[-1]) > WARM


def test_parts_are_started_as_users_would_start_them():
    spill, naive = PARTS["vgg16-256-spill"], PARTS["vgg16-256-naive"]
    command = command_of(spill, 30, "16GiB")
    assert command[1:8] == ["-m", "oocdnn", "run", "--limit", "16GiB", "--spill", "--"]
    assert command_of(naive, 30, "16GiB")[1].endswith("spill_torch.py")
    assert environment_of(naive, "16GiB", Path("log"))["LD_PRELOAD"] == str(spill_path())
    assert command_of(PARTS["vgg16-256-alone"], 30, "16GiB")[1].endswith("spill_torch.py")
