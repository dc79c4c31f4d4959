"""Environment variables that say something wrong: the error, or a warning, names the variable."""

from __future__ import annotations

import copy
import errno
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import oocdnn

WRONG = {
    "OOCDNN_DEVICE": "bogus",
    "OOCDNN_BUDGET": "bogus",
    "OOCDNN_ENGINE": "bogus",
    "OOCDNN_THREADS": "-3",
    "OOCDNN_AUTO_PIN": "7",
    "OOCDNN_LINK": "1e999",
    "OOCDNN_PINNED_LIMIT": "bogus",
    "OOCDNN_PLANNING": "bogus",
    "OOCDNN_PLANNING_SECONDS": "-1",
    "OOCDNN_WORKSPACE_LIMIT": "bogus",
    "OOCDNN_BUSY_GPUS": "99",
}
OURS = (oocdnn.InvalidProblem, oocdnn.Unsupported)


@pytest.mark.parametrize("variable", WRONG)
def test_an_error_names_its_variable(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, WRONG[variable])
    device = None if variable == "OOCDNN_DEVICE" else "cpu"
    with pytest.raises(OURS) as refused, oocdnn.Context(device):
        pass
    text = str(refused.value)
    assert f"{variable}={WRONG[variable]}" in text or f"{variable} is '{WRONG[variable]}'" in text


def test_an_argument_is_not_called_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OOCDNN_BUDGET", "1GiB")
    with pytest.raises(oocdnn.InvalidProblem) as refused, oocdnn.Context("cpu", "bogus"):
        pass
    assert "OOCDNN_BUDGET" not in str(refused.value)


PROGRAM = """
import numpy as np, oocdnn
for _ in range(2):
    with oocdnn.Context("cpu", "1MiB", profile="none") as context:
        context.conv2d(np.ones((1, 1, 4, 4), "f4"), np.ones((1, 1, 3, 3), "f4"))
        print(context.stats.engine)
"""


@pytest.mark.parametrize("library", ["/nowhere/plugin.so", "/etc/passwd"])
def test_a_wrong_plug_in_is_said_once(library: str, tmp_path: Path) -> None:
    environment = {**os.environ, "OOCDNN_ONEDNN_LIBRARY": library}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "direct\ndirect\n"
    (line,) = done.stderr.splitlines()
    assert f"OOCDNN_ONEDNN_LIBRARY={library}: " in line


FULL = """
import resource, signal, sys
import numpy as np, oocdnn
x, w = np.ones((1, 4, 64, 64), "f4"), np.ones((4, 4, 3, 3), "f4")
out = np.memmap(sys.argv[1], "f4", "w+", shape=(1, 4, 62, 62))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
with oocdnn.Context("cpu", "64KiB", profile="none") as context:
    try:
        context.conv2d(x, w, out=out)
    except oocdnn.FileError as error:
        print(error.errno, error)
"""


def test_an_error_of_a_file_has_its_number(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL, str(tmp_path / "out.bin")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    number, _, text = done.stdout.partition(" ")
    assert int(number) == errno.EFBIG
    assert "writing " in text


def test_a_number_of_a_file_outlasts_a_copy() -> None:
    error = oocdnn.FileError("text", 28)
    for one in (error, copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (str(one), one.errno) == ("text", 28)
    assert oocdnn.FileError("text").errno is None
