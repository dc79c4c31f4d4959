"""The CUDA device: its planning and its kernels on any machine, the whole of it where a GPU is.

The fake driver (fake_driver.cpp) runs the kernels' own source on the host, so that all but the
hardware is tested everywhere. The scripts run in processes of their own, because a process sees one
driver for as long as it lives.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
NATIVE = HERE.parents[1] / "native"
sys.path.insert(0, str(HERE))

import core  # noqa: E402
from core import BF16, F32, F64, NHWC, Transfer, View, _six, dense, layout  # noqa: E402

LIBRARY = core.testing_library()
pytestmark = pytest.mark.skipif(
    LIBRARY is None, reason="OOCDNN_TESTING_LIBRARY names no testing library; `make test` does"
)


def fake_driver() -> Path:
    assert LIBRARY is not None
    return Path(LIBRARY).resolve().parents[1] / "fake_cuda"


def script(
    name: str, *options: str, driver: Path | None = None
) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ)
    if driver is not None:
        environment["LD_LIBRARY_PATH"] = str(driver)
    return subprocess.run(
        [sys.executable, str(HERE / name), "--library", str(LIBRARY), *options],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def smoke(*options: str, driver: Path | None = None) -> subprocess.CompletedProcess[str]:
    return script("smoke.py", *options, driver=driver)


def test_all_but_the_hardware() -> None:
    if not (fake_driver() / "libcuda.so.1").exists():
        pytest.skip(f"the fake driver is not in {fake_driver()}")
    done = smoke("--quick", "--cases", "60", "--device", "cuda:0", driver=fake_driver())
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_pass_has_a_rate() -> None:
    if not (fake_driver() / "libcuda.so.1").exists():
        pytest.skip(f"the fake driver is not in {fake_driver()}")
    done = script("pass_rates.py", "--bytes", "13000000", "--rounds", "1", driver=fake_driver())
    assert done.returncode == 0, done.stdout + done.stderr
    copy, *passes = done.stdout.splitlines()
    assert copy.split()[-1] == "100.0%"
    assert len(passes) == 6 + 6 + 5 + 6 + 6
    assert all(line.endswith("%") for line in passes), done.stdout


@pytest.mark.gpu
@pytest.mark.timeout(900)
def test_on_the_gpu() -> None:
    done = smoke("--quick", "--cases", "300", "--large")
    if "there is no CUDA driver" in done.stdout or "CUDA_ERROR_NO_DEVICE" in done.stdout:
        pytest.skip(done.stdout.splitlines()[0])
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_missing_driver_is_a_result_with_a_remedy() -> None:
    done = smoke("--quick", "--device", "cuda:0")
    if "there is no CUDA driver" not in done.stdout:
        pytest.skip("there is a CUDA driver here")
    assert "install NVIDIA's driver" in done.stdout


def method(
    shape: tuple[int, ...],
    types: tuple[int, int] = (F32, F32),
    orders: tuple[tuple[int, ...], tuple[int, ...]] = ((0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 4, 5)),
    part: dict[int, tuple[int, int]] | None = None,
    stride: list[int] | None = None,
    host: bool = True,
    verb: str = "fetch",
) -> str:
    """How the planner copies the box `part` of a tensor that begins at address 4096."""
    begin = [(part or {}).get(d, (0, size))[0] for d, size in enumerate(shape)]
    end = [(part or {}).get(d, (0, size))[1] for d, size in enumerate(shape)]
    extent = [e - b for b, e in zip(begin, end, strict=True)]
    view = View(4096, types[0], _six(*(stride or dense(shape, orders[0]))))
    box = (_six(*begin), _six(*extent), _six(*begin), _six(*end))
    lay = layout(types[1], extent, orders[1])
    transfer = Transfer(view, lay, 0, *box, _six(), _six(*extent), 1 << 20)
    numbers = (ctypes.c_int64 * 2)()
    which = ctypes.CDLL(LIBRARY).oocdnn_gpu_method(
        ctypes.byref(transfer), ctypes.c_int(verb == "drain"), ctypes.c_int(host), numbers
    )
    return f"{core.METHODS[which]} calls={numbers[0]} vector={numbers[1]}"


SHAPE = (8, 1, 64, 1, 224, 224)
NCHW = (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("what", "wanted"),
    [
        ({"shape": SHAPE}, "engine calls=1"),
        ({"shape": SHAPE, "part": {4: (10, 27)}}, "engine calls=1"),
        ({"shape": SHAPE, "part": {0: (2, 3), 2: (8, 16)}}, "engine calls=1"),
        ({"shape": SHAPE, "part": {4: (10, 27), 5: (1, 201)}}, "engine calls=1"),
        ({"shape": SHAPE, "part": {2: (8, 40), 4: (10, 138), 5: (1, 201)}}, "engine calls=8"),
        ({"shape": SHAPE, "part": {5: (3, 35)}}, "rows"),  # rows of 128 bytes
        ({"shape": SHAPE, "part": {5: (3, 67)}}, "engine calls=1"),  # of 256
        ({"shape": SHAPE, "types": (F32, BF16)}, "rows calls=1 vector=4"),
        ({"shape": SHAPE, "types": (F32, F64)}, "rows calls=1 vector=2"),
        ({"shape": SHAPE, "types": (BF16, BF16), "host": False, "part": {4: (10, 27)}}, "rows"),
        ({"shape": SHAPE, "orders": (NCHW, NHWC)}, "transpose calls=1 vector=4"),
        ({"shape": SHAPE, "orders": (NCHW, NHWC), "verb": "drain"}, "transpose calls=1 vector=4"),
        (
            {"shape": (8, 1, 512, 1, 14, 14), "types": (BF16, BF16), "orders": (NCHW, NHWC)},
            "transpose calls=1 vector=4",
        ),
        ({"shape": SHAPE, "orders": (NHWC, NHWC), "part": {4: (1, 9)}}, "engine calls=1"),
        ({"shape": (8, 1, 1, 1, 224, 224), "orders": (NCHW, NHWC)}, "engine calls=1"),
        ({"shape": (0, 1, 64, 1, 224, 224)}, "nothing"),
    ],
)
def test_each_copy_goes_the_best_way(what: dict[str, object], wanted: str) -> None:
    assert method(**what).startswith(wanted)  # type: ignore[arg-type]


def test_a_pitch_beyond_the_copy_engines_limit_becomes_calls_of_rows() -> None:
    stride = dense((1, 1, 1, 1, 3, 1 << 20))
    stride[4] = 1 << 30  # elements of four bytes: past 2^31 - 1 bytes
    assert method((1, 1, 1, 1, 3, 1 << 20), stride=stride).startswith("engine calls=3")
    stride[4] = 1 << 28
    assert method((1, 1, 1, 1, 3, 1 << 20), stride=stride).startswith("engine calls=1")


def test_mirrored_rows_need_a_kernel() -> None:
    stride = dense(SHAPE)
    stride[5] = -1
    assert method(SHAPE, stride=stride).startswith("rows calls=1 vector=1")


def test_nvrtc_compiles_the_same_source(tmp_path: Path) -> None:
    wheel = pytest.importorskip("nvidia.cu13", reason="no NVRTC wheel is installed")
    folder = Path(next(iter(wheel.__path__))) / "lib"
    compile_kernels = ctypes.CDLL(LIBRARY).oocdnn_gpu_compile
    compile_kernels.restype = ctypes.c_int64
    text = ctypes.create_string_buffer(4096)
    nvrtc = str(folder / "libnvrtc.so.13").encode()
    cache = str(tmp_path / "deep" / "cache").encode()
    size = compile_kernels(9, 0, nvrtc, cache, text, ctypes.c_int64(4096))
    assert size > 0, text.value.decode()
    (cached,) = (tmp_path / "deep" / "cache").iterdir()
    assert cached.read_bytes().partition(b"\n")[2].startswith(b"\x7fELF")
    again = compile_kernels(9, 0, b"/nowhere/libnvrtc.so", cache, text, ctypes.c_int64(4096))
    assert again == size, "the cache was not used"


def compiled(nvrtc: Path, cache: Path) -> int:
    compile_kernels = ctypes.CDLL(LIBRARY).oocdnn_gpu_compile
    compile_kernels.restype = ctypes.c_int64
    text = ctypes.create_string_buffer(4096)
    return compile_kernels(
        9, 0, str(nvrtc).encode(), str(cache).encode(), text, ctypes.c_int64(4096)
    )


def replaced(file: Path, content: bytes) -> None:
    file.write_bytes(content)


DOUBTS: dict[str, Callable[[Path], object]] = {
    "another byte": lambda file: replaced(file, file.read_bytes()[:-1] + b"x"),
    "cut off": lambda file: replaced(file, file.read_bytes()[:-1]),
    "something behind it": lambda file: replaced(file, file.read_bytes() + b"x"),
    "no header": lambda file: replaced(file, b"fake"),
    "empty": lambda file: replaced(file, b""),
    "others may write it": lambda file: file.chmod(0o646),
    "its group may write it": lambda file: file.chmod(0o664),
    "another user's": lambda file: os.chown(file, 65534, -1),
    "a pipe": lambda file: (file.unlink(), os.mkfifo(file)),
}


@pytest.mark.parametrize("doubt", DOUBTS)
def test_kept_kernels_that_another_may_have_changed_are_compiled_again(
    tmp_path: Path, doubt: str
) -> None:
    if doubt == "another user's" and os.getuid() != 0:
        pytest.skip("only root makes another user's files")
    nvrtc, nowhere = fake_driver() / "libnvrtc.so.13", Path("/nowhere/libnvrtc.so")
    assert compiled(nvrtc, tmp_path) == 4
    assert compiled(nowhere, tmp_path) == 4
    (file,) = tmp_path.iterdir()
    good = file.read_bytes()
    DOUBTS[doubt](file)
    assert compiled(nowhere, tmp_path) < 0
    assert compiled(nvrtc, tmp_path) == 4
    assert list(tmp_path.iterdir()) == [file]
    assert (file.is_file(), file.read_bytes()) == (True, good)
    assert compiled(nowhere, tmp_path) == 4


LAYOUT = (
    "sizeof(CUDA_MEMCPY3D)",
    "offsetof(CUDA_MEMCPY3D,srcPitch)",
    "offsetof(CUDA_MEMCPY3D,dstDevice)",
    "offsetof(CUDA_MEMCPY3D,Depth)",
)
# cuda.h of CUDA 13 renames this one; the symbol of CUDA 12.0 stays in the driver.
RENAMED = {"cuEventElapsedTime": "cuEventElapsedTime_v2"}


def toolkit() -> Path:
    home = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    for folder in (home, *sorted(home.parent.glob("cuda-*"))):
        if (folder / "include" / "cuda.h").exists():
            return folder / "include"
    pytest.skip("no toolkit with cuda.h to compare with")


def output_of(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_numbers_agree_with_the_toolkits(tmp_path: Path) -> None:
    ours = (NATIVE / "abi" / "cuda_driver.h").read_text(encoding="utf-8")
    names = (*re.findall(r"^\s+(CU\w+) = \d+", ours, re.MULTILINE), *LAYOUT)
    assert len(names) > 40
    lines = "".join(f'  printf("{name} %lld\\n", (long long)({name}));\n' for name in names)
    texts = []
    for header, folder in (("cuda.h", toolkit()), ("abi/cuda_driver.h", NATIVE)):
        source = (
            f'#include <stddef.h>\n#include <stdio.h>\n#include "{header}"\nint main(void) {{\n'
        )
        program = tmp_path / header.replace("/", "_")
        program.with_suffix(".c").write_text(source + lines + "}\n", encoding="utf-8")
        output_of(["gcc", "-I", str(folder), f"{program.with_suffix('.c')}", "-o", str(program)])
        texts.append(output_of([str(program)]))
    assert texts[0] == texts[1]


def test_functions_agree_with_the_toolkits(tmp_path: Path) -> None:
    """The compiler accepts the real functions as what our table says, under the same names."""
    ours = (NATIVE / "abi" / "cuda_driver.h").read_text(encoding="utf-8")
    functions = ours[ours.index("#define OOC_CUDA_DRIVER_FUNCTIONS") : ours.rindex("#ifdef")]
    source = tmp_path / "prototypes.cpp"
    source.write_text(
        f"""#include "cuda.h"
#define TEXT(x) #x
#define EXPANDED(x) TEXT(x)
{functions}
#define CHECK(name, symbol, parameters) CUresult (*check_##name) parameters = name;
OOC_CUDA_DRIVER_FUNCTIONS(CHECK)
#define SHOW(name, symbol, parameters) ours symbol EXPANDED(name)
OOC_CUDA_DRIVER_FUNCTIONS(SHOW)
""",
        encoding="utf-8",
    )
    text = source.read_text(encoding="utf-8")
    shown = text.index("#define SHOW")
    checked = tmp_path / "checked.cpp"
    checked.write_text(text[:shown], encoding="utf-8")
    output_of(["g++", "-I", str(toolkit()), "-fsyntax-only", str(checked)])
    names = re.findall(
        r'ours "(\w+)" "(\w+)"', output_of(["g++", "-I", str(toolkit()), "-E", "-P", str(source)])
    )
    assert len(names) == functions.count("  F(")
    assert not [(a, b) for a, b in names if RENAMED.get(a, a) != b]
