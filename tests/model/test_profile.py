"""Profiles as text: what is printed reads back, and what is damaged is refused."""

from __future__ import annotations

import re

import pytest
from geometry.core import Direction, DType
from hypothesis import given, settings
from hypothesis import strategies as st
from model import planner
from model.planner import Profile, Refused

from oocdnn.perfmodel.profile import parse

names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
rates = st.floats(1e-36, 1e36)
WORDS = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "=": "\\e"}


def escaped(text: str) -> str:
    return "".join(WORDS.get(c, c) for c in text)


marks = st.one_of(
    st.sampled_from(("unmeasured", "measured", "samples 5 spread unknown")),
    st.builds("samples {} spread {!r}".format, st.integers(1, 2**62), st.floats(0, 1e9)),
)


@settings(max_examples=200, deadline=None)
@given(
    names, names, names, st.booleans(), rates, st.floats(0, 1e9), st.dictionaries(names, rates),
    st.lists(marks, min_size=3, max_size=3),
)  # fmt: skip
def test_what_is_printed_reads_back(machine, driver, date, shared, rate, seconds, flops, known):
    key = next(iter(flops), "")
    profile = Profile(
        driver=driver,
        marks=dict(zip(("copy_seconds", f"flops {key}", f"tile 64 1 {key}"), known, strict=True)),
        shared_engines=shared,
        fetch_bytes_per_second=rate,
        copy_seconds=seconds,
        machine=machine,
        date=date,
        flops=flops,
        tiles={f"64 {i} {key}": value for i, (key, value) in enumerate(flops.items(), 1)},
        wires=flops | {"beside/2/both": rate},
        once=flops,
    )
    text = profile.text()
    assert parse(text).text() == text
    printed, _ = planner.reprint(text)
    assert planner.reprint(printed)[0] == printed
    entries = [line.split(" = ", 1) for line in text.splitlines()[1:-1] if " = " in line]
    kept = dict(line.split(" = ", 1) for line in printed.split("\n")[1:-2])
    if not any(
        c in machine + driver + date + "".join(flops)
        for c in "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
    ):
        assert kept.keys() == {key for key, _ in entries}
    assert (kept["machine"], kept["driver"]) == (escaped(machine), escaped(driver))
    read = parse(printed)
    assert read.rates() == profile.rates()
    assert read.rates()["fetch_bytes_per_second"] == rate
    for name in profile.rates():
        assert same_mark(read.mark(name), profile.mark(name))


def same_mark(one: str, other: str) -> bool:
    """Numbers may be written in two ways."""
    *words, spread = one.split(" ")
    *other_words, other_spread = other.split(" ")
    number = words and "unknown" not in (spread, other_spread)
    return words == other_words and (
        float(spread) == float(other_spread) if number else spread == other_spread
    )


def test_the_built_in_profile_reads_back():
    text = planner.default_profile()
    assert planner.reprint(text)[0] == text
    profile = parse(text)
    assert {profile.mark(name) for name in profile.rates()} == {"unmeasured"}


TABLES = Profile(
    flops={"e/f32/fwd": 1.0},
    tiles={"8 1 e/f32/fwd": 1.0, "64 1024 e/f32/fwd": 2.0},
    wires={"e/nhwc/fetch": 1.0, "e/nhwc/hop": 0.0, "e/nhwc/fetch_row_bytes": 0.0},
    once={"page/pin": 5.0},
)


def marked(text: str, mark: str) -> str:
    return text.replace("run_seconds = 1e-06 measured", f"run_seconds = 1e-06 {mark}")


def test_what_goes_before_calls_may_be_missing_but_not_nothing():
    known = Profile(once={"direct/f32/fwd/prepare": 1e-3, "page/pin": 5e9})
    text = known.text()
    assert text.removesuffix("end\n") == Profile().text().removesuffix("end\n") + (
        "once direct/f32/fwd/prepare = 0.001 measured\nonce page/pin = 5000000000.0 measured\n"
    )
    assert planner.reprint(text)
    for line in ("once page/pin = 0", "once page/pin = -1", "once page/pin = inf"):
        with pytest.raises(Refused, match="page/pin"):
            planner.reprint(text.replace("once page/pin = 5000000000.0", line))


def test_an_older_version_is_said_to_be_one():
    with pytest.raises(Refused, match="version 8, and this library reads version 9"):
        planner.reprint(Profile().text().replace("oocdnn-profile 9", "oocdnn-profile 8"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text.replace("oocdnn-profile 9", "oocdnn-profile 10"),
        lambda text: text[: len(text) // 2],
        lambda text: text.removesuffix("end\n"),
        lambda text: text.replace("run_seconds = 1e-06 measured\n", ""),
        lambda text: text.replace("run_seconds = 1e-06", "run_seconds = fast"),
        lambda text: text.replace("run_seconds = 1e-06", "run_seconds = 1e-06 s"),
        lambda text: text.replace("run_seconds = 1e-06 measured", "run_seconds = 1e-06"),
        lambda text: marked(text, "guessed"),
        lambda text: marked(text, "unmeasured measured"),
        lambda text: marked(text, "samples 5"),
        lambda text: marked(text, "samples 0 spread 0.1"),
        lambda text: marked(text, "samples many spread 0.1"),
        lambda text: marked(text, "samples 5 spread -0.1"),
        lambda text: marked(text, "samples 5 spread nan"),
        lambda text: text.replace("run_seconds = 1e-06", "run_seconds = -1"),
        lambda text: text.replace("fetch_row_bytes = 64.0", "fetch_row_bytes = inf"),
        lambda text: text.replace("fetch_row_bytes = 64.0", "fetch_row_bytes = nan"),
        lambda text: text.replace("flops_fallback = 10000000000.0", "flops_fallback = 0"),
        lambda text: text.replace("shared_engines = false", "shared_engines = no"),
        lambda text: text.replace("calibration = none", "calibration = no"),
        lambda text: text.replace("calibration = none\n", ""),
        lambda text: text.replace("row_bytes", "column_bytes"),
        lambda text: text.replace("row_bytes = ", "row_bytes: "),
        lambda text: text.replace("end\n", "drain_row_bytes = 64.0 measured\nend\n"),
        lambda text: "\n" + text,
        lambda text: text.replace("shared_engines = false", "shared_engines = maybe"),
        lambda text: text.replace("date = ", "date = 2024-01-01\ndate = "),
        lambda text: text.replace("copy_seconds = 1e-06", "copy_seconds = 1_0"),
        lambda text: text.replace("copy_seconds = 1e-06", "copy_seconds = +1"),
        lambda text: text.replace("copy_seconds = 1e-06", "copy_seconds = 1e999"),
        lambda text: text.replace("flops e/f32/fwd = 1.0", "flops e/f32/fwd = 0"),
        lambda text: text.replace("flops e/f32/fwd = 1.0", "flops e/f32/fwd = -1"),
        lambda text: text.replace("flops e/f32/fwd = 1.0", "flops e/f32/fwd = nan"),
        lambda text: text.replace("flops e/f32/fwd = 1.0", "flops e/f32/fwd = 1e308"),
        lambda text: text.replace("flops e/f32/fwd = 1.0", "flops e/f32/fwd = 1e-308"),
        lambda text: text.replace("run_seconds = 1e-06", "run_seconds = 1e37"),
        lambda text: text.replace("wire e/nhwc/fetch = 1.0", "wire e/nhwc/fetch = 0"),
        lambda text: text.replace("wire e/nhwc/hop = 0.0", "wire e/nhwc/hop = -1"),
        lambda text: text.replace("once page/pin = 5.0", "once page/pin = inf"),
        lambda text: text.replace("tile 8 1 e/f32/fwd", "tile 8 e/f32/fwd"),
        lambda text: text.replace("tile 8 1 e/f32/fwd", "tile 8 0 e/f32/fwd"),
        lambda text: text.replace("tile 8 1 e/f32/fwd", "tile -8 1 e/f32/fwd"),
        lambda text: text.replace("tile 8 1 e/f32/fwd", f"tile {2**63} 1 e/f32/fwd"),
        lambda text: text.replace("tile 8 1 e/f32/fwd", "tile 8 1"),
        lambda text: marked(text, f"samples {2**63} spread 0.1"),
    ],
)
def test_damage_is_refused(damage):
    """By the library, and by its twin here."""
    text = TABLES.text()
    assert parse(text).text() == text
    assert planner.reprint(text)
    assert damage(text) != text
    with pytest.raises(Refused) as refused:
        planner.reprint(damage(text))
    assert refused.value.code == planner.FILE_ERROR
    assert "profile" in refused.value.text
    with pytest.raises(ValueError, match="the profile"):
        parse(damage(text))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("copy_seconds = 1e-06", "copy_seconds = -1", "'-1' is no rate"),
        ("shared_engines = false", "shared_engines = maybe", "none of false, true"),
        ("tile 8 1 e/f32/fwd", "tile 8 e/f32/fwd", "'tile 8 e/f32/fwd' names no tile"),
        ("date = 2024", "driver = 2024", "'driver' is there twice"),
        ("row_bytes = ", "column_bytes = ", "the key 'fetch_column_bytes' is unknown"),
        ("date = ", "date: ", "not 'key = value'"),
    ],
)
def test_the_line_that_is_damaged_is_said(old, new, said):
    text = TABLES.text().replace(old, new)
    number = 1 + next(i for i, line in enumerate(text.split("\n")) if new in line)
    with pytest.raises(ValueError, match=f"line {number}, .*{re.escape(said)}"):
        parse(text)


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_both_readers_refuse_the_same(data):
    """Lines with a word of another line in place of one of theirs."""
    lines = TABLES.text().split("\n")
    words = sorted({word for line in lines for word in line.split(" ")} | {"-1", "0", "nan", "8"})
    line = data.draw(st.integers(1, len(lines) - 3))
    parts = lines[line].split(" ")
    parts[data.draw(st.integers(0, len(parts) - 1))] = data.draw(st.sampled_from(words))
    text = "\n".join([*lines[:line], " ".join(parts), *lines[line + 1 :]])
    assert accepts(parse, ValueError, text) == accepts(planner.reprint, Refused, text)


def accepts(read, refusal, text):
    try:
        read(text)
    except refusal:
        return False
    return True


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
