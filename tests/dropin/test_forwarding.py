"""What is handed to the real library arrives as it was sent: tried on one that shows it."""

import shutil

import pytest
from click.testing import CliRunner
from dropin.building import CLIENTS, build, compiler, run

from oocdnn import cudnn
from oocdnn.cli import main

EXPECTED = f"""\
5003 0x11 0x12 0x1.8p-2 0x13 14 15
5003 0x21 22 23 -0x1.4p+1
5003 0x31 2 0x33 0x34 0x35 0x36 0x37 0x38 0x39 0x3a 0x3b 0x3c 0x3d 0x1.4f8b588e368f1p-17
5003 0x41 2 3 4 5 6 7 8 9
{(9 << 40) + 1234}
3000
this function is not in the cuDNN that was found
"""


@pytest.fixture(scope="module")
def clients(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forwarding")
    fake = folder / "libcudnn.so.9"
    flags = ["-shared", "-fPIC", "-Wl,-soname,libcudnn.so.9", "-o", str(fake)]
    compiler([*flags, str(CLIENTS / "fake_real.c")])
    return build(CLIENTS / "forwarded.c", folder / "forwarded"), fake


@pytest.mark.parametrize("variables", [{"OOCDNN_DISABLE": "1"}, {"OOCDNN_DEVICE": "cuda:0"}])
def test_floats_by_value_many_arguments_and_missing_functions(clients, variables):
    """Off, and with a GPU that serves nothing."""
    program, fake = clients
    done = run(program, OOCDNN_CUDNN_LIBRARY=str(fake), **variables)
    assert done.stdout == EXPECTED
    assert done.returncode == 0


def test_a_mapped_copy_is_the_real_library(clients, tmp_path):
    """JAX opens cuDNN by its absolute path and then by name: the path is the one to use."""
    _, fake = clients
    source = tmp_path / "both.c"
    source.write_text(
        "#include <dlfcn.h>\n#include <stdio.h>\nint main(int n, char** v) {\n"
        "  (void)n;\n  dlopen(v[1], RTLD_NOW | RTLD_LOCAL);\n"
        '  void* h = dlopen("libcudnn.so.9", RTLD_NOW);\n'
        '  printf("%zu\\n", ((size_t(*)(void))dlsym(h, "cudnnGetVersion"))());\n}\n'
    )
    program = build(source, tmp_path / "both", extra=("-ldl",))
    done = run([program, fake], OOCDNN_DISABLE="1")
    assert done.stdout == f"{(9 << 40) + 1234}\n"


def test_where_a_client_would_have_found_it_is_searched(clients, tmp_path):
    """PyTorch's libraries carry the folder of their cuDNN as DT_RPATH."""
    _, fake = clients
    program = build(
        CLIENTS / "forwarded.c",
        tmp_path / "forwarded",
        extra=(f"-Wl,-rpath,$ORIGIN/../../nothing:{fake.parent}",),
    )
    assert run(program, OOCDNN_DISABLE="1").stdout == EXPECTED


def test_the_drop_in_never_takes_itself_for_the_real_library(clients, tmp_path):
    program, _ = clients
    copy = tmp_path / "libcudnn.so.9"
    copy.symlink_to(cudnn.dropin_path())
    done = run(program, OOCDNN_DISABLE="1", OOCDNN_CUDNN_LIBRARY=str(copy))
    assert f"no cuDNN was found at OOCDNN_CUDNN_LIBRARY={copy}: " in done.stderr
    assert done.stdout.startswith("3000 CUDNN_STATUS_")


def test_a_wrong_path_of_the_real_library_is_named(clients, tmp_path):
    program, _ = clients
    path = tmp_path / "not_there.so"
    done = run(program, OOCDNN_DISABLE="1", OOCDNN_CUDNN_LIBRARY=str(path))
    assert f"no cuDNN was found at OOCDNN_CUDNN_LIBRARY={path}: " in done.stderr


# A machine with a GPU's device node.
NODE = """
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
int access(const char* path, int mode) {
  return strcmp(path, "/dev/nvidiactl") == 0 ? 0 : faccessat(AT_FDCWD, path, mode, 0);
}
"""


@pytest.mark.parametrize(
    ("visible", "served"),
    [(None, "real"), ("0", "real"), ("1,-1", "real"), ("", "cpu"), ("-1", "cpu"), ("-1,0", "cpu")],
)
def test_where_no_gpu_is_visible_the_cpu_serves(clients, tmp_path, monkeypatch, visible, served):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    _, fake = clients
    (tmp_path / "node.c").write_text(NODE)
    (tmp_path / "empty.c").write_text("")
    node, driver = tmp_path / "node.so", tmp_path / "libcuda.so.1"
    for source, target in (("node.c", node), ("empty.c", driver)):
        compiler(["-D_GNU_SOURCE", "-shared", "-fPIC", "-o", str(target), str(tmp_path / source)])
    program = build(CLIENTS / "by_name.c", tmp_path / "by_name", extra=("-ldl",))
    given = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    done = run(
        [program, "local", cudnn.dropin_path()],
        LD_PRELOAD=f"{node}:{cudnn.dropin_path()}",
        LD_LIBRARY_PATH=str(tmp_path),
        OOCDNN_DEVICE="auto",
        OOCDNN_CUDNN_LIBRARY=str(fake),
        **given,
    )
    assert done.stdout == {"real": f"{(9 << 40) + 1234}\n", "cpu": "92800\n"}[served], done.stderr


def test_in_the_place_of_the_real_library_it_serves_those_who_open_it_by_path(clients, tmp_path):
    """As cudnn-frontend's Python package does; and back again."""
    _, fake = clients
    program = build(CLIENTS / "by_name.c", tmp_path / "by_name", extra=("-ldl",))
    folder = tmp_path / "lib"
    folder.mkdir()
    place = folder / "libcudnn.so.9"
    shutil.copy(fake, place)
    theirs = f"{(9 << 40) + 1234}\n"

    def version(**variables: str) -> str:
        return run([program, "local", place], preload=False, **variables).stdout

    assert version() == theirs
    assert CliRunner().invoke(main, ["dropin", "--into", str(folder)]).exit_code == 0
    assert version() == "92800\n"  # served by the CPU
    assert version(OOCDNN_DISABLE="1") == theirs  # found beside it
    again = CliRunner().invoke(main, ["dropin", "--into", str(folder)])
    assert again.exit_code == 1
    assert "already" in again.output
    assert CliRunner().invoke(main, ["dropin", "--undo", str(folder)]).exit_code == 0
    assert not place.is_symlink()
    assert version() == theirs
    assert CliRunner().invoke(main, ["dropin", "--undo", str(folder)]).exit_code == 1
