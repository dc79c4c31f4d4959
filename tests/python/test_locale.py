"""A program that has set a locale with a decimal comma: numbers are read and written as in any
other. tests/lint/test_locale.py holds the sources to it."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys

import pytest

NAME = "comma.UTF-8"

PROGRAM = """
import ctypes, dataclasses, json, locale, sys
if sys.argv[1]:
    try:
        locale.setlocale(locale.LC_NUMERIC, sys.argv[1])
    except locale.Error:
        sys.exit(77)
    text = ctypes.create_string_buffer(16)
    ctypes.CDLL(None).snprintf(text, 16, b"%.1f", ctypes.c_double(1.5))
    assert text.value == b"1,5", text.value
import oocdnn
from oocdnn.cli import problems

PROBLEM = "conv2d:fwd x2x8x32x32 w8x8x3x3 pad1 +clip1.5 alpha0.25"

def fails(call):
    try:
        call()
    except oocdnn.InvalidProblem as error:
        return str(error)

def shown(plan):
    fields = dataclasses.asdict(plan)
    del fields["search_seconds"]
    return fields, plan.explain()

found = {"profile": shown(oocdnn.plan_for_profile(PROBLEM, "h200-pcie5", "0.0625MiB"))}
for budget in ("1.5MiB", " +1.5 MB", "12345.9", "0.5%", "1,5MiB", "1.5", "0,5%", "5x%", "-1MiB"):
    def info(budget=budget):
        with oocdnn.Context("cpu", budget, engine="direct") as context:
            return json.loads(context.info())["budget_bytes"] if "%" not in budget else "some"
    found[budget] = fails(info) or info()
with oocdnn.Context("cpu", "0.0625MiB", engine="direct", trace=True) as context:
    plan = context.plan(PROBLEM)
    found["plan"] = shown(plan)
    problems.random_call(problems.parse(PROBLEM), context)()
    found["trace"] = len(json.loads(context.take_trace())["traceEvents"]) > 0
    made = context.refine(PROBLEM, [0.015625])
    found["refined"] = made.rate, made.after, made.samples, made.spread
print(json.dumps(found))
"""


def comma_locale(folder):
    """LC_NUMERIC of a locale as glibc reads it: "1.234,5"."""
    texts = [b",\0", b".\0", b"\3\3\0\0", struct.pack("I", ord(",")), struct.pack("I", ord("."))]
    texts.append(b"UTF-8\0")
    begin = 8 + 4 * len(texts)
    places = [begin + sum(map(len, texts[:number])) for number in range(len(texts))]
    (folder / NAME).mkdir(parents=True)
    head = struct.pack(f"{2 + len(texts)}I", 0x20031115 ^ 1, len(texts), *places)
    (folder / NAME / "LC_NUMERIC").write_bytes(head + b"".join(texts))


def run(tmp_path, name, known=""):
    """The output of the program, and the profile that it has refined."""
    profile = tmp_path / "profile.txt"
    profile.write_text(known, encoding="utf-8")
    variables = {
        "LOCPATH": str(tmp_path / "locales"),
        "OOCDNN_PROFILE": str(profile),
        "OOCDNN_PLANNING_SECONDS": "0.5",
        "OOCDNN_WORKSPACE_LIMIT": "0.5MiB",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name],
        cwd=tmp_path,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if done.returncode == 77:
        pytest.skip("this C library does not read glibc's locales")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), profile.read_text(encoding="utf-8")


def test_a_decimal_comma_changes_nothing(tmp_path):
    comma_locale(tmp_path / "locales")
    _, measured = run(tmp_path, "")
    plain, comma = (run(tmp_path, name, measured) for name in ("", NAME))
    for name, value in plain[0].items():
        assert comma[0][name] == value, name
    assert comma[1] == plain[1], "the profile"
    found = plain[0]
    assert found["1.5MiB"] == 3 * 2**19
    assert found[" +1.5 MB"] == 1_500_000
    assert found["12345.9"] == 12345
    assert found["0.5%"] == "some"
    for budget in ("1,5MiB", "0,5%", "5x%", "-1MiB"):
        assert "write" in found[budget], budget
