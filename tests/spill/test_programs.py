"""What tests/gpu/spill_programs.py finds wrong in figures, and how it starts its programs."""

import copy
from pathlib import Path

import pytest
from gpu.spill_programs import PARTS, command_of, environment_of, judge
from spill.scene import MIB, spill_path

LEDGER = {
    "limit": 64 * MIB, "budget": 8 * MIB, "others": 0, "device_bytes": 0, "device_peak": 56 * MIB,
    "host_bytes": 0, "host_peak": 9 * MIB, "pinned_bytes": 9 * MIB, "refused": 2,
}  # fmt: skip


def row(part, seconds, **more):
    common = {"part": part, "card_peak": 60 * MIB, "taken": 3, "said": [], "ledger": None}
    return common | {"losses": [7.0, 6.5, 6.0, 5.5], "seconds": [*[9.0] * 5, seconds]} | more


GOOD = {
    one["part"]: one
    for one in (
        row("vgg16-256-alone", 0.4),
        row("vgg16-256-spill", 2.0, ledger=LEDGER, losses=[7.0, 6.5, 6.005]),
        row("vgg16-256-naive", 8.0),
        row("many", 0.0, pinned=[5, 5, 5]),
        row("workers", 0.0, ledger=LEDGER, losses=[1.0] * 10),
        row("expandable", 0.0, said=["oocdnn: no limit is kept: expandable_segments"]),
    )
}
BAD = [
    ("vgg16-256-spill", {"losses": [7.0, 6.5, 6.007]}, "losses are 0.0012 from alone's"),
    ("vgg16-256-spill", {"seconds": [*[1.0] * 5, 2.1, 2.1]}, "2.10 s, naive 8.00 s"),
    ("vgg16-256-spill", {"card_peak": 65 * MIB}, "the card's peak is 1 MiB above"),
    ("vgg16-256-spill", {"ledger": LEDGER | {"host_peak": 0}}, "nothing spilled"),
    ("vgg16-256-spill", {"ledger": LEDGER | {"device_peak": 57 * MIB}}, "more on the device"),
    ("vgg16-256-naive", {"failed": "exit status 1"}, "exit status 1"),
    ("many", {"pinned": [5, 6, 7]}, "pinned bytes grew"),
    ("many", {"pinned": [0, 0]}, "pinned bytes grew"),
    ("workers", {"losses": [1.0] * 9}, "workers"),
    ("expandable", {"said": []}, "expandable"),
    ("expandable", {"ledger": LEDGER}, "expandable"),
]


def test_good_figures_pass():
    assert judge(GOOD) == []


@pytest.mark.parametrize(("part", "wrong", "complaint"), BAD)
def test_what_is_wrong_is_named(part, wrong, complaint):
    rows = copy.deepcopy(GOOD)
    rows[part] |= wrong
    (failure,) = judge(rows)
    assert complaint in failure


def test_parts_are_started_as_users_would_start_them():
    spill, naive = PARTS["vgg16-256-spill"], PARTS["vgg16-256-naive"]
    command = command_of(spill, 30, "16GiB")
    assert command[1:8] == ["-m", "oocdnn", "run", "--limit", "16GiB", "--spill", "--"]
    assert command_of(naive, 30, "16GiB")[1].endswith("spill_torch.py")
    assert environment_of(naive, "16GiB", Path("log"))["LD_PRELOAD"] == str(spill_path())
    assert command_of(PARTS["vgg16-256-alone"], 30, "16GiB")[1].endswith("spill_torch.py")
