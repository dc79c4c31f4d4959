"""One run on a GPU machine: is the device right, and how fast are its wires?

    python tests/gpu/smoke.py --library build/native/lib/liboocdnn_testing.so --device cuda:0

Every line names what it did; the last says PASSED or FAILED. `--device cpu:direct` runs the same
checks on the CPU device, and LD_LIBRARY_PATH=build/native/fake_cuda those of the CUDA device
without a GPU. `--quick` leaves the rates out.
"""

from __future__ import annotations

import argparse
import collections
import functools
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
from chains import chain_check
from checks import (
    DIRECTIONS,
    bits_check,
    engine_check,
    finish_check,
    move_check,
    run_twice,
    sized_op,
    transfer_check,
)
from core import (
    BACKWARD_BIAS,
    BACKWARD_FILTER,
    BF16,
    F16,
    F32,
    F64,
    NAMES,
    NHWC,
    SIZES,
    CoreError,
    Rig,
    Transfer,
    View,
    W,
    X,
    Y,
    _six,
    dense,
    layout,
    testing_library,
)

NCHW = (0, 1, 2, 3, 4, 5)
failures = 0


def report(name: str, check: Callable[..., str], cases: int, seed: int) -> None:
    """Runs `check` on `cases` random cases and prints one line; the first failure in full."""
    global failures
    kinds: collections.Counter[str] = collections.Counter()
    begin = time.perf_counter()
    case = 0
    try:
        for case in range(cases):
            kinds[str(check(rng=np.random.default_rng([seed, case])))] += 1
    except Exception:
        failures += 1
        print(f"FAILED {name}, case {case} of seed {seed}")
        traceback.print_exc(limit=3, file=sys.stdout)
        return
    seen = " ".join(f"{kind}:{count}" for kind, count in sorted(kinds.items()))
    seconds = time.perf_counter() - begin
    print(f"ok     {name}: {cases} cases in {seconds:.1f} s ({seen})", flush=True)


def check_all(rig: Rig, cases: int, seed: int) -> None:
    report("fetch and drain", lambda rng: transfer_check(rig, rng), cases, seed)
    report("move", lambda rng: move_check(rig, rng), cases // 2, seed)
    report("finish", lambda rng: finish_check(rig, rng), cases, seed)
    for engine in rig.engines:
        for direction, name in enumerate(DIRECTIONS):
            check = functools.partial(engine_check, rig, direction=direction, engine=engine)
            report(f"{name}, {engine}", check, cases // 2, seed)


def check_bits(rig: Rig, library: str, cases: int, seed: int) -> None:
    """The direct engine against the CPU device's, in bits, on real numbers."""
    if "direct" not in rig.engines:
        return
    report("backward_bias, bits of one chain", lambda rng: chain_check(rig, rng), cases, seed)
    other = Rig(library, "cpu:direct")
    for direction, name in enumerate(DIRECTIONS):
        check = functools.partial(bits_check, rig, other, direction=direction)
        report(f"{name}, bits of the CPU's", check, cases // 2, seed)
    other.close()


def check_large(rig: Rig) -> None:
    """More than 2^31 elements in one transfer, through a copy engine and through a kernel."""
    global failures
    count = 2**31 + 4096
    rows = (1, 1, 1, 1, 2**19 + 1, 4096)
    for tile_type in (BF16, F32):
        keep = len(rig.blocks)
        lay = layout(tile_type, rows)
        tile = rig.memory(int(lay.bytes), host=False)
        source, target = rig.array(count, BF16), rig.array(count, BF16)
        for begin in range(0, count, 2**24):
            part = source[begin : begin + 2**24]
            part[:] = np.arange(begin // 2**24, begin // 2**24 + part.size) % 0x7F00
        rig.copy("fetch", rig.whole(lay, tile, View(source.ctypes.data, BF16, _six(*dense(rows)))))
        rig.copy("drain", rig.whole(lay, tile, View(target.ctypes.data, BF16, _six(*dense(rows)))))
        rig.synchronize()
        same = np.array_equal(source, target)
        failures += not same
        print(f"{'ok    ' if same else 'FAILED'} {count} elements, bf16 through {NAMES[tile_type]}")
        rig.release(keep)


def check_large_filter(rig: Rig) -> None:
    """A filter gradient of 16-bit tiles that pays for an engine of its own: run, then added to."""
    global failures
    op = sized_op(BACKWARD_FILTER, 64, 512, 512, 34, 3, BF16)
    op.accumulates = 1
    rng = np.random.default_rng(1)
    x, y = (rng.integers(-4, 5, (1, 1, 512, 1, 1, 1)).astype(np.float64) for _ in range(2))
    values = {
        X: np.broadcast_to(x, (64, 1, 512, 1, 34, 34)),
        W: np.zeros((1, 512, 512, 1, 3, 3)),
        Y: np.broadcast_to(y, (64, 1, 512, 1, 32, 32)),
    }
    wanted = 64 * 32 * 32 * y.reshape(512, 1) * x.reshape(1, 512)
    for engine in (name for name in rig.engines if name.startswith("cudnn")):
        once, twice, _ = run_twice(rig, op, values, engine)
        same = (once[0, :, :, 0] == wanted[..., None, None]).all()
        same &= (twice == 2 * once).all()
        failures += not same
        print(f"{'ok    ' if same else 'FAILED'} a large filter gradient of bf16, {rig.taken}")


def check_pageable(rig: Rig) -> None:
    """Pageable memory is refused with a reason, and the device goes on working."""
    global failures
    if rig.description.startswith("cpu"):
        return
    lay = layout(F32, (1, 1, 1, 1, 1, 4096))
    tile = rig.memory(int(lay.bytes), host=False)
    pageable = np.zeros(4096, np.float32)
    try:
        rig.copy("fetch", rig.whole(lay, tile, View(pageable.ctypes.data, F32, lay.stride)))
    except CoreError as error:
        print(f"{'ok    ' if error.code == 4 else 'FAILED'} pageable memory: {error}")
        failures += error.code != 4
    else:
        failures += 1
        print("FAILED pageable memory was fetched from")
    rig.synchronize()


def rate(rig: Rig, work: Callable[[], None], seconds: float = 0.4) -> float:
    """Seconds of one piece of work, by the stream's own clock, the best of a few."""
    work()
    rig.synchronize()
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        before = rig.busy_seconds()
        work()
        rig.synchronize()
        best = min(best, rig.busy_seconds() - before)
    return best


def transfer_rate(
    rig: Rig,
    shape: tuple[int, ...],
    types: tuple[int, int],
    orders: tuple[Any, Any],
    title: str,
    part: tuple[slice, ...] | None = None,
    mirrored: bool = False,
    bounce: int = 0,
) -> None:
    """GB/s of the view's bytes; `part` is the box of the tensor that is one tile. `bounce` is bytes
    of bounce memory; below 0, the tensor itself lies on the device."""
    keep = len(rig.blocks)
    window = part or tuple(slice(0, s) for s in shape)
    begin, end = [s.start for s in window], [s.stop for s in window]
    extent = [e - b for b, e in zip(begin, end, strict=True)]
    elements = int(np.prod(shape))
    if bounce < 0:
        place = rig.memory(elements * SIZES[types[0]], host=False)
    else:
        array = rig.array(elements, types[0])
        array[:] = 1
        place = array.ctypes.data
    stride, first = dense(shape, orders[0]), 0
    if mirrored:
        first, stride[5] = (shape[5] - 1) * stride[5], -stride[5]
    lay = layout(types[1], extent, orders[1])
    tile = rig.memory(int(lay.bytes), host=False)
    through = rig.memory(bounce, host=False) if bounce > 0 else 0
    view = View(place + first * SIZES[types[0]], types[0], _six(*stride))
    zero, whole = _six(), _six(*extent)
    first_valid, last_valid = _six(*begin), _six(*end)
    box = (first_valid, whole, first_valid, last_valid)
    transfer = Transfer(view, lay, 0, *box, zero, whole, tile, through, max(bounce, 0))
    size = int(np.prod(extent)) * SIZES[types[0]]
    texts = []
    for verb in ("fetch", "drain"):
        seconds = rate(rig, lambda v=verb: rig.copy(v, transfer))
        method = rig.method(verb, transfer, host=bounce >= 0)
        texts.append(f"{verb} {size / seconds / 1e9:6.1f} GB/s ({method})")
    print(f"rate   {title}: {size / 2**20:.0f} MiB, " + ", ".join(texts), flush=True)
    rig.release(keep)


def bounce_rates(rig: Rig, scale: int) -> None:
    """Transposing transfers in pieces, and what their second step alone does on the device."""
    photo = (8 * scale, 1, 64, 1, 224, 224)
    large = (1, 1, 256 * scale, 1, 1024, 1024)
    every = tuple(slice(0, s) for s in large[:4])
    shapes = (
        ("whole", photo, None),
        ("17 rows", photo, (*(slice(0, s) for s in photo[:4]), slice(100, 117), slice(0, 224))),
        ("8 long rows", large, (*every, slice(100, 108), slice(0, 1024))),
        ("64 rows of 520 B", large, (*every, slice(100, 164), slice(127, 257))),
    )
    for title, shape, part in shapes:
        for dtype in (F32, BF16):
            for size in (-1, 4, 8, 16, 32, 64):
                where = f"through {size} MiB" if size > 0 else "on the device"
                name = f"{NAMES[dtype]} NCHW->NHWC {title} {where}"
                types, orders = (dtype, dtype), (NCHW, NHWC)
                transfer_rate(rig, shape, types, orders, name, part, bounce=size << 20)


def rates(rig: Rig, scale: int) -> None:
    batch = 8 * scale
    shape = (batch, 1, 64, 1, 224, 224)
    both = ((F32, F32), (F32, BF16), (BF16, BF16), (F16, F16), (F32, F64))
    for types in both:
        name = f"{NAMES[types[0]]}->{NAMES[types[1]]}"
        transfer_rate(rig, shape, types, (NCHW, NCHW), f"{name} NCHW->NCHW whole")
        transfer_rate(rig, shape, types, (NCHW, NHWC), f"{name} NCHW->NHWC whole")
    transfer_rate(rig, shape, (F32, F32), (NHWC, NCHW), "f32->f32 NHWC->NCHW whole")
    transfer_rate(rig, shape, (BF16, BF16), (NHWC, NHWC), "bf16->bf16 NHWC->NHWC whole")
    rows = (*(slice(0, s) for s in shape[:4]), slice(100, 117), slice(0, 224))
    for types in ((F32, F32), (BF16, BF16)):
        name = f"{NAMES[types[0]]}->{NAMES[types[1]]}"
        transfer_rate(rig, shape, types, (NCHW, NCHW), f"{name} NCHW->NCHW 17 rows", rows)
        transfer_rate(rig, shape, types, (NCHW, NHWC), f"{name} NCHW->NHWC 17 rows", rows)
    for width in (8, 16, 32, 64, 128, 200):
        columns = (*(slice(0, s) for s in shape[:5]), slice(3, 3 + width))
        title = f"f32->f32 NCHW->NCHW columns, rows of {4 * width} B"
        transfer_rate(rig, shape, (F32, F32), (NCHW, NCHW), title, columns)
    transfer_rate(rig, shape, (F32, F32), (NCHW, NCHW), "f32->f32 mirrored W", mirrored=True)
    first = (batch * 16, 1, 3, 1, 224, 224)
    transfer_rate(rig, first, (F32, F32), (NCHW, NHWC), "f32->f32 NCHW->NHWC, 3 channels")
    deep = (batch * 8, 1, 512, 1, 14, 14)
    transfer_rate(rig, deep, (F32, F32), (NCHW, NHWC), "f32->f32 NCHW->NHWC, 14x14")
    transfer_rate(rig, deep, (BF16, BF16), (NCHW, NHWC), "bf16->bf16 NCHW->NHWC, 14x14")
    wide = (batch * 4, 1, 256, 1, 56, 56)
    transfer_rate(rig, wide, (F32, F32), (NHWC, NCHW), "f32->f32 NHWC->NCHW, 256 channels")
    even = (batch, 1, 64, 1, 222, 222)
    transfer_rate(rig, even, (BF16, BF16), (NCHW, NHWC), "bf16->bf16 NCHW->NHWC, 222x222")
    odd = (batch, 1, 61, 1, 223, 223)
    transfer_rate(rig, odd, (F32, BF16), (NCHW, NCHW), "f32->bf16 NCHW->NCHW, odd sizes")
    transfer_rate(rig, odd, (BF16, BF16), (NCHW, NHWC), "bf16->bf16 NCHW->NHWC, odd sizes")


def engine_rates(rig: Rig, engine: str, size: int) -> None:
    for direction, name in enumerate(DIRECTIONS):
        keep = len(rig.blocks)
        op = sized_op(direction, 4, 64, 64, size, 3)
        try:
            executable, layouts, workspace = rig.prepare(op, engine)
        except CoreError as error:
            print(f"rate   {name} f32, {engine}: {error}")
            continue
        tiles = [rig.memory(int(layouts[o].bytes) or 8, host=False) for o in range(4)]
        scratch = rig.memory(workspace, host=False) if workspace else 0
        seconds = rate(rig, lambda e=executable, t=tiles, s=scratch: rig.run(e, t, s, False))
        steps = op.n * op.k * op.out[1] * op.out[2]
        if direction != BACKWARD_BIAS:
            steps *= op.c * op.filter[1] * op.filter[2]
        print(
            f"rate   {name} f32, {rig.taken}, {op.n}x64x{size}x{size}: {seconds * 1e3:.2f} ms, "
            f"{2 * steps / seconds / 1e12:.2f} TFLOP/s",
            flush=True,
        )
        rig.release(keep)


def bias_rates(rig: Rig, batch: int) -> None:
    """GB/s of dy in device memory: of real numbers, and of a sum that grows and so rounds more."""
    if "direct" not in rig.engines:
        return
    shape = (batch, 1, 64, 1, 224, 224)
    values = rig.array(int(np.prod(shape)), F32)
    np.random.default_rng(1).standard_normal(out=values, dtype=np.float32)
    view = View(values.ctypes.data, F32, _six(*dense(shape)))
    for mean in (0.0, 0.5):
        values += np.float32(mean)
        for dtype in (F32, BF16, F64):
            keep = len(rig.blocks)
            op = sized_op(BACKWARD_BIAS, batch, 64, 64, 224, 1, dtype)
            executable, layouts, workspace = rig.prepare(op, "direct")
            tiles = [rig.memory(int(layouts[o].bytes) or 8, host=False) for o in range(4)]
            rig.copy("fetch", rig.whole(layouts[Y], tiles[Y], view))
            scratch = rig.memory(workspace, host=False) if workspace else 0
            seconds = rate(rig, lambda e=executable, t=tiles, s=scratch: rig.run(e, t, s, False))
            size = int(layouts[Y].bytes)
            print(
                f"rate   backward_bias {NAMES[dtype]}, mean {mean}: {size / 2**20:.0f} MiB, "
                f"{seconds * 1e3:.2f} ms, {size / seconds / 1e9:.0f} GB/s",
                flush=True,
            )
            rig.release(keep)
    rig.release(len(rig.blocks) - 1)


def host_rates(rig: Rig, size: int) -> None:
    for count in (2, 1):
        begin = time.perf_counter()
        rig.memory(size, host=True)
        seconds = time.perf_counter() - begin
        print(f"rate   pinned {size / 2**20:.0f} MiB in {seconds:.3f} s ({count})")
        begin = time.perf_counter()
        rig.release(len(rig.blocks) - 1)
        print(f"rate   given back in {time.perf_counter() - begin:.3f} s", flush=True)


def check_no_growth(rig: Rig) -> None:
    """After warm-up, a thousand copies and fills take no device memory."""
    global failures
    lay = layout(F64, (1, 1, 1, 1, 64, 64))
    tile = rig.memory(int(lay.bytes), host=False)
    flat = rig.array(64 * 64, F64)
    transfer = rig.whole(lay, tile, View(flat.ctypes.data, F64, lay.stride))
    free = []
    for _ in range(2):
        for _ in range(1000):
            rig.copy("fetch", transfer)
        rig.synchronize()
        free.append(rig.lib.oocdnn_gpu_free_bytes(rig.handle))
    failures += free[0] != free[1]
    print(f"{'ok    ' if free[0] == free[1] else 'FAILED'} device memory stands still: {free}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", default=testing_library(), help="liboocdnn_testing.so")
    parser.add_argument("--device", default="cuda:0", help="cuda:N[:engine] or cpu[:engine]")
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--large", action="store_true", help="a transfer of 2^31 elements too")
    parser.add_argument("--quick", action="store_true", help="no rates")
    parser.add_argument("--scale", type=int, default=8, help="size of the arrays of the rates")
    args = parser.parse_args()
    if args.library is None:
        parser.error("name the library, or set OOCDNN_TESTING_LIBRARY")
    if "fake_cuda" in os.environ.get("LD_LIBRARY_PATH", ""):  # what it compiles is for no GPU
        os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp()
    begin = time.perf_counter()
    try:
        rig = Rig(args.library, args.device)
    except CoreError as error:
        print(f"FAILED {args.device}: {error}")
        return 1
    print(f"{rig.description} (opened in {time.perf_counter() - begin:.2f} s)", flush=True)
    check_all(rig, args.cases, args.seed)
    check_bits(rig, args.library, args.cases, args.seed)
    check_pageable(rig)
    if args.large:
        check_large(rig)
        check_large_filter(rig)
    if not rig.description.startswith("cpu"):
        check_no_growth(rig)
    if not args.quick:
        host_rates(rig, args.scale << 27)
        rates(rig, args.scale)
        bounce_rates(rig, args.scale)
        bias_rates(rig, 16 * args.scale)
        for engine in rig.engines:
            engine_rates(rig, engine, 28 * args.scale)
    rig.close()
    print("PASSED" if failures == 0 else f"FAILED: {failures}")
    return int(failures != 0)


if __name__ == "__main__":
    sys.exit(main())
