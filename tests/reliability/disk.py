"""Row 10: files that fill up, are too short, shrink meanwhile, fail, or move little at a time."""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import resource
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import oracle

import oocdnn
from oocdnn._core.call import Convolution, Tensor, Window
from oocdnn._core.cdefs import Direction, DType
from reliability.processes import alone
from reliability.rows import Finding, Size

BUDGET = 256 << 10
X = np.random.default_rng(10).integers(-3, 4, (1, 4, 256, 256)).astype(np.float32)
W = np.random.default_rng(11).integers(-3, 4, (4, 4, 3, 3)).astype(np.float32)


class NotHere(Exception):
    """This machine cannot show the fault."""


def expect(function: Callable[[], Any], *kinds: type[Exception]) -> str:
    """The text of the error that `function` has to raise."""
    try:
        function()
    except kinds as error:
        if not str(error):
            raise AssertionError("an error without a text") from error
        return f"{type(error).__name__}: {error}"
    raise AssertionError("no error")


def mapped(folder: Path, name: str, array: np.ndarray) -> np.memmap:
    """`array` in a file, mapped."""
    path = folder / name
    path.write_bytes(array.tobytes())
    return np.memmap(path, array.dtype, "r+", shape=array.shape)


def empty(folder: Path) -> np.memmap:
    """An output in a file that has its size but no blocks yet."""
    path = folder / "y.bin"
    with open(path, "wb") as file:
        file.truncate(X.nbytes)
    return np.memmap(path, np.float32, "r+", shape=X.shape)


def convolve(ctx: oocdnn.Context, x: np.ndarray = X, **more: Any) -> Any:
    return ctx.conv2d(x, W, padding=1, **more)


@contextmanager
def still_usable() -> Iterator[oocdnn.Context]:
    """A context that must give the right result after what the block did to it."""
    with oocdnn.Context("cpu", BUDGET, profile="none", threads=1) as ctx:
        yield ctx
        np.testing.assert_array_equal(convolve(ctx), oracle.forward(X, W, padding=1))


def size_limit(folder: Path) -> str:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    x, out = mapped(folder, "x.bin", X), empty(folder)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with still_usable() as ctx:
        resource.setrlimit(resource.RLIMIT_FSIZE, (X.nbytes // 2, hard))
        try:
            text = expect(lambda: convolve(ctx, x, out=out), oocdnn.FileError)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        convolve(ctx, x, out=out)
        np.testing.assert_array_equal(out, oracle.forward(X, W, padding=1))
    return text


def full_disk(folder: Path) -> str:
    place = folder / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={X.nbytes // 2}", "tmpfs", str(place)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except OSError as error:
        raise NotHere(f"no small file system: {error}") from error
    if done.returncode:
        raise NotHere(f"no small file system: {done.stderr.strip()}")
    try:
        with still_usable() as ctx:
            return expect(lambda: convolve(ctx, out=empty(place)), oocdnn.FileError)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def too_short(folder: Path) -> str:
    x = mapped(folder, "x.bin", X)
    os.truncate(folder / "x.bin", X.nbytes - 1)
    with still_usable() as ctx:
        return expect(lambda: convolve(ctx, x), oocdnn.InvalidProblem)


def shrinking(folder: Path) -> str:
    x = mapped(folder, "x.bin", X)

    def shrink(done: int, _tiles: int) -> None:
        if done == 1:
            os.truncate(folder / "x.bin", X.nbytes // 4)

    with still_usable() as ctx:
        return expect(lambda: convolve(ctx, x, progress=shrink), oocdnn.FileError)


def run_with_descriptor(ctx: oocdnn.Context, fd: int) -> None:
    """The convolution with x in a descriptor of the caller's."""
    out = np.empty_like(X)
    shapes = {"x": X.shape, "w": W.shape, "y": X.shape}
    strides = {n: tuple(np.cumprod((1, *s[:0:-1]))[::-1].tolist()) for n, s in shapes.items()}
    places = {"w": W.ctypes.data, "y": out.ctypes.data}
    tensors: Any = {
        n: Tensor(DType.FLOAT32, s, strides[n], places.get(n, 0), fd if n == "x" else -1)
        for n, s in shapes.items()
    }
    window = Window((1, 1), (1, 1), (1, 1), (1, 1))
    ctx.run(Convolution(Direction.FORWARD, window), tensors)


def unreadable(folder: Path) -> str:
    mapped(folder, "x.bin", X)
    with still_usable() as ctx:
        fd = os.open(folder / "x.bin", os.O_WRONLY)
        try:
            kinds = (oocdnn.FileError, oocdnn.InvalidProblem)
            return expect(lambda: run_with_descriptor(ctx, fd), *kinds)
        finally:
            os.close(fd)


def closed(folder: Path) -> str:
    mapped(folder, "x.bin", X)
    fd = os.open(folder / "x.bin", os.O_RDONLY)
    os.close(fd)
    with still_usable() as ctx:
        kinds = (oocdnn.FileError, oocdnn.InvalidProblem)
        return expect(lambda: run_with_descriptor(ctx, fd), *kinds)


def no_file(folder: Path) -> str:
    """A pipe cannot be read at an offset."""
    readable, writable = os.pipe()
    try:
        with still_usable() as ctx:
            kinds = (oocdnn.FileError, oocdnn.InvalidProblem)
            return expect(lambda: run_with_descriptor(ctx, readable), *kinds)
    finally:
        os.close(readable)
        os.close(writable)


def flaky(fail_at: int, most_bytes: int) -> None:
    """See flaky_files.c, which is preloaded."""
    ctypes.CDLL(None).flaky_files(ctypes.c_long(fail_at), ctypes.c_long(most_bytes))


def short_transfers(folder: Path) -> str:
    """Reads and writes that move little, or are interrupted, go on where they stopped."""
    x, out = mapped(folder, "x.bin", X), empty(folder)
    with still_usable() as ctx:
        flaky(0, 1000)
        convolve(ctx, x, out=out)
        flaky(0, 0)
    np.testing.assert_array_equal(out, oracle.forward(X, W, padding=1))
    return "the right result"


def failing_transfers(folder: Path) -> str:
    """Each read and write fails once with EIO."""
    x, out = mapped(folder, "x.bin", X), empty(folder)
    text = ""
    with still_usable() as ctx:
        for nth in itertools.count(1):
            flaky(nth, 0)
            try:
                convolve(ctx, x, out=out)
                break
            except oocdnn.FileError as error:
                text = str(error)
            finally:
                flaky(0, 0)
            assert os.strerror(errno.EIO) in text, text
    assert nth > 10, "the file was hardly touched"
    return f"{nth - 1} times: {text}"


def refused_threads(folder: Path) -> str:
    """Each thread that a first call on files starts is refused once."""
    x, out = mapped(folder, "x.bin", X), empty(folder)
    few_threads = ctypes.CDLL(None).few_threads
    text = ""
    for nth in itertools.count(1):
        with still_usable() as ctx:
            few_threads(ctypes.c_long(nth))
            try:
                convolve(ctx, x, out=out)
                break
            except oocdnn.DeviceError as error:
                text = str(error)
            finally:
                few_threads(ctypes.c_long(0))
        assert "thread" in text, text
    assert nth > 4, "few threads were started"
    return f"{nth - 1} times: {text}"


# Each with the code that has to be preloaded for it.
SCENES: dict[Callable[[Path], str], str] = {
    size_limit: "",
    full_disk: "",
    too_short: "",
    shrinking: "",
    unreadable: "",
    closed: "",
    no_file: "",
    short_transfers: "flaky_files.c",
    failing_transfers: "flaky_files.c",
    refused_threads: "few_threads.c",
}
IN_THIS_PROCESS = (too_short, shrinking)


def play(_ready: Callable[[], None], scene: Callable[[Path], str]) -> tuple[str, str]:
    """(what happened, the text) of one scene."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return "as it should", scene(Path(folder))
        except NotHere as reason:
            return "not here", str(reason)


@contextmanager
def preloaded(source: str) -> Iterator[None]:
    """Processes that begin inside have the compiled source loaded before anything else."""
    if not source:
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "preloaded.so"
        command = ["cc", "-shared", "-fPIC", "-o", str(library), Path(__file__).with_name(source)]
        subprocess.run(command, check=True)
        before = os.environ.get("LD_PRELOAD", "")
        os.environ["LD_PRELOAD"] = f"{before}:{library}"
        try:
            yield
        finally:
            os.environ["LD_PRELOAD"] = before


def measure(size: Size) -> Finding:
    scenes = SCENES if size.apart else {scene: SCENES[scene] for scene in IN_THIS_PROCESS}
    details, failures, skipped = {}, [], []
    for scene, source in scenes.items():
        name = scene.__name__
        with preloaded(source):
            watched = alone(play, scene, limit=120, size=size)
        if watched.error:
            failures.append(f"{name}: {watched.error}")
            continue
        kind, details[name] = watched.value
        if kind == "not here":
            skipped.append(name)
    figure = (
        f"{len(details) - len(skipped)} of {len(scenes)} faults end as they should; checksums are "
        "none, because the files hold the caller's arrays and nothing else"
    )
    if skipped:
        figure += "; not shown here: " + ", ".join(skipped)
    return Finding(figure, not failures, failures, details)
