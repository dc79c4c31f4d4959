"""Odd arguments of the C interface: what argument_cases.py tries in a process of its own."""

import subprocess
import sys
from pathlib import Path


def test_odd_arguments_give_a_status_and_a_text():
    program = Path(__file__).with_name("argument_cases.py")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert int(done.stdout) > 50_000
