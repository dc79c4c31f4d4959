"""Each row of the reliability table, with tiny counts; the full counts are `long`."""

import numpy as np
import pytest
from engine.cases import RandomDraw

from reliability import mutants, report
from reliability.exactness import axes_of, forced
from reliability.rows import Row, Size, Tally
from reliability.table import ROWS, chosen

RUN_BY_THEMSELVES = [row for row in ROWS if not row.asked_only]
NAMES = [row.key for row in RUN_BY_THEMSELVES]


@pytest.mark.parametrize("row", RUN_BY_THEMSELVES, ids=NAMES)
def test_row_with_tiny_counts(row: Row) -> None:
    finding = row.measure(Size.SMOKE)
    assert finding.passed, "\n".join(finding.failures)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("row", RUN_BY_THEMSELVES, ids=NAMES)
def test_row_in_full(row: Row) -> None:
    finding = row.measure(Size.FULL)
    assert finding.passed, "\n".join([finding.figure, *finding.failures])


def test_rows_are_chosen_by_name() -> None:
    assert [row.key for row in chosen("7,1")] == ["7", "1"]
    with pytest.raises(SystemExit, match="no row is called 99"):
        chosen("99")


def test_tallies_add_counts_and_keep_maxima() -> None:
    a, b = Tally(cases=1), Tally(cases=2)
    a.count("tiles", 3)
    b.count("tiles", 4)
    a.at_least("most", 5)
    b.at_least("most", 2)
    total = a.add(b)
    assert (total.cases, total["tiles"], total["most"]) == (3, 7, 5)


def test_a_later_run_replaces_its_rows_only(tmp_path) -> None:
    path = tmp_path / "r.json"
    first = {"row": "1", "passed": False, "figure": "old"}
    report.merge(path, [first, {"row": "2", "passed": True, "figure": "kept"}], ["1", "2"])
    merged = report.merge(path, [{**first, "figure": "new"}], ["1", "2"])
    assert [row["figure"] for row in merged["rows"]] == ["new", "kept"]


def test_forced_cases_are_small_and_bias_has_no_c() -> None:
    assert "C" not in axes_of("backward_bias")
    for seed in range(20):
        case = forced(RandomDraw(np.random.default_rng(seed)), "forward", "W")
        assert case.budget >= 48 << 10


@pytest.mark.parametrize("mutant", mutants.mutants(), ids=lambda mutant: mutant.name)
def test_a_mutant_has_its_text_and_tests(mutant: mutants.Mutant) -> None:
    text = (mutants.ROOT / mutant.path).read_text(encoding="utf-8")
    assert mutants.replaced(text, mutant) != text
    tests = mutants.ROOT / "tests"
    assert all((tests / place).exists() for place in mutants.nearest(mutant.path))


def test_mutants_that_live_are_explained_by_name() -> None:
    names = [mutant.name for mutant in mutants.mutants()]
    assert len(set(names)) == len(names) >= 100
    assert mutants.EXPLAINED.keys() <= set(names)
