"""Rows 19 and 20: sixteen threads; forked children, also while another thread computes."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import threading
import time
import warnings
from collections.abc import Callable

import numpy as np
from engine.cases import DTYPES, Case, RandomDraw, call, make_inputs, random_case
from engine.cases import reference as reference_of

import oocdnn
from reliability.processes import alone
from reliability.rows import Finding, Size, Tally

THREADS = 16
BUDGET = 256 << 10


class Problem:
    """A case with its arrays and its result."""

    def __init__(self, seed: int) -> None:
        self.case: Case = random_case(RandomDraw(np.random.default_rng((seed, 19))))
        self.arrays = make_inputs(self.case)
        self.expected = reference_of(self.case, self.arrays).astype(DTYPES[self.case.dtype])

    def right(self, ctx: oocdnn.Context) -> bool:
        return np.array_equal(call(ctx, self.case, self.arrays), self.expected)


def sixteen(_ready: Callable[[], None], seconds: float) -> Tally:
    problems = [Problem(seed) for seed in range(24)]
    done, lock = Tally(), threading.Lock()
    shared = oocdnn.Context("cpu", BUDGET, profile="none")
    end = time.monotonic() + seconds

    def work(number: int) -> None:
        with oocdnn.Context("cpu", BUDGET, profile="none", threads=1 + number % 2) as own:
            for i in itertools.takewhile(lambda _: time.monotonic() < end, itertools.count()):
                problem = problems[(number + 7 * i) % len(problems)]
                try:
                    good = problem.right(own if i % 2 else shared)
                    text = "a wrong result"
                except Exception as error:
                    good, text = False, f"{type(error).__name__}: {error}"
                with lock:
                    done.cases += 1
                    if not good:
                        done.fail(f"thread {number} call {i}: {text}: {problem.case}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shared.close()
    return done


def measure_threads(size: Size) -> Finding:
    return _measure_threads(size, (0.3, 10, 120)[size.value])


def measure_threads_for_long(size: Size) -> Finding:
    return _measure_threads(size, (0.3, 60, 3600)[size.value])


def _measure_threads(size: Size, seconds: float) -> Finding:
    watched = alone(sixteen, seconds, limit=seconds + 120, size=size)
    if watched.error:
        return Finding(watched.error, False, [f"{THREADS} threads: {watched.error}"])
    done: Tally = watched.value
    figure = (
        f"{THREADS} threads, {done.cases} calls, half on contexts of their own and half on one "
        f"that all share, in {watched.seconds:.0f} s: {len(done.failures)} wrong, no deadlock"
    )
    return Finding(figure, not done.failures, done.failures)


def _child_seconds(work: Callable[[], bool], limit: float = 60) -> float:
    """Seconds that `work` took in a forked child by the child's clock; inf if it hangs or errs."""
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        began = time.monotonic()
        try:
            good = work()
        except BaseException:
            good = False
        os.write(writable, f"{time.monotonic() - began if good else -1}".encode())
        os._exit(0)
    os.close(writable)
    end = time.monotonic() + limit
    while time.monotonic() < end and os.waitpid(pid, os.WNOHANG) == (0, 0):
        time.sleep(0.002)
    else:
        _end(pid)
    with os.fdopen(readable) as pipe:
        text = pipe.read()
    return float(text) if text and float(text) >= 0 else float("inf")


def _end(pid: int) -> None:
    """Kills a child that hangs; one that ended already is gone."""
    try:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


_pool_problem: Problem | None = None


def _in_pool(_: int) -> bool:
    assert _pool_problem is not None
    with oocdnn.Context("cpu", BUDGET, profile="none") as ctx:
        return _pool_problem.right(ctx)


def forks(_ready: Callable[[], None], count: int) -> Tally:
    """Children after a run, while another thread computes, and of multiprocessing."""
    global _pool_problem
    warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
    done = Tally()
    problem = Problem(1)
    _pool_problem = problem
    with oocdnn.Context("cpu", BUDGET, profile="none") as ctx:

        def fresh() -> bool:
            with oocdnn.Context("cpu", BUDGET, profile="none") as own:
                return problem.right(own)

        def fork(name: str) -> None:
            for kind, work in (("parent's context", lambda: problem.right(ctx)), ("own", fresh)):
                seconds = _child_seconds(work)
                done.cases += 1
                if seconds == float("inf"):
                    done.fail(f"fork {name}, {kind}: no result, or a wrong one")
                else:
                    done.at_least("most milliseconds", round(seconds * 1000))

        problem.right(ctx)
        for _ in range(count):
            fork("after a run")
        stop, running = threading.Event(), threading.Event()

        def compute() -> None:
            while not stop.is_set():
                if not problem.right(ctx):
                    done.fail("the parent's result is wrong")
                running.set()

        thread = threading.Thread(target=compute)
        thread.start()
        running.wait(60)
        for _ in range(count):
            fork("while a call runs")
        stop.set()
        thread.join()
        with multiprocessing.get_context("fork").Pool(2) as pool:
            answers = pool.map_async(_in_pool, range(max(4, count))).get(120)
            done.cases += len(answers)
            if not all(answers):
                done.fail("multiprocessing fork: a wrong result")
    return done


def measure_forks(size: Size) -> Finding:
    watched = alone(forks, size.of(1, 5, 50), limit=size.of(60, 200, 900), size=size)
    if watched.error:
        return Finding(watched.error, False, [f"fork: {watched.error}"])
    done: Tally = watched.value
    slowest = done["most milliseconds"]
    if slowest >= 1000:
        done.fail(f"the slowest child took {slowest} ms")
    figure = (
        f"{done.cases} forked children, after a run, while another thread computes, and of "
        f"multiprocessing: {len(done.failures)} wrong, the slowest call took {slowest} ms"
    )
    return Finding(figure, not done.failures, done.failures, done.counts)
