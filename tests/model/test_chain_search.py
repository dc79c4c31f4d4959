"""Plans of chains: what they cost, what they take, and that they are the best of what is there."""

from __future__ import annotations

import ctypes
import json
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from model.planner import DIRECT, H200, OUT_OF_MEMORY, ROOM, Profile, Refused, library

CUDNN = "cudnn+symmetric"


def search(problems, budget, profile, engines=CUDNN) -> list[dict]:
    text, detail = ctypes.create_string_buffer(ROOM), ctypes.c_int64()
    code = library().oocdnn_testing_search_chain(
        "\n".join(problems).encode(),
        ctypes.c_int64(budget),
        engines.encode(),
        profile.text().encode(),
        ctypes.byref(detail),
        text,
        ctypes.c_int64(ROOM),
    )
    if code != 0:
        raise Refused(code, text.value.decode(), detail.value)
    return json.loads(text.value)


def vgg16(images: int, size: int = 224, dtype: str = "f32/tf32", channels: int = 64) -> list[str]:
    problems, before = [], 3
    for times, convolutions in ((1, 2), (2, 2), (4, 3), (8, 3), (8, 3)):
        for i in range(convolutions):
            k = channels * times
            pool = " +maxpool2" if i + 1 == convolutions else ""
            problems.append(
                f"conv2d:fwd x{images}x{before}x{size}x{size} w{k}x{before}x3x3 pad1 {dtype} "
                f"+bias +relu{pool}"
            )
            before = k
        size //= 2
    return problems


def parameters(channels: int = 64) -> int:
    """Of VGG16's convolutions."""
    sizes = [3, *(channels * t for t in (1, 1, 2, 2, 4, 4, 4, 8, 8, 8, 8, 8, 8))]
    return sum(9 * c * k + k for c, k in pairwise(sizes))


def test_vgg16_is_as_fast_as_its_arithmetic():
    """The wire carries x, the parameters and z, once, and hides behind what is computed."""
    best = search(vgg16(256), 8 << 30, H200)[0]
    assert best["bytes_in"] == 4 * (256 * 3 * 224 * 224 + parameters())
    assert best["bytes_out"] == 4 * 256 * 512 * 7 * 7
    assert best["seconds"] < 1.05 * best["compute_seconds"]
    assert best["seconds"] * 1e3 / 256 < 0.13
    assert 1 < best["length"][0] < 128
    assert best["ring"] == 2


@pytest.mark.parametrize("budget", [1 << 28, 1 << 30, 4 << 30])
def test_more_memory_makes_no_plan_slower(budget):
    less, more = (search(vgg16(64), bytes_, H200)[0] for bytes_ in (budget, 2 * budget))
    assert more["seconds"] <= less["seconds"]
    assert less["device_bytes"] <= budget


def test_a_large_sample_is_cut_in_pieces():
    """Five layers over one image of 16384 x 16384, within 4 GiB."""
    problems = [
        f"conv2d:fwd x1x{c}x16384x16384 w32x{c}x3x3 pad1 f32 +bias +relu" for c in (3, *(32,) * 4)
    ]
    best = search(problems, 4 << 30, H200)[0]
    assert best["device_bytes"] <= 4 << 30
    assert best["steps"] > 4
    x = 4 * 3 * 16384**2
    assert x < best["bytes_in"] < 1.2 * x
    assert best["bytes_out"] == 4 * 32 * 16384**2


def test_halos_are_kept_where_that_is_cheaper():
    """A volume is swept along an axis: each row of x crosses once, and none is computed twice."""
    volume = ["conv3d:fwd x1x32x512x512x512 w32x32x3x3x3 pad1 bf16 +bias +relu"] * 2
    best, *others = search(volume, 1 << 30, H200)
    assert best["sweeps"]
    assert best["bytes_in"] <= 1.01 * 2 * 32 * 512**3  # extrapolated from the first tiles
    assert best["device_bytes"] < 1 << 30
    once = [one for one in others if not one["sweeps"]]
    assert all(
        best["seconds"] < one["seconds"] and best["bytes_in"] < one["bytes_in"] for one in once
    )


def blocks(images: int, size: int, channels: int, skips: bool, dtype: str = "f32") -> list[str]:
    """Of a ResNet: the second of each two adds what the one before the first has written."""
    problem = (
        f"conv2d:fwd x{images}x{channels}x{size}x{size} w{channels}x{channels}x3x3 pad1 {dtype} "
        "+bias"
    )
    first = [f"{problem} +relu"]
    for i in range(3):
        added = f"{problem} +residual +relu <- {2 * i}" if skips else f"{problem} +relu"
        first += [f"{problem} +relu", added]
    return first


@pytest.mark.parametrize("budget", [1 << 28, 1 << 30])
def test_what_is_added_costs_no_wire(budget):
    """Only a copy on the device, and memory for what stays until then."""
    plain, added = (search(blocks(32, 112, 64, skips), budget, H200)[0] for skips in (False, True))
    assert added["bytes_in"] == plain["bytes_in"]
    assert added["bytes_out"] == plain["bytes_out"]
    assert plain["compute_seconds"] < added["compute_seconds"] < 1.5 * plain["compute_seconds"]
    assert plain["device_bytes"] < added["device_bytes"] <= budget
    assert added["bytes_out"] == 4 * 32 * 64 * 112 * 112


def test_what_the_caller_adds_is_fetched_with_each_tile():
    plain, added = (
        search([one.split(" <-")[0] for one in blocks(32, 112, 64, skips)], 1 << 28, H200)[0]
        for skips in (False, True)
    )
    assert added["bytes_in"] == plain["bytes_in"] + 3 * 4 * 32 * 64 * 112 * 112
    assert added["fetch_seconds"] > plain["fetch_seconds"]
    assert added["seconds"] > plain["seconds"]


def test_a_chain_that_adds_what_strides_have_thinned_out():
    problem = "conv2d:fwd x4x2x5x5 w2x2x3x3 pad3 str2 f32"
    with pytest.raises(Refused, match="link 1 adds to what strides have thinned out"):
        search([problem, f"{problem} +residual <- -1"], 1 << 28, H200)
    with pytest.raises(Refused, match="it must be an earlier one"):
        search([problem, f"{problem} +residual <- 1"], 1 << 28, H200)
    with pytest.raises(Refused, match="it has no residual, and one is named"):
        search([problem, f"{problem} <- 0"], 1 << 28, H200)
    wider = "conv2d:fwd x4x2x5x5 w3x2x3x3 pad1 f32 +residual <- -1"
    with pytest.raises(Refused, match="it adds x, which is 4x2x1x5x5, to 4x3x1x5x5"):
        search([wider], 1 << 28, H200)


@st.composite
def chains(draw) -> list[str]:
    n, channels, size = draw(st.integers(1, 40)), draw(st.integers(1, 8)), draw(st.integers(4, 40))
    problems, shapes = [], [(channels, size)]
    for _ in range(draw(st.integers(1, 5))):
        k, taps = draw(st.integers(1, 16)), draw(st.integers(1, 3))
        added = ""
        if draw(st.booleans()) and problems:
            k, taps = channels, 3
            sources = [i - 1 for i, shape in enumerate(shapes) if shape == (k, size)]
            added = f" +residual <- {draw(st.sampled_from(sources))}"
        pool = " +maxpool2" if not added and draw(st.booleans()) and size >= 4 else ""
        problems.append(
            f"conv2d:fwd x{n}x{channels}x{size}x{size} w{k}x{channels}x{taps}x{taps} "
            f"pad{taps // 2} f32 +bias{pool}{added}"
        )
        size += 2 * (taps // 2) - taps + 1
        size, channels = (size // 2 if pool else size), k
        assume(size > 0)
        shapes.append((channels, size))
    return problems


def least_budget(chain: list[str], profile: Profile, engines: str) -> int:
    """That a refusal names."""
    with pytest.raises(Refused) as refused:
        search(chain, 1, profile, engines)
    assert refused.value.code == OUT_OF_MEMORY
    with pytest.raises(Refused):
        search(chain, refused.value.detail - 1, profile, engines)
    return refused.value.detail


@settings(max_examples=60, deadline=None)
@given(chain=chains(), engines=st.sampled_from([CUDNN, DIRECT]), budget=st.integers(14, 24))
def test_prices_and_bytes(chain, engines, budget):
    profile = Profile()
    allowed = max(least_budget(chain, profile, engines), 1 << budget)
    found = search(chain, allowed, profile, engines)
    assert found[0]["seconds"] == min(one["seconds"] for one in found)
    for one in found:
        busy = one["fetch_seconds"], one["compute_seconds"], one["drain_seconds"]
        waits = 3 * (one["steps"] * len(chain) + 1) * profile.hop_seconds
        host = one["steps"] * len(chain) * profile.step_seconds
        assert max(busy) * (1 - 1e-9) <= one["seconds"]
        assert one["seconds"] <= max(sum(busy) + waits, host) * (1 + 1e-9)
        assert one["device_bytes"] <= allowed
    plans = [(*one["length"], one["short"], one["ring"], one["sweeps"]) for one in found]
    assert len(set(plans)) == len(plans)


def test_single_samples_are_offered_once():
    """Short tiles of half a sample, or a quarter, are none."""
    found = search(vgg16(1, 64, channels=4), 8 << 20, Profile(), DIRECT)
    plans = [(*one["length"], one["short"], one["ring"], one["sweeps"]) for one in found]
    assert len(set(plans)) == len(plans) > 2


@st.composite
def chains(draw):
    """Links of a batch, with pools and residuals here and there."""
    size, channels = draw(st.integers(8, 64)), draw(st.sampled_from([3, 16, 64]))
    images, problems = draw(st.integers(1, 64)), []
    dtype = draw(st.sampled_from(["f32", "f32/tf32"]))
    for i in range(draw(st.integers(1, 5))):
        k = draw(st.sampled_from([8, 32, 128]))
        pools = size >= 8 and draw(st.booleans())
        adds = not pools and k == channels and draw(st.booleans())
        after = " +maxpool2" if pools else f" +residual <- {i - 1}" if adds else ""
        problems.append(
            f"conv2d:fwd x{images}x{channels}x{size}x{size} w{k}x{channels}x3x3 pad1 {dtype} "
            f"+bias +relu{after}"
        )
        size, channels = size // 2 if pools else size, k
    return problems


@settings(max_examples=150, deadline=None)
@given(chains(), st.integers(20, 33), st.sampled_from([CUDNN, DIRECT, f"{CUDNN},{DIRECT}"]))
def test_no_plan_undercuts_the_floor(problems, budget_bits, engines):
    try:
        found = search(problems, 1 << budget_bits, H200, engines)
    except Refused as refused:
        if refused.code != OUT_OF_MEMORY:
            raise
        found = []
    for one in found:
        assert 0 < one["floor_seconds"] <= one["seconds"] * (1 + 1e-9)


@pytest.mark.parametrize("channels", [(1, 256), (256, 1)])
def test_the_floor_knows_what_crosses_the_wire_at_either_end(channels):
    """Nearly all is x of the first link, or y of the last one."""
    first, last = channels
    problems = [
        f"conv2d:fwd x64x{c}x112x112 w{k}x{c}x1x1 f32" for c, k in ((first, 1), (1, 1), (1, last))
    ]
    best = search(problems, 1 << 30, H200)[0]
    assert best["floor_seconds"] <= best["seconds"] < 1.1 * best["floor_seconds"]


def test_a_chain_with_room_reaches_the_floor():
    best = search(vgg16(256), 8 << 30, H200)[0]
    assert best["seconds"] < 1.03 * best["floor_seconds"]
