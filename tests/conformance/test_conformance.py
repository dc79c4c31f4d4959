"""Every device keeps the contract of `Device`, and every engine what it claims of itself."""

import pytest
from conformance import core, matrix
from conformance.devices import DEPENDS, DEVICES, EXPECTED_FAILURES, UNSUPPORTED, runs

PAIRS = [(device, case) for device in DEVICES for case in core.cases() if runs(device, case)]


@pytest.mark.parametrize(("device", "case"), PAIRS)
def test_device_conforms(device: str, case: str) -> None:
    if reason := core.unavailable(device):
        pytest.skip(reason)
    outcome = core.run_case(device, case)
    if case in UNSUPPORTED.get(device, {}):
        assert outcome.code == core.UNSUPPORTED, "listed as unsupported, but it is supported"
        return
    if case in EXPECTED_FAILURES.get(device, {}):
        assert outcome.code == core.FAILED, "listed as an expected failure, but it passes"
        return
    if outcome.code == core.UNSUPPORTED and case in DEPENDS.get(device, {}):
        pytest.skip(f"{outcome.message}: {DEPENDS[device][case]}")
    assert outcome.code == core.OK, outcome.message


def test_lists_name_devices_and_cases_that_exist() -> None:
    for listed in (UNSUPPORTED, DEPENDS, EXPECTED_FAILURES):
        assert listed.keys() <= set(DEVICES)
        for entries in listed.values():
            assert entries.keys() <= core.cases().keys()
            assert all(entries.values()), "an entry without a reason"


def test_the_support_matrix_is_of_these_lists() -> None:
    _, _, listed = matrix.PAGE.read_text(encoding="utf-8").partition(matrix.BEGIN)
    assert listed.strip() == matrix.table().strip(), "run python -m conformance.matrix"
    assert set(matrix.ROWS.values()) <= core.cases().keys()
    assert matrix.ENGINES.keys() <= set(DEVICES)
    assert all(runs(engine, case) for engine in matrix.ENGINES for case in matrix.ROWS.values())
