"""The command where its streams are closed or have another encoding, where what it is to run is no
program, and where it is interrupted within the library."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

PROBLEM = "conv2d:fwd x1x16x64x64 w16x16x3x3 pad1 f32"
COMMANDS = [("info",), ("plan", PROBLEM, "--budget", "256KiB"), ("bench", "list")]


def command(*arguments, shell="{}", **variables) -> subprocess.CompletedProcess[bytes]:
    """`oocdnn` within a line of the shell."""
    line = shell.format('"$@"')
    return subprocess.run(
        ["sh", "-c", line, "sh", sys.executable, "-m", "oocdnn", *arguments],
        cwd="/",
        env=os.environ | {"OOCDNN_PROFILE": "none"} | variables,
        capture_output=True,
        check=False,
        timeout=100,
    )


@pytest.mark.parametrize("arguments", COMMANDS)
@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error(arguments, closed):
    done = command(*arguments, shell=f"{{}} {closed}")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_no_file_takes_the_number_of_a_closed_stream(tmp_path):
    """A message to the stream would go into it."""
    program = (
        "import os, sys\n"
        "from oocdnn.cli import streams\n"
        "streams.prepare()\n"
        "file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)\n"
        "os.write(file, str(file).encode())\n"
        "print('out'), print('errors', file=sys.stderr)\n"
        "os.write(1, b'out'), os.write(2, b'errors')\n"
    )
    line = '"$@" <&- >&- 2>&-'
    words = ["sh", "-c", line, "sh", sys.executable, "-c", program, str(tmp_path / "file")]
    assert subprocess.run(words, cwd="/", check=False, timeout=100).returncode == 0
    assert int((tmp_path / "file").read_bytes()) > 2


@pytest.mark.parametrize("arguments", COMMANDS)
@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "cp1252"])
def test_other_encodings_than_utf8_show_what_they_can(arguments, encoding):
    done = command(*arguments, PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, b"")
    plain = command(*arguments, PYTHONIOENCODING="utf-8")
    assert done.stdout.decode(encoding).split()[0] == plain.stdout.decode().split()[0]


def no_program(folder, kind):
    file = folder / kind.replace(" ", "-")
    if kind == "text":
        file.write_text("hello\n", encoding="utf-8")
    elif kind == "damaged":
        file.write_bytes(b"\x7fELF\0\0")
        file.chmod(0o755)
    elif kind == "no interpreter":
        file.write_text("#!/nowhere/sh\n", encoding="utf-8")
        file.chmod(0o755)
    elif kind == "folder":
        file.mkdir()
    return file


@pytest.mark.parametrize(
    ("kind", "status"),
    [("text", 126), ("damaged", 126), ("no interpreter", 126), ("folder", 126), ("missing", 127)],
)
def test_what_is_no_program_ends_as_in_a_shell(tmp_path, kind, status):
    done = command("run", str(no_program(tmp_path, kind)))
    said = done.stderr.decode().strip().splitlines()[-1]
    assert done.returncode == status, said
    assert said.startswith("Error: ")
    assert str(tmp_path) in said


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (
            "interrupted; what was measured is kept, run it again for the rest",
            "sys.argv[1:] = ['calibrate', '--profile', 'profile.txt']\n"
            "oocdnn.Context.calibrate = lambda self, progress: library()",
        ),
        (
            "Aborted!",
            "sys.argv[1:] = ['plan', 'conv2d:fwd x1x1x8x8 w1x1x3x3']\n"
            "oocdnn.Context.plan = lambda self, problem: library()",
        ),
    ],
)
def test_an_interrupt_within_the_library_ends_the_command(tmp_path, said, line):
    """The library comes back after minutes: here a call of C that no signal ends."""
    program = f"""
import ctypes, signal, sys, time
import oocdnn
from oocdnn.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by background jobs
def library():
    print("begun", flush=True)
    room = ctypes.create_string_buffer(8)
    while True:
        ctypes.CDLL(None).pthread_mutex_lock(lock)
lock = ctypes.create_string_buffer(64)
ctypes.CDLL(None).pthread_mutex_lock(lock)
{line}
main()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        begin = time.monotonic()
        _, errors = process.communicate(timeout=60)
    assert time.monotonic() - begin < 30  # of a machine that is busy
    assert process.returncode == 1
    assert errors.strip().endswith(said)
