"""What tests/gpu/spill_programs.py finds wrong in figures, and how it starts its programs."""

import copy
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gpu import card, spill_programs
from gpu.spill_programs import (
    PARTS,
    Part,
    Process,
    batches_of,
    command_of,
    environment_of,
    judge,
    measured,
    outcome_of,
    planning_of,
    processes_of,
)
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
    common["planning"] = planning_of([])
    return common | {"losses": LOSSES, "seconds": [*[9.0] * 5, *[seconds] * 7]} | more


LARGE = {"peak": 1 << 30, "budget": 1 << 30}


GOOD = {
    one["part"]: one
    for one in (
        row("vgg16-256-alone", 0.4),
        row("vgg16-256-save", 1.6),
        row("vgg16-256-spill", 2.0, ledger=LEDGER, losses=losses(at_10=6.005)),
        row("vgg16-256-naive", 8.0, losses=LOSSES[:7]),
        row("conv3d", 1.0, unlike=0, **LARGE),
        row("unet", 1.0, losses=[2.0, 1.0], alone=[2.0, 1.0005], plain_peak=9 << 30, **LARGE),
        row("suites", 1.0, status=0, tail="9 passed"),
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
    (SPILL, {"seconds": [*[1.0] * 5, *[2.1] * 5]}, "2.10 s, naive 8.00 s"),
    (SPILL, {"seconds": [1.0]}, "nan s, naive 8.00 s"),
    (SPILL, {"card_peak": 65 * MIB}, "the card's peak is 1 MiB above"),
    (SPILL, {"card_peak": 0}, "or was not seen"),
    (SPILL, {"ledger": LEDGER | {"host_peak": 0}}, "nothing spilled"),
    (SPILL, {"ledger": None}, "there was no ledger"),
    (SPILL, {"taken": 0}, "no convolution was taken"),
    ("vgg16-256-alone", {"losses": [NAN] * 20}, "not 20 losses that are numbers"),
    ("vgg16-256-alone", {"losses": LOSSES[:19]}, "not 20 losses that are numbers"),
    ("vgg16-256-naive", {"seconds": [8.0]}, "2.00 s, naive nan s"),
    ("vgg16-256-naive", {"failed": "exit status 1"}, "exit status 1"),
    ("conv3d", {"unlike": 3}, "3 elements are not exact"),
    ("conv3d", {"peak": (1 << 30) + 1}, "1073741825 bytes of 1073741824"),
    ("unet", {"budget": 1 << 31}, "1073741824 bytes of 2147483648"),
    ("unet", {"plain_peak": 1 << 29}, "plain torch passes no limit"),
    ("unet", {"losses": [2.0, 1.1]}, "plain torch's [2.0, 1.0005]"),
    ("suites", {"status": 1, "tail": "1 failed"}, "1 failed"),
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


def test_what_rounding_does_is_said_beside_and_excuses_nothing():
    rows = copy.deepcopy(GOOD)
    rows[SPILL]["losses"] = losses(at_10=6.007)
    rows["vgg16-256-last"] = rows["vgg16-256-alone"] | {"losses": losses(at_12=5.808)}
    (failure,) = judge(rows)
    assert "losses are 0.0012 from alone's, and by rounding 0.0014" in failure
    rows["vgg16-256-last"]["losses"] = LOSSES[:19]
    (failure,) = judge(rows)
    assert failure.endswith("losses are 0.0012 from alone's")


def test_a_slow_naive_spill_is_no_excuse():
    """The time is held to what was measured before as well."""
    rows = copy.deepcopy(GOOD)
    rows["vgg16-256-naive"]["seconds"] = [100.0] * 7
    assert judge(rows) == []
    rows[SPILL]["seconds"] = [2.5] * 20
    (failure,) = judge(rows)
    assert "2.50 s, naive 100.00 s, before 9.7 s" in failure


def run(program, most=60.0):
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", program]
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    return outcome_of(process, most)


@pytest.mark.parametrize(
    ("program", "failure"),
    [
        ("import time; time.sleep(60)", "no end after 0 s"),
        ("raise SystemExit(3)", "exit status 3"),
        ("print('words')", "exit status 0"),
        ("pass", "exit status 0"),
    ],
)
def test_a_program_that_ends_badly_has_no_figures(program, failure):
    answers, why, _ = run(program, 0.3 if "sleep" in program else 60)
    assert answers == {}
    assert failure in why


def test_what_a_program_said_before_it_ended_badly_is_kept():
    program = """import time; print('ready\\n{"a": {"x": 1}}\\n7', flush=True); time.sleep(60)"""
    assert run(program, 2)[0] == {"a": {"x": 1}}


PROGRAM = """
import json, os, pathlib, sys, time
names = [word.split("=")[0] for word in sys.argv[1:]]
print("ready", flush=True)
sys.stdin.readline()
begin = time.time()
pathlib.Path(os.environ["OOCDNN_LOG_FILE"]).write_text("oocdnn: taken x tiles=1\\noocdnn: y\\n")
for name in names:
    time.sleep(0.5)
    if "bad" in name:
        sys.exit(4)
    print(json.dumps({name: {"begin": begin, "end": time.time()}}), flush=True)
"""


class FakeCard:
    def __init__(self):
        self.bytes = 100

    def used(self):
        self.bytes = min(self.bytes + 10, 300)
        return self.bytes


def test_what_comes_after_a_moment_is_not_in_the_peak_until_then():
    rising = FakeCard()
    with card.Watch(rising) as watch:
        while rising.bytes < 200:
            time.sleep(0.01)
        moment = time.time()
        while rising.bytes < 300:
            time.sleep(0.01)
    assert watch.peak == 190
    assert 90 <= watch.peak_until(moment) < 190
    assert watch.peak_until(0.0) == 0


def test_programs_wait_for_their_turn_and_give_rows_for_all_their_parts(tmp_path, monkeypatch):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM, encoding="utf-8")
    parts = {
        name: Part("what", 5, process, script=str(script), beside=beside)
        for name, process, beside in (
            ("a", "one", False), ("b", "one", False), ("bad", "one", False),
            ("c", "two", True), ("d", "three", True),
        )
    }  # fmt: skip
    monkeypatch.setattr(spill_programs, "PARTS", parts)
    monkeypatch.setattr(card, "Card", FakeCard)
    rows = {}
    batches = [[Process(names, "") for names in batch] for batch in batches_of(processes_of(parts))]
    for batch in batches:
        rows |= {row["part"]: row for row in measured(batch)}
    assert list(rows) == list(parts)
    assert "exit status 4" in rows["bad"]["failed"]
    assert rows["a"]["end"] < rows["b"]["end"] < rows["c"]["begin"]
    assert max(rows["c"]["begin"], rows["d"]["begin"]) < min(rows["c"]["end"], rows["d"]["end"])
    for row in rows.values():
        assert (row["taken"], row["said"]) == (1, ["oocdnn: y"])
        assert 0 < row["card_peak"] <= 200


def test_what_planning_took_is_in_the_log():
    line = "oocdnn: taken {} tiles=2 peak=1MiB ms={} predicted=2.0 planned={} prepared={} why=x"
    log = [
        line.format("a", 30, 400, 2), line.format("b", 20, 100, 1), line.format("a", 30, 200, 1),
        line.format("a", 20, 0.002, 0), "oocdnn: passed",
    ]  # fmt: skip
    assert planning_of(log) == {
        "calls": 4, "call_seconds": pytest.approx(0.1), "plans": 3, "problems": 2,
        "planning_seconds": pytest.approx(0.7),
    }  # fmt: skip


def test_comparisons_are_of_as_many_steps():
    for name, part in PARTS.items():
        if name.endswith("-spill"):
            assert PARTS[name.replace("spill", "alone")].steps == part.steps
    assert PARTS["vgg16-256-spill"].steps == 20


def test_parts_share_processes_and_some_run_beside_each_other():
    batches = batches_of(processes_of(list(PARTS)))
    assert batches[0] == [[name for name in PARTS if name.endswith(("-alone", "-last", "-save"))]]
    assert ["vgg16-256-naive", "vgg16-256-tf32-naive"] in [names for (names, *_) in batches]
    assert batches[-1] == [["suites"], ["many"], ["workers"], ["expandable"]]
    for batch in batches[:-1]:
        assert len(batch) == 1


def test_parts_are_started_as_users_would_start_them():
    command = command_of(["vgg16-256-spill"], "16GiB")
    assert command[1:8] == ["-m", "oocdnn", "run", "--limit", "16GiB", "--spill", "--"]
    assert command[9].endswith("spill_torch.py")
    assert command[10].startswith("vgg16-256-spill=train,net=vgg16,images=256,steps=20")
    for naive in (["vgg16-256-naive"], ["vgg16-256-alone"]):
        assert command_of(naive, "16GiB")[1].endswith("spill_torch.py")
    environment = environment_of(PARTS["vgg16-256-naive"], "16GiB", Path("log"))
    assert environment["LD_PRELOAD"] == str(spill_path())
