"""The CPU benchmark on layers that take no time: what it computes, prints and writes."""

import json
from pathlib import Path

import pytest
from bench_cases import SMALL
from click.testing import CliRunner

from oocdnn.bench import measure, onednn_primitive
from oocdnn.bench.layers import DIRECTIONS, LAYERS, Direction, Layer, layer
from oocdnn.bench.measure import Call
from oocdnn.bench.onednn_primitive import OneDnnMissing
from oocdnn.bench.studies import cpu
from oocdnn.bench.studies.cpu import Measured

try:
    onednn_primitive.version()
except OneDnnMissing as error:
    pytest.skip(str(error), allow_module_level=True)

TINY = layer("tiny", (8, 32, 60, 60), 32, 3, padding=1)


def row(times: dict[cpu.Way, list[float]], others: float = 0.0) -> Measured:
    columns = ([Call(time, time, others) for time in column] for column in times.values())
    rounds = [dict(zip(times, calls, strict=True)) for calls in zip(*columns, strict=True)]
    return Measured("a", "fwd", "p", 6_000_000_000, 8, "jit", [], rounds, {"whole": 0.0})


def test_ratios_are_medians_of_rounds() -> None:
    one = row({"primitive": [1.0, 2.0, 4.0], "whole": [1.0, 3.0, 4.0], "tiled": [2.0, 6.0, 8.0]})
    assert one.ratio("whole") == 1.0
    assert one.ratio("tiled") == 2.0
    assert one.rate("primitive") == 6e9


def test_disturbed_rounds_count_only_where_there_are_no_others() -> None:
    one = row({"primitive": [1.0], "whole": [9.0]}, others=0.5)
    assert one.ratio("whole") == 9.0
    one.rounds += row({"primitive": [1.0], "whole": [2.0]}).rounds
    assert one.ratio("whole") == 2.0


def test_a_timed_call_knows_its_own_processor_time() -> None:
    call = measure.timed(lambda: sum(range(3_000_000)))
    assert 0 < call.processor_seconds <= call.seconds * 1.5
    assert 0 <= call.others <= 1


def test_summary_takes_the_worst_of_each() -> None:
    slow = row({"primitive": [1.0], "whole": [3.0], "tiled": [2.0]})
    fast = row({"primitive": [1.0], "whole": [1.0], "tiled": [4.0]})
    totals = cpu.summary([slow, fast], sgemm=12e9)
    assert totals["whole/primitive worst"] == 3.0
    assert totals["tiled/primitive worst"] == 4.0
    assert totals["whole/sgemm worst"] == pytest.approx(2e9 / 12e9)
    assert totals["tiled/primitive median"] == 3.0


def test_a_difference_is_no_success() -> None:
    assert row({}).exact
    for wrong in (1.0, float("nan")):
        one = row({})
        one.difference["tiled"] = wrong
        assert not one.exact


def test_budgets() -> None:
    assert cpu.budget_of(TINY, "tiled") * 8 <= TINY.data_bytes
    assert cpu.budget_of(TINY, "whole") > 4 * TINY.data_bytes


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("case", [TINY, SMALL[5]], ids=lambda case: case.name)
def test_measurement(case: Layer, direction: Direction, monkeypatch: pytest.MonkeyPatch) -> None:
    if case is not TINY:
        monkeypatch.setattr(cpu, "budget_of", lambda *_: 1 << 20)
    one = cpu.measure(case, direction, rounds=3)
    assert one.exact
    assert len(one.rounds) >= 3
    assert all(set(calls) == set(cpu.WAYS) for calls in one.rounds)
    assert one.stats["whole"]["tiles"] == 1
    if case is TINY:
        assert one.stats["tiled"]["tiles"] > 1
        assert one.stats["tiled"]["peak_device_bytes"] <= case.data_bytes // 8
    assert case.problem(direction) in one.plan["whole"]


def test_rows_are_chosen_by_name_or_problem() -> None:
    assert len(list(cpu.chosen(()))) == len(LAYERS) * len(DIRECTIONS)
    assert [direction for _, direction in cpu.chosen(("volume",))] == list(DIRECTIONS)
    assert {direction for _, direction in cpu.chosen((":bwd_data",))} == {"bwd_data"}


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "LAYERS", (TINY,))
    small = cpu.Sgemm(256)
    monkeypatch.setattr(cpu, "Sgemm", lambda: small)
    file = tmp_path / "result.json"
    done = CliRunner().invoke(cpu.command, ["--repeats", "2", "--out", str(file)])
    assert done.exit_code == 0, done.output
    assert done.output.count("exact") == len(DIRECTIONS)
    document = json.loads(file.read_text(encoding="utf-8"))
    assert document["summary"]["greatest difference"] == 0.0
    assert document["machine"]["cores"] > 0
    assert [one["direction"] for one in document["lists"]["rows"]] == list(DIRECTIONS)
