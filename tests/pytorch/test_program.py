"""Training of programs that do not know of a limit, as `oocdnn run --limit` plans it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("highspy", reason="plans of networks are solved by HiGHS")

from oocdnn.errors import DeviceError
from oocdnn.torch import program
from oocdnn.torch.limit import cuda_card
from oocdnn.torch.limit.entry import storage_bytes

HERE = Path(__file__).parents[1]

# The CPU in the place of a GPU, with a limit of a few hundred KiB.
ON_THE_CPU = """
import torch, threading
from oocdnn.torch import program
from oocdnn.torch.limit.host_card import HostCard
from pytorch.trained import LIMIT, pair, several, step

program.LEAST = 1 << 10
program._is_large = lambda t: not (t.is_leaf and t.requires_grad) and t.nbytes >= program.LEAST
cards = []

def card(device):
    cards.append(HostCard())
    return cards[-1]

program._card = card
program.begin()
"""


def run(script: str, limit: int = 300_000, **more: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "OOCDNN_LIMIT": str(limit + 7),
        "OOCDNN_BUDGET": "7",
        "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
        **more,
    }
    return subprocess.run(
        [sys.executable, "-c", ON_THE_CPU + script],
        capture_output=True, text=True, check=False, timeout=100, env=environment, cwd="/",
    )  # fmt: skip


COMPARED = """
ours, theirs, mine, plain = pair()
several(ours, mine, 14)
"""
EQUAL = """
aside.step_aside()
several(theirs, plain, 14)
assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
print("equal", len(cards))
"""


def test_training_is_planned_and_said_in_one_line() -> None:
    done = run("from oocdnn.torch.limit import aside\n" + COMPARED + EQUAL)
    assert (done.returncode, done.stdout) == (0, "equal 1\n"), done.stderr
    (line,) = done.stderr.splitlines()
    assert re.match(r"oocdnn: training is planned within [\d.]+ KiB: of what backward reads ", line)
    assert "a step takes" in line
    assert "of what it takes with everything kept" in line


@pytest.mark.parametrize(("rank", "name"), [(None, "page.html"), ("3", "page.rank3.html")])
def test_a_report_is_written_at_the_end(tmp_path: Path, rank: str | None, name: str) -> None:
    told = {"OOCDNN_REPORT": str(tmp_path / "page.html")} | ({"RANK": rank} if rank else {})
    done = run(COMPARED, **told)
    assert done.returncode == 0, done.stderr
    assert [one.name for one in tmp_path.iterdir()] == [name]
    assert "Memory over the step" in (tmp_path / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("why", ["no folder", "no plan"])
def test_a_report_that_cannot_be_written_is_said(tmp_path: Path, why: str) -> None:
    path = tmp_path / "none" / "page.html" if why == "no folder" else tmp_path / "page.html"
    script = COMPARED if why == "no folder" else "net, *_ = pair()\nnet(torch.ones(8, 3, 16, 16))\n"
    done = run(script, OOCDNN_REPORT=str(path))
    assert done.returncode == 0
    assert f"oocdnn: no report is written to {path}: " in done.stderr
    assert not list(tmp_path.iterdir())


def test_plans_are_taken_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "plans.json"
    script = (
        "from oocdnn.network import planner\n"
        "searched, search = [], planner.plan\n"
        "def counted(*given, **more):\n"
        "    searched.append(1)\n"
        "    return search(*given, **more)\n"
        "planner.plan = counted\n"
        "from oocdnn.torch.limit import aside\n" + COMPARED + EQUAL + "print(len(searched) > 0)\n"
    )
    for found in ("True", "False"):
        done = run(script, OOCDNN_PLAN_FILE=str(path))
        assert (done.returncode, done.stdout) == (0, f"equal 1\n{found}\n"), done.stderr
        assert "training is planned within" in done.stderr


def test_a_file_that_is_not_of_plans_is_said_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear all,\n")
    done = run(COMPARED, OOCDNN_PLAN_FILE=str(path))
    assert done.returncode == 0, done.stderr
    first, *rest = done.stderr.splitlines()
    assert first.startswith(f"oocdnn: {path} is not a file of plans of steps and stays as it is")
    assert len(rest) == 1
    assert path.read_text() == "Dear all,\n"


def test_what_is_no_lender_is_said_and_training_planned_without() -> None:
    done = run(COMPARED, OOCDNN_BORROW="cuda:1=much")
    assert done.returncode == 0, done.stderr
    first, second = done.stderr.splitlines()
    assert first.startswith("oocdnn: OOCDNN_BORROW: what cuda:1 lends is 'much', not a number")
    assert "training is planned within" in second


def test_what_fits_is_kept_and_said() -> None:
    done = run(COMPARED, limit=1 << 30)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "oocdnn: training fits 1.00 GiB: everything is kept\n"


def test_what_fits_no_limit_is_swapped_and_goes_on() -> None:
    done = run("from oocdnn.torch.limit import aside\n" + COMPARED + EQUAL, limit=1000)
    assert (done.returncode, done.stdout) == (0, "equal 1\n"), done.stderr
    assert "are swapped from here on" in done.stderr


def test_programs_without_training_are_left_alone() -> None:
    done = run(
        "from oocdnn.torch.limit import aside\n"
        "ours, *_ = pair()\n"
        "with torch.no_grad():\n"
        "    ours(torch.randn(8, 3, 16, 16))\n"
        "small = torch.ones(3, requires_grad=True)\n"
        "(small * small * small).sum().backward()\n"
        "print(len(cards), len(aside._hooks()))\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 1\n", "")


def test_odd_programs_have_the_bits_of_plain_pytorch() -> None:
    """Each in a thread of its own, so that each has a limit of its own."""
    done = run(
        "from pytorch.test_limit_programs import PROGRAMS\n"
        "from oocdnn.torch.limit import aside\n"
        "program._LIMITS = 1000\n"
        "expected, found = {}, {}\n"
        "def plain(name):\n"
        "    torch.manual_seed(0)\n"
        "    aside.step_aside()\n"
        "    expected[name] = PROGRAMS[name]()\n"
        "    aside._hooks()[0].step_back()\n"
        "def planned(name):\n"
        "    torch.manual_seed(0)\n"
        "    found[name] = PROGRAMS[name]()\n"
        "for name in PROGRAMS:\n"
        "    plain(name)\n"
        "    thread = threading.Thread(target=planned, args=(name,))\n"
        "    thread.start()\n"
        "    thread.join()\n"
        "for name, values in expected.items():\n"
        "    same = [torch.equal(a, b) for a, b in zip(found[name], values, strict=True)]\n"
        "    print(name, all(same))\n"
        "print(len(PROGRAMS), len(cards))\n",
        limit=120_000,
    )
    assert done.returncode == 0, done.stderr
    *lines, last = done.stdout.splitlines()
    count, limits = map(int, last.split())
    assert count == len(lines) >= 20
    assert [line for line in lines if not line.endswith(" True")] == []
    assert limits > count // 2  # some, as those of checkpoints, save nothing large


def test_warnings_that_are_errors_and_no_standard_error_break_nothing() -> None:
    done = run(
        "import warnings, sys\n"
        "warnings.simplefilter('error')\n"
        "sys.stderr = None\n" + COMPARED + "print('done')\n",
        limit=1000,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_sparse_tensors_are_left_alone() -> None:
    sparse = torch.eye(3).to_sparse()
    assert storage_bytes(sparse) == -1
    assert storage_bytes(torch.eye(3)) == 36

    class OnGpu:
        is_cuda, is_leaf, is_nested = True, False, False

        def _is_zerotensor(self) -> bool:
            return False

        def __init__(self, tensor: torch.Tensor) -> None:
            self.layout, self.untyped_storage = tensor.layout, tensor.untyped_storage

    assert not program._is_large(OnGpu(sparse))
    assert not program._is_large(OnGpu(torch.ones(3)))
    assert program._is_large(OnGpu(torch.ones(program.LEAST)))


def test_versions_are_checked_before_anything_is_planned() -> None:
    done = run(
        "a = torch.ones(3, requires_grad=True)\n"
        "b = a * 2\n"
        "y = b * b\n"
        "b.add_(1)\n"
        "try:\n"
        "    y.sum().backward()\n"
        "except RuntimeError as error:\n"
        "    print('modified by an inplace operation' in str(error))\n"
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_transforms_work_while_a_thread_waits_and_afterwards() -> None:
    done = run(
        "def cube(x):\n"
        "    return (x ** 3).sum()\n"
        "x = torch.ones(600)\n"
        "print(torch.func.grad(cube)(x)[0].item())\n"
        + COMPARED
        + "print(torch.func.grad(cube)(x)[0].item(), len(cards))\n"
    )
    assert (done.returncode, done.stdout) == (0, "3.0\n3.0 1\n"), done.stderr


def test_a_thread_that_trains_is_planned_and_another_one_on_the_same_device_is_not() -> None:
    done = run(
        "made, limits = [], []\n"
        "gate = threading.Event()\n"
        "def train(number):\n"
        "    net, _, optimizer, _ = pair()\n"
        "    several(net, optimizer, 3)\n"
        "    made.append(len(cards))\n"
        "    if number == 0:\n"
        "        second.start()\n"
        "        second.join()\n"
        "first, second = (threading.Thread(target=train, args=(n,)) for n in range(2))\n"
        "first.start()\n"
        "first.join()\n"
        "third = threading.Thread(target=train, args=(2,))\n"
        "third.start()\n"
        "third.join()\n"
        "print(made)\n"
    )
    assert (done.returncode, done.stdout) == (0, "[1, 1, 2]\n"), done.stderr


def test_threads_of_a_class_of_their_own_run_as_they_are() -> None:
    done = run(
        "class Own(threading.Thread):\n"
        "    def run(self):\n"
        "        print(self.name, 'run' in vars(self))\n"
        "thread = Own(name='own')\n"
        "thread.start()\n"
        "thread.join()\n"
        "print('run' in vars(thread))\n"
    )
    assert (done.returncode, done.stdout) == (0, "own True\nFalse\n"), done.stderr


def test_tools_that_wrap_threads_find_methods() -> None:
    """As tools that follow errors do: they call the function of `run` with the thread."""
    done = run(
        "start = threading.Thread.start\n"
        "def followed(thread):\n"
        "    own = getattr(thread.run, '__func__', thread.run)\n"
        "    thread.run = lambda: own(thread)\n"
        "    start(thread)\n"
        "def waits(thread):\n"
        "    program._begun[0]._wrap(thread)\n"
        "    followed(thread)\n"
        "threading.Thread.start = waits\n"
        "thread = threading.Thread(target=print, args=('ran',))\n"
        "thread.start()\n"
        "thread.join()\n"
        "class Property(threading.Thread):\n"
        "    run = property(lambda self: lambda: print('property'))\n"
        "thread = Property()\n"
        "program._begun[0]._wrap(thread)\n"
        "thread.run()\n"
    )
    assert (done.returncode, done.stdout) == (0, "ran\nproperty\n"), done.stderr


def test_hooks_of_the_program_stay_the_latest_ones() -> None:
    done = run(
        "program._begun.clear()\n"
        "seen = []\n"
        "from oocdnn.torch.limit import aside\n"
        "aside.step_aside()\n"
        "hooks = torch.autograd.graph.saved_tensors_hooks\n"
        "with hooks(lambda t: seen.append(1) or t, lambda t: t):\n"
        "    program.begin()\n"
        "    program.begin()\n"
        "    (torch.ones(3, requires_grad=True) ** 2).sum().backward()\n"
        "print(len(seen), torch._C._autograd._top_saved_tensors_default_hooks(True))\n"
    )
    assert (done.returncode, done.stdout) == (0, "1 None\n"), done.stderr
    assert "CUDA begins within saved-tensor hooks of the program" in done.stderr


def test_threads_of_single_steps_are_planned_a_few_times_only() -> None:
    done = run(
        "net, _, optimizer, _ = pair()\n"
        "for _ in range(6):\n"
        "    thread = threading.Thread(target=step, args=(net, optimizer))\n"
        "    thread.start()\n"
        "    thread.join()\n"
        "print(len(cards))\n"
    )
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


@pytest.mark.parametrize("what", ["saved", "transformed"])
def test_threads_of_autograds_own_are_left_alone(what: str) -> None:
    """A pass that is nested deeply goes on in another thread, which has the hooks too."""
    done = run(
        f"import os, sys\nwhat = {what!r}\n"
        "class Deep(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, x, depth):\n"
        "        ctx.depth = depth\n"
        "        return x.clone()\n"
        "    @staticmethod\n"
        "    def backward(ctx, g):\n"
        "        if ctx.depth:\n"
        "            with torch.enable_grad():\n"
        "                x = torch.ones(2, requires_grad=True)\n"
        "                Deep.apply(x, ctx.depth - 1).sum().backward()\n"
        "        elif what == 'saved':\n"
        "            with torch.enable_grad():\n"
        "                x = torch.ones(9000, requires_grad=True)\n"
        "                (x * 1).square().sum().backward()\n"
        "        else:\n"
        "            torch.func.grad(lambda x: (x ** 3).sum())(torch.ones(600))\n"
        "        return g, None\n"
        "Deep.apply(torch.ones(2, requires_grad=True), 100).sum().backward()\n"
        "print('done', torch.func.grad(lambda x: (x ** 3).sum())(torch.ones(3)).sum().item())\n"
        # PyTorch 2.13 itself sometimes aborts when Python ends beside the other thread.
        "sys.stdout.flush()\n"
        "os._exit(0)\n"
    )
    assert (done.returncode, done.stdout) == (0, "done 9.0\n"), done.stderr


def test_a_forked_child_is_not_planned() -> None:
    done = run(
        "import os\n"
        "from oocdnn.torch.limit import aside\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    net, _, optimizer, _ = pair()\n"
        "    several(net, optimizer, 2)\n"
        "    print(len(cards), aside._hooks()[0]._pushed, flush=True)\n"
        "    os._exit(0)\n"
        "print(os.waitpid(child, 0)[1], len(cards), aside._hooks()[0]._pushed is not None)\n"
    )
    assert (done.returncode, done.stdout) == (0, "0 None\n0 0 True\n"), done.stderr


def test_what_cannot_be_planned_is_said_and_runs() -> None:
    done = run(
        "from oocdnn.errors import Unsupported\n"
        "def card(device):\n"
        "    raise Unsupported('no such card')\n"
        "program._card = card\n" + COMPARED + "print('done')\n"
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert done.stderr == "oocdnn: training is not planned: no such card\n"


def test_the_driver_is_asked_what_the_card_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a limit the runtime answers for the limit."""

    class Driver:
        status = 0

        def cuMemGetInfo_v2(self, free: Any, total: Any) -> int:
            free._obj.value, total._obj.value = 300, 1000
            return self.status

    driver = Driver()
    monkeypatch.setattr(cuda_card, "_driver", lambda: driver)
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 150)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (0, 0))
    gpu = SimpleNamespace(_index=0, device=torch.device("cuda", 0))
    assert cuda_card.CudaCard.others(gpu) == 550
    driver.status = 201
    with pytest.raises(DeviceError, match="201"):
        cuda_card.CudaCard.others(gpu)


def test_planning_shows_on_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    ours, theirs = os.openpty()
    with (
        os.fdopen(theirs, "w", encoding="utf-8") as terminal,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(sys, "stderr", terminal)
        with program._progress("planning the step"):
            assert os.read(ours, 100).decode() == "oocdnn: planning the step ..."
        assert os.read(ours, 100).decode() == "\r\x1b[K"
    os.close(ours)
    with program._progress("planning the step"):
        assert capfd.readouterr().err == ""
