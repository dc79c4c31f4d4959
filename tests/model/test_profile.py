"""Profiles as text: what is printed reads back, and what is damaged is refused."""

from __future__ import annotations

import pytest
from geometry.doors import Direction, DType
from hypothesis import given, settings
from hypothesis import strategies as st
from model import planner
from model.planner import Profile, Refused

from oocdnn.perfmodel.profile import parse

names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
rates = st.floats(1e-30, 1e30)
WORDS = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "=": "\\e"}


def escaped(text: str) -> str:
    return "".join(WORDS.get(c, c) for c in text)


@settings(max_examples=200, deadline=None)
@given(names, names, st.booleans(), rates, st.floats(0, 1e9), st.dictionaries(names, rates))
def test_what_is_printed_reads_back(machine, date, shared, rate, seconds, flops):
    profile = Profile(
        shared_engines=shared,
        fetch_bytes_per_second=rate,
        copy_seconds=seconds,
        machine=machine,
        date=date,
        flops=flops,
        tiles={f"64 {i} {key}": value for i, (key, value) in enumerate(flops.items(), 1)},
        wires=flops,
    )
    text = profile.text()
    assert parse(text).text() == text
    printed, _ = planner.reprint(text)
    assert planner.reprint(printed)[0] == printed
    entries = [line.split(" = ", 1) for line in text.splitlines()[1:-1] if " = " in line]
    kept = dict(line.split(" = ", 1) for line in printed.split("\n")[1:-2])
    if not any(
        c in machine + date + "".join(flops) for c in "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
    ):
        assert kept.keys() == {key for key, _ in entries}
    assert float(kept["fetch_bytes_per_second"]) == rate
    assert float(kept["copy_seconds"]) == seconds
    assert kept["machine"] == escaped(machine)
    for i, (key, value) in enumerate(flops.items(), 1):
        assert float(kept[f"flops {escaped(key)}"]) == value
        assert float(kept[f"tile 64 {i} {escaped(key)}"]) == value


def test_the_built_in_profile_reads_back():
    text = planner.default_profile()
    assert planner.reprint(text)[0] == text


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text.replace("oocdnn-profile 6", "oocdnn-profile 7"),
        lambda text: text[: len(text) // 2],
        lambda text: text.removesuffix("end\n"),
        lambda text: text.replace("run_seconds = 1e-06\n", ""),
        lambda text: text.replace("run_seconds = 1e-06", "run_seconds = fast"),
        lambda text: text.replace("run_seconds = 1e-06", "run_seconds = 1e-06 s"),
        lambda text: text.replace("run_seconds = 1e-06", "run_seconds = -1"),
        lambda text: text.replace("row_bytes = 64.0", "row_bytes = inf"),
        lambda text: text.replace("row_bytes = 64.0", "row_bytes = nan"),
        lambda text: text.replace("flops_fallback = 10000000000.0", "flops_fallback = 0"),
        lambda text: text.replace("measured = true", "measured = yes"),
        lambda text: text.replace("row_bytes", "column_bytes"),
        lambda text: text.replace("row_bytes = ", "row_bytes: "),
        lambda text: text.replace("end\n", "row_bytes = 64.0\nend\n"),
    ],
)
def test_damage_is_refused(damage):
    text = Profile().text()
    assert planner.reprint(text)
    assert damage(text) != text
    with pytest.raises(Refused) as refused:
        planner.reprint(damage(text))
    assert refused.value.code == planner.FILE_ERROR
    assert "profile" in refused.value.text


@pytest.mark.parametrize(
    ("keys", "rate"),
    [
        ({"e/bf16/bwd_data": 1.0, "e/bf16/fwd": 2.0, "e/f32/bwd_data": 3.0}, 1.0),
        ({"e/bf16/bwd_filter": 4.0, "e/bf16/fwd": 2.0, "e/f32/bwd_data": 3.0}, 2.0),
        ({"e/bf16/bwd_filter": 4.0, "e/f32/bwd_data": 3.0}, 4.0),
        ({"e/bf16/bwd_bias": 4.0, "e/f32/bwd_data": 3.0, "e/f32/fwd": 5.0}, 3.0),
        ({"e/f32/fwd": 5.0, "e/f32/bwd_filter": 6.0}, 5.0),
        ({"other/bf16/bwd_data": 7.0}, 8.0),
    ],
)
def test_a_missing_rate_falls_back_to_its_nearest_relative(keys, rate):
    text = Profile(flops=keys, flops_fallback=8.0).text()
    assert planner.reprint(text, "e", DType.BF16, Direction.BWD_DATA)[1] == rate


@pytest.mark.parametrize(
    ("keys", "rate"),
    [
        ({"e/f32/tf32/fwd": 1.0, "e/f32/fwd": 2.0}, 1.0),
        ({"e/f32/tf32/bwd_data": 3.0, "e/f32/fwd": 2.0}, 3.0),
        ({"e/f32/fwd": 2.0}, 2.0),
    ],
)
def test_tf32_has_rates_of_its_own(keys, rate):
    text = Profile(flops=keys, flops_fallback=8.0).text()
    assert planner.reprint(text, "e", DType.F32, Direction.FWD, tf32=True)[1] == rate
    assert planner.reprint(text, "e", DType.F32, Direction.FWD)[1] == keys.get("e/f32/fwd", 8.0)
