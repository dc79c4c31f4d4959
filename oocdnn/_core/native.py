"""The core library through cffi. The modules of this folder alone know of its ffi objects.

Calls release the GIL; a call's text of failure belongs to its thread and is read at once.
"""

import functools
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from oocdnn import errors
from oocdnn._arguments import need_callable, need_kind
from oocdnn._core.call import Convolution, Options, Pool, Slot, Tensor, Window
from oocdnn._core.cdefs import Direction, DType, Math, Mode, Status
from oocdnn._core.loading import _ffi, _library

Progress = Callable[[int, int], object]

_ERRORS: dict[int, type[Exception]] = {
    Status.INVALID_PROBLEM: errors.InvalidProblem,
    Status.INVALID_DTYPE: errors.InvalidDtype,
    Status.UNSUPPORTED: errors.Unsupported,
    Status.DEVICE_ERROR: errors.DeviceError,
    Status.INTERNAL: errors.DeviceError,
}

_OK = int(Status.OK)


def _text(pointer: Any) -> str:
    return bytes(_ffi().string(pointer)).decode("utf-8", "replace") if pointer else ""


def _check(status: int) -> None:
    """Raises the error of a failed call of this thread."""
    if status == _OK:
        return
    text = _text(_library().oocdnn_last_error())
    detail = int(_library().oocdnn_last_error_detail())
    if status == Status.OUT_OF_MEMORY:
        raise errors.OutOfMemory(text, detail)
    if status == Status.FILE_ERROR:
        raise errors.FileError(text, detail or None)
    if status == Status.INTERRUPTED:
        raise KeyboardInterrupt(text)
    raise _ERRORS.get(status, errors.DeviceError)(text)


def version() -> str:
    """The core library's version."""
    return _text(_library().oocdnn_version())


# What calls have in common is filled in once and copied. All arguments are integers, since numbers
# that are equal may yet differ: 0.0 and -0.0.


@functools.lru_cache(maxsize=512)
def _tensor(dtype: DType, shape: tuple[int, ...], stride: tuple[int, ...]) -> Any:
    """A tensor that lies nowhere yet."""
    c = _ffi().new("oocdnn_tensor *")
    c.dtype, c.rank = dtype, len(shape)
    c.shape[0 : c.rank], c.stride[0 : c.rank] = shape, stride
    return c[0]


@functools.lru_cache(maxsize=512)
def _convolution(
    direction: Direction, window: Window, groups: int, mode: Mode, math: Math, pool: Pool | None
) -> Any:
    """A convolution with factors 1 and 0, no epilogue and no stream."""
    c = _ffi().new("oocdnn_convolution *")
    c[0] = _library().oocdnn_default_convolution(direction, window.rank)
    for s, axis in enumerate(range(3 - window.rank, 3)):
        c.pad_before[axis], c.pad_after[axis] = window.before[s], window.after[s]
        c.stride[axis], c.dilation[axis] = window.stride[s], window.dilation[s]
    c.groups, c.mode, c.math = groups, mode, math
    if pool is not None:
        c.pool.mode, c.pool.ceil = pool.mode, pool.ceil
        for s, axis in enumerate(range(3 - window.rank, 3)):
            c.pool.window[axis], c.pool.stride[axis] = pool.window[s], pool.stride[s]
            c.pool.pad_before[axis], c.pool.pad_after[axis] = pool.before[s], pool.after[s]
    return c[0]


@functools.cache
def _no_operands() -> Any:
    return _ffi().new("oocdnn_operands *")[0]


_OPTION_TEXTS = (
    "device", "budget", "engine", "wrap", "profile", "planning", "workspace", "busy_gpus", "borrow",
)  # fmt: skip


class _Frame:
    """Builds C values and keeps what they point to alive."""

    def __init__(self) -> None:
        self._kept: list[Any] = []

    def new(self, declaration: str, *initial: Any) -> Any:
        value = _ffi().new(declaration, *initial)
        self._kept.append(value)
        return value

    def string(self, name: str, text: str | os.PathLike[str] | None) -> Any:
        """A text, or nothing; the error calls it `name`."""
        if text is None:
            return _ffi().NULL
        need_kind(name, text, (str, bytes, os.PathLike), "a text")
        return self.new("char[]", os.fsencode(text))

    def options(self, options: Options) -> Any:
        c = self.new("oocdnn_options *")
        c[0] = _library().oocdnn_default_options()
        for name in _OPTION_TEXTS:
            setattr(c, name, self.string(name, getattr(options, name)))
        c.threads, c.link_gb_per_s = options.threads, options.link_gb_per_s
        c.reproducible, c.trace = options.reproducible, options.trace
        c.math, c.host_cap = Math.FP32, options.host_cap
        c.planning_seconds = options.planning_seconds
        return c


class InterruptCallback:
    """The progress callback of a call into the core. It calls the caller's progress function, and
    ends the call on Ctrl-C: Python runs signal handlers when the callback is entered, so a
    KeyboardInterrupt is raised here. The callback stores the exception and asks the core to end the
    call; `raise_kept` raises it again.
    """

    def __init__(self) -> None:
        self.callback = _ffi().callback("oocdnn_progress", self._tell, error=1, onerror=self._keep)
        self.progress: Progress | None = None
        self.kept: BaseException | None = None

    def watch(self, progress: Progress | None) -> None:
        """Sets the progress function of the next call."""
        need_callable("progress", progress)
        self.progress = progress

    def forget(self) -> None:
        """Drops the references to the caller's objects."""
        self.progress = self.kept = None

    def _tell(self, _user: Any, done: int, total: int) -> int:
        if self.progress is not None:
            self.progress(done, total)
        return 0

    def _keep(self, _kind: object, error: BaseException, _traceback: object) -> None:
        if self.kept is None:
            self.kept = error

    def raise_kept(self) -> None:
        if self.kept is not None:
            raise self.kept


class _Call:
    """One call as C values, and its progress function. Made once, it serves call after call, each
    in a `with` block."""

    def __init__(self) -> None:
        ffi = _ffi()
        self.convolution = ffi.new("oocdnn_convolution *")
        self.operands = ffi.new("oocdnn_operands *")
        self._tensors: dict[Slot, Any] = {s: ffi.new("oocdnn_tensor *") for s in get_args(Slot)}
        self.interrupt = InterruptCallback()

    def fill(
        self, call: Convolution, tensors: Mapping[Slot, Tensor], progress: Progress | None = None
    ) -> None:
        cast, c = _ffi().cast, self.convolution
        c[0] = _convolution(
            call.direction, call.window, call.groups, call.mode, call.math, call.pool
        )
        c.saves = call.saves
        c.alpha, c.beta = call.alpha, call.beta
        c.activation, c.activation_parameter, c.residual_alpha = call.epilogue
        c.prologue_activation, c.prologue_parameter = call.before
        c.stream, c.progress = cast("void *", call.stream), self.interrupt.callback
        c.workspace_limit = call.workspace
        self.interrupt.watch(progress)
        self.operands[0] = _no_operands()
        for slot, tensor in tensors.items():
            t = self._tensors[slot]
            t[0] = _tensor(tensor.dtype, tensor.shape, tensor.stride)
            t.data, t.fd, t.offset = cast("void *", tensor.address), tensor.fd, tensor.offset
            setattr(self.operands, slot, t)

    def __enter__(self) -> "_Call":
        return self

    def __exit__(self, *_: object) -> None:
        self.interrupt.forget()
        _idle.append(self)


# As many as calls were under way at once, those of no call now.
_idle: list[_Call] = []


def _idle_call() -> _Call:
    try:
        return _idle.pop()
    except IndexError:  # not asked beforehand, since another thread may take the last one
        return _Call()


class HostMemory:
    """Host memory that a device reaches at full speed, as NumPy sees it. Given back when closed or
    collected; it may outlive its context."""

    def __init__(self, handle: Any, size: int) -> None:
        self.address = int(_ffi().cast("uintptr_t", _library().oocdnn_host_data(handle)))
        self.size = size
        self.pinned = True
        self.__array_interface__ = bytes_at(self.address, size)
        self._handle = handle
        self._end = weakref.finalize(self, _free_host, handle, os.getpid())
        self._end.atexit = False

    def unpin(self) -> None:
        """Makes ordinary memory of it, which a forked child inherits. Not after `close`."""
        self.pinned = False
        _library().oocdnn_unpin(self._handle)

    def close(self) -> None:
        """May be called again."""
        self._end()


def bytes_at(address: int, size: int) -> dict[str, Any]:
    """The `__array_interface__` of writable memory."""
    return {"version": 3, "shape": (size,), "typestr": "|u1", "data": (address, False)}


def _free_host(handle: Any, pid: int) -> None:
    # A forked child has not inherited the memory.
    if os.getpid() == pid:
        _library().oocdnn_free_host(handle)


class NativeContext:
    """A context of the core. It is destroyed when closed or collected, once no call is in it."""

    def __init__(self, options: Options) -> None:
        frame, handle = _Frame(), _ffi().new("oocdnn_context **")
        _check(_library().oocdnn_create(frame.options(options), handle))
        self._handle = handle[0]
        # One for each call. It is read after `_closing` is written, and the other way round, so
        # that no lock is needed.
        self._calls: list[None] = []
        # Not at exit: threads may still be in a call then, and the process frees all anyway.
        self._end = weakref.finalize(self, _destroy, self._handle, os.getpid())
        self._end.atexit = False
        self._closing = False
        _living.add(self)

    def forget_calls(self) -> None:
        """In a forked child, where the calls of the parent's other threads do not end."""
        self._calls = []

    @property
    def closed(self) -> bool:
        return self._closing

    def __enter__(self) -> Any:
        """Keeps the handle, which it gives, from being destroyed."""
        self._calls.append(None)
        if self._closing:
            self.__exit__()
            raise errors.DeviceError("this context is closed; make another one")
        return self._handle

    def __exit__(self, *_: object) -> None:
        self._calls.pop()
        if self._closing and not self._calls:
            self._end()

    def close(self) -> None:
        """Destroys the context; where calls are in it, the last of them does so when it ends."""
        self._closing = True
        if not self._calls:
            self._end()

    def run(
        self, call: Convolution, tensors: Mapping[Slot, Tensor], progress: Progress | None
    ) -> None:
        with _idle_call() as c:
            c.fill(call, tensors, progress)
            self._run(c)

    def _run(self, c: _Call) -> None:
        with self as handle:
            status = _library().oocdnn_run(handle, c.convolution, c.operands)
            if status != _OK or c.interrupt.kept is not None:
                c.interrupt.raise_kept()
                _check(status)

    def calibrate(self, progress: Progress | None) -> str:
        """Where the profile is kept."""
        path, interrupt = _ffi().new("const char **"), InterruptCallback()
        interrupt.watch(progress)
        with self as handle:
            status = _library().oocdnn_calibrate(handle, interrupt.callback, _ffi().NULL, path)
            interrupt.raise_kept()
            _check(status)
            return _text(path[0])

    def refine(self, problem: str, compute_seconds: Sequence[float]) -> str:
        """What was refined, as JSON."""
        frame, json = _Frame(), _ffi().new("const char **")
        text = frame.string("problem", problem)
        seconds = _ffi().new("double[]", list(compute_seconds))
        with self as handle:
            _check(_library().oocdnn_refine(handle, text, seconds, len(compute_seconds), json))
            return _text(json[0])

    def plan(self, problem: str) -> str:
        """The plan as JSON."""
        frame, json = _Frame(), _ffi().new("const char **")
        with self as handle:
            _check(_library().oocdnn_plan(handle, frame.string("problem", problem), json))
            return _text(json[0])

    def price(self, problem: str, plan: str) -> str:
        """The same of a plan that the caller names."""
        frame, json = _Frame(), _ffi().new("const char **")
        texts = frame.string("problem", problem), frame.string("plan", plan)
        with self as handle:
            _check(_library().oocdnn_price(handle, *texts, json))
            return _text(json[0])

    def use_plan(self, problem: str, plan: str) -> None:
        frame = _Frame()
        texts = frame.string("problem", problem), frame.string("plan", plan)
        with self as handle:
            _check(_library().oocdnn_use_plan(handle, *texts))

    def candidates(self, problem: str, best: int, random: int, seed: int) -> str:
        """Plans as JSON."""
        frame, json = _Frame(), _ffi().new("const char **")
        text = frame.string("problem", problem)
        with self as handle:
            _check(_library().oocdnn_candidates(handle, text, best, random, seed, json))
            return _text(json[0])

    def stats(self) -> dict[str, Any]:
        """The fields of oocdnn_stats."""
        stats = _ffi().new("oocdnn_stats *")
        with self as handle:
            _check(_library().oocdnn_get_stats(handle, stats))
        return _fields(stats)

    @property
    def device(self) -> str:
        name = _ffi().new("const char **")
        with self as handle:
            _check(_library().oocdnn_device_name(handle, name))
            return _text(name[0])

    def allocate_host(self, size: int) -> HostMemory:
        memory = _ffi().new("oocdnn_host_memory **")
        with self as handle:
            _check(_library().oocdnn_allocate_host(handle, size, memory))
        return HostMemory(memory[0], size)

    def pin(self, address: int, size: int) -> HostMemory:
        memory, data = _ffi().new("oocdnn_host_memory **"), _ffi().cast("void *", address)
        with self as handle:
            _check(_library().oocdnn_pin(handle, data, size, memory))
        return HostMemory(memory[0], size)

    def auto_pin_bytes(self) -> int:
        size = _ffi().new("int64_t *")
        with self as handle:
            _check(_library().oocdnn_auto_pin_bytes(handle, size))
        return int(size[0])

    def release(self) -> None:
        with self as handle:
            _check(_library().oocdnn_release(handle))

    def take_trace(self) -> str:
        return self._take(_library().oocdnn_take_trace)

    def info(self) -> str:
        return self._take(_library().oocdnn_info)

    def check_reports(self) -> str:
        return self._take(_library().oocdnn_check_reports)

    def _take(self, function: Any) -> str:
        text = _ffi().new("const char **")
        with self as handle:
            _check(function(handle, text))
            return _text(text[0])


def _destroy(handle: Any, pid: int) -> None:
    # A forked child has no threads of the parent's context to wait for.
    if os.getpid() == pid:
        _library().oocdnn_destroy(handle)


def _fields(struct: Any) -> dict[str, Any]:
    """A C struct as Python values: numbers, texts, tuples."""
    values: dict[str, Any] = {}
    for name, field in _ffi().typeof(struct).item.fields:
        value = getattr(struct, name)
        if field.type.kind == "array":
            value = _text(value) if field.type.item.cname == "char" else tuple(value)
        values[name] = value
    return values


_living: weakref.WeakSet[NativeContext] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for context in list(_living):
        context.forget_calls()


os.register_at_fork(after_in_child=_after_fork_in_child)
