"""A network's forward and backward pass as a benchmark, on images that take no time."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

import numpy as np
import pytest

import oocdnn
from oocdnn.bench import network, suite
from oocdnn.bench.network import Network, Training
from oocdnn.bench.peers.network import NETWORK_PEERS, _saved_bytes
from oocdnn.bench.results import Row

SMALL = ((4, False), (6, True), (8, False), (8, True))  # in place of VGG16's layers
TEXT = "vgg16:train x5x3x32x32 f32"
ONE_CALL = dataclasses.replace(suite.QUICK, least=1, most=1)


def rows_of(text: str, **settings: object) -> list[Row]:
    made = suite.Bench(suite.Settings("cpu", "128KiB", patience=ONE_CALL, **settings))  # type: ignore[arg-type]
    return list(made.rows(suite.case_of(text)))


def test_amounts_of_vgg16() -> None:
    one = Network(64, 224, "f32/tf32")
    forward = 2 * 64 * 15_346_630_656
    first = 2 * 64 * 224**2 * 64 * 27
    assert one.flops == 3 * forward - first
    assert one.math == "tf32"
    assert [layer.size for layer in one.layers] == [224] * 2 + [112] * 2 + [56] * 3 + [28] * 3 + [
        14
    ] * 3


@pytest.fixture(scope="module")
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "VGG16", SMALL)
        yield


@pytest.mark.usefixtures("small")
def test_every_way_to_train_gives_the_true_gradients() -> None:
    ours, *others = rows_of(TEXT)
    assert (ours["who"], ours["check"]) == ("oocdnn", "pass")
    assert ours["peak_device_bytes"] <= ours["budget"] < ours["data_bytes"]
    assert ours["seconds"]
    assert ours["floor_seconds"]
    assert [row["who"] for row in others] == list(NETWORK_PEERS)
    for row in others:
        assert row["check"] in ("pass", "skipped: torch is not installed"), row["who"]
    auto, apart = others[-2:]
    assert (auto["who"], auto["budget"]) == ("auto", ours["budget"])
    assert 0 < auto["peak_device_bytes"] <= ours["budget"]
    assert (apart["who"], apart["budget"]) == ("layer-by-layer", ours["budget"])
    assert apart["floor_seconds"] > ours["floor_seconds"]  # type: ignore[operator]
    assert 0 < apart["peak_device_bytes"] <= ours["budget"]


@pytest.mark.usefixtures("small")
def test_ours_recomputes_where_an_image_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[int]()
    real = oocdnn.chain_gradients.conv_chain_backward

    def counted(*arguments: object, **more: object) -> object:
        made = real(*arguments, **more)  # type: ignore[arg-type]
        calls.append(1)
        return made

    monkeypatch.setattr("oocdnn.nn._trained.conv_chain_backward", counted)
    with oocdnn.Context("cpu", "1MiB", profile="none") as context:
        task = Network(4, 32, "f32").task(context, pinned=False)
        task.call(context)()
        assert calls == [1]
        gradients = task.results
        task.call(context, recompute=False)()
    assert calls == [1]
    for name, result in task.results.items():
        assert np.array_equal(result, gradients[name]), name


@pytest.mark.usefixtures("small")
def test_what_torch_saves_on_the_host_may_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    least = _saved_bytes(Network(5, 32, "f32"))
    for free, check in ((least - 1, "skipped: needs "), (least, "pass")):
        monkeypatch.setattr(network, "free_host_bytes", lambda free=free: free)
        (_, row) = rows_of(TEXT, peers=("save-on-cpu",))
        assert row["check"].startswith(check)


@pytest.fixture(scope="module")
def trained(small: None) -> Training:
    with oocdnn.Context("cpu", "64KiB", profile="none") as context:
        task = Network(4, 32, "f32").task(context, pinned=False)
        task.call(context)()
        task.choose(context)
    assert task.check() == "pass"
    return task


@pytest.mark.parametrize("name", ["z", "0.weight", "3.bias"])
def test_a_wrong_element_is_found(trained: Training, name: str) -> None:
    wrong = np.array(trained.results[name])
    wrong.flat[5] += 1
    right, trained.results = trained.results, {**trained.results, name: wrong}
    assert trained.check().startswith(f"fail: 1 of {wrong.size} elements of {name} differ")
    trained.results = right


def test_gradients_of_others_may_follow_from_their_rounding(trained: Training) -> None:
    """What is equal in a pool's window is no longer; where z is exact there is no such excuse."""
    right, least = trained.results, suite.ROUNDING * float(np.abs(trained.results["z"]).max())
    rerouted = right["3.weight"].copy()
    rerouted[0] += 1
    try:
        for off, gradient, begins in (
            (0.0, rerouted, "fail: [0-9]+ of [0-9]+ elements of 3.weight"),
            (least / 2, rerouted, "mistrusted: z is rounded, .* elements of 3.weight"),
            (least / 2, 0 * rerouted, "fail: [0-9]+ of [0-9]+ elements of 3.weight"),
            (least / 2, -rerouted, "mistrusted: z is rounded, .* elements of 3.weight"),
            (least / 2, 9 * rerouted, "fail: [0-9]+ of [0-9]+ elements of 3.weight"),
            (least / 2, rerouted + np.float32(np.nan), "fail: .* elements of 3.weight"),
            (least * 2, rerouted, "fail: [0-9]+ of [0-9]+ elements of z"),
        ):
            z = right["z"] + np.float32(off)
            trained.results = {**right, "3.weight": gradient, "z": z}
            assert re.match(begins, trained.check(suite.ROUNDING))
    finally:
        trained.results = right


def test_no_excuse_of_one_result_hides_what_is_wrong_with_the_next(trained: Training) -> None:
    """Once the first that differed was the verdict."""
    right, least = trained.results, suite.ROUNDING * float(np.abs(trained.results["z"]).max())
    rerouted = right["3.weight"].copy()
    rerouted[0] += 1
    off = {**right, "z": right["z"] + np.float32(least / 2), "3.weight": rerouted}
    try:
        trained.results = off
        assert trained.check(suite.ROUNDING).startswith("mistrusted: z is rounded")
        trained.results = {**off, "0.weight": 0 * right["0.weight"]}
        assert re.match("fail: .* elements of 0.weight", trained.check(suite.ROUNDING))
    finally:
        trained.results = right


def test_sums_that_may_be_rounded_are_near_all_the_same(
    trained: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros were once mistrusted, not wrong."""
    right = trained.results
    monkeypatch.setattr(network, "EXACT", 1)
    rounded = right["z"] + np.float32(0.01)
    zeros = {name: 0 * one for name, one in right.items()}
    try:
        for results, begins in (
            (right, "pass"),
            ({**right, "z": rounded}, "mistrusted: sums of up to .* may be rounded, .* of z"),
            ({**right, "z": zeros["z"]}, "fail: .* elements of z differ"),
            ({**right, "z": rounded, "3.bias": zeros["3.bias"]}, "fail: .* elements of 3.bias"),
            (zeros, "fail: .* elements of z differ"),
        ):
            trained.results = results
            assert re.match(begins, trained.check())
    finally:
        trained.results = right


def test_gradients_reach_the_first_layer(trained: Training) -> None:
    """Where all elements died on the way a comparison would say nothing."""
    for name, result in trained.results.items():
        assert np.count_nonzero(result) > 0.2 * result.size, name
    assert trained._most < network.EXACT / 16


@pytest.mark.parametrize(
    "text", ["vgg16:train x5x3x33x33 f32", "vgg16:train x5x3x32x32 bf16", "vgg16:fwd"]
)
def test_what_is_no_network_is_refused(text: str) -> None:
    with pytest.raises(oocdnn.InvalidProblem, match="write vgg16:train"):
        suite.subject_of(text)


def test_a_batch_that_host_memory_does_not_hold_is_skipped() -> None:
    (row,) = rows_of("vgg16:train x1000000x3x224x224 f32")
    assert "of host memory" in row["check"]
