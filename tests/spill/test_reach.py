"""Programs whose memory never passes the spill library are named at their end."""

import subprocess

import pytest
from spill.scene import MIB, build_runtime, run, spill_path, variables

EXPANDABLE = {
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,garbage_collection_threshold:0.8"
}
CASES = {
    "torch": (["libcuda.so.1", "libc10_cuda.so", "libcudart.so.13"], {}, None),
    "torch, set late": (
        ["active/libcuda.so.1", "libc10_cuda.so", "libcudart.so.13"],
        {},
        "PyTorch asks the driver, as with expandable_segments",
    ),
    "expandable": (["libcuda.so.1", "libc10_cuda.so"], EXPANDABLE, "PyTorch's expandable_segments"),
    "planned": (["libcuda.so.1", "libc10_cuda.so"], {**EXPANDABLE, "PLANNED": "1"}, None),
    "jax": (["libcuda.so.1", "xla_cuda_plugin.so", "libcudart.so.13"], {}, "JAX asks the driver"),
    "cupy": (["libcuda.so.1", "cupy_backends.so"], {}, "CuPy has a runtime of its own"),
    "static": (["libcuda.so.1"], {}, "has a static runtime inside"),
    "idle": (["libcuda.so.1", "libcudart.so.13"], {}, None),
    "by dlsym": (["active/libcuda.so.1", "libcudart.so.12"], {}, "the runtime by dlsym"),
    "ended": (["ended/libcuda.so.1", "libcudart.so.12"], {}, "the runtime by dlsym"),
    "no driver": (["cupy_backends.so"], {}, None),
}  # fmt: skip


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Opens the libraries that its arguments name; with PLANNED says that it keeps to the limit."""
    folder = tmp_path_factory.mktemp("reach")
    source = folder / "opens.c"
    source.write_text(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdlib.h>\n"
        "int main(int n, char** v) {\n"
        '  void (*planned)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "oocdnn_spill_planned");\n'
        '  if (getenv("PLANNED") != NULL && planned != NULL) planned();\n'
        "  for (int i = 1; i < n; ++i) if (!dlopen(v[i], RTLD_NOW)) return 1;\n  return 0;\n}\n"
    )
    subprocess.run(["gcc", "-o", folder / "opens", source, "-ldl"], check=True)
    return folder / "opens"


DRIVER = """
int cuDeviceGetCount(int* count) { return *count = 2, STATUS; }
int cuDeviceGet(int* device, int ordinal) { return *device = 10 + ordinal, STATUS; }
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  return *flags = 0, *active = ACTIVE && device == 11, STATUS;
}
"""


def library(folder, name):
    """An empty one, but for the driver: with a context, or ended before it is asked."""
    kind, _, name = name.rpartition("/")
    flags = [f"-DSTATUS={4 * (kind == 'ended')}", f"-DACTIVE={int(kind == 'active')}"]
    (folder / "library.c").write_text(DRIVER if name.startswith("libcuda.") else "")
    path = folder / name
    soname = f"-Wl,-soname,{name}"
    command = ["gcc", "-shared", "-fPIC", *flags, soname, "-o", path, folder / "library.c"]
    subprocess.run(command, check=True)
    return path


@pytest.mark.parametrize("case", CASES)
def test_a_program_that_is_not_reached_is_named(tmp_path, program, case):
    names, environment, expected = CASES[case]
    command = [program, *[library(tmp_path, name) for name in names]]
    done = run(command, **variables(), **environment)
    assert done.returncode == 0
    if expected is None:
        assert done.stderr == ""
    else:
        (line,) = done.stderr.splitlines()
        assert line.startswith("oocdnn: no limit was kept and nothing spilled: ")
        assert expected in line
    off = run(command, LD_PRELOAD=str(spill_path()), **environment)
    assert (off.returncode, off.stderr) == (0, "")


def test_a_program_that_is_reached_is_not_named(tmp_path, client):
    del client
    build_runtime(tmp_path, 13)
    driver = library(tmp_path, "libcuda.so.1")
    source = tmp_path / "asks.c"
    source.write_text(
        "#include <stddef.h>\nint cudaMalloc(void**, size_t);\n"
        f"int main(void) {{ void* p; return cudaMalloc(&p, {MIB}); }}\n"
    )
    flags = ["-Wl,--no-as-needed", tmp_path / "libcudart.so.13", driver, f"-Wl,-rpath,{tmp_path}"]
    subprocess.run(["gcc", "-o", tmp_path / "asks", source, *flags], check=True)
    done = run([tmp_path / "asks"], LD_LIBRARY_PATH=str(tmp_path), **variables())
    assert (done.returncode, done.stderr) == (0, "")
