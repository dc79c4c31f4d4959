"""A system that has no more threads, or no address space for them: a DeviceError, and the process
goes on. OpenMP, with which oneDNN computes, would end it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    os.environ.get("OOCDNN_TEST_DEVICE", "cpu") != "cpu", reason="oneDNN is of the CPU device"
)

SCENE = """
import json, os, resource, sys
import numpy as np, oocdnn
x = np.ones((2, 32, 40, 40), np.float32)
w = np.ones((32, 32, 3, 3), np.float32)

def call(threads):
    with oocdnn.Context("cpu", "1MiB", engine="onednn", threads=threads, profile="none") as ctx:
        assert (ctx.conv2d(x, w) == 32 * 9).all()

refused = []
def refuses(threads=6):
    try:
        call(threads)
        return False
    except (oocdnn.DeviceError, MemoryError) as error:
        refused.append(str(error))
        return True

try:
    call(1)  # everything is opened now
except oocdnn.Unsupported:
    print("null")
    sys.exit()
"""

PROCESSES = """
os.setgroups([])
os.setresgid(*[60000 + os.getpid() % 5000] * 3)
os.setresuid(*[60000 + os.getpid() % 5000] * 3)  # nobody else's, so that threads are counted from 1
for most in range(2, 40):
    resource.setrlimit(resource.RLIMIT_NPROC, (most, 1000))
    if not refuses():
        break
else:
    raise AssertionError(refused)
resource.setrlimit(resource.RLIMIT_NPROC, (1000, 1000))
call(8)  # a larger team
resource.setrlimit(resource.RLIMIT_NPROC, (2, 1000))
refuses(6)
resource.setrlimit(resource.RLIMIT_NPROC, (1000, 1000))
call(6)
print(json.dumps(refused))
"""

ADDRESSES = """
def used():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()

for more in range(8, 200, 4):
    resource.setrlimit(resource.RLIMIT_AS, (used() + (more << 20), -1))
    ends = not refuses()
    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
    if ends:
        break
else:
    raise AssertionError(refused)
call(6)
print(json.dumps(refused))
"""


def play(script: str) -> list[str]:
    """The texts of the calls that were refused."""
    done = subprocess.run(
        [sys.executable, "-c", SCENE + script],
        cwd="/",  # the installed package, not the tree
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    refused = json.loads(done.stdout)
    if refused is None:
        pytest.skip("there is no oneDNN")
    return refused


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes a user without processes")
def test_too_few_processes():
    refused = play(PROCESSES)
    openmp = [text for text in refused if "that oneDNN computes with" in text]
    assert len(openmp) >= 5
    assert all("OOCDNN_THREADS" in text for text in openmp)
    assert all("cannot start thread" in text for text in refused)


def test_too_little_address_space():
    refused = play(ADDRESSES)
    assert any("that oneDNN computes with" in text for text in refused), refused
