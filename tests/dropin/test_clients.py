"""C programs against the drop-in: how they find it, what they compute, how they end."""

import pytest
from click.testing import CliRunner
from dropin.building import CLIENTS, build, compiler, include_flags, real_library, run

from oocdnn import cudnn
from oocdnn.cli import main

HEADERS = ("ours", "nvidia")
OWN_VERSION = "92800\n"


@pytest.mark.parametrize("headers", HEADERS)
def test_the_legacy_client_computes_what_it_expects(tmp_path, headers):
    program = build(CLIENTS / "legacy.c", tmp_path / "legacy", headers)
    done = run(program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@pytest.mark.parametrize("headers", HEADERS)
def test_the_client_with_its_images_in_host_memory(tmp_path, headers):
    program = build(CLIENTS / "host_pointers.c", tmp_path / "host_pointers", headers)
    done = run([program, "1"])
    assert (done.returncode, done.stdout.splitlines()[-1], done.stderr) == (0, "ok", "")


def test_each_convolution_is_logged_in_one_line(tmp_path):
    program = build(CLIENTS / "legacy.c", tmp_path / "legacy")
    done = run(program, OOCDNN_LOG="info")
    lines = [line for line in done.stderr.splitlines() if " taken " in line]
    assert [line.split()[:3] for line in lines] == [
        ["oocdnn:", "taken", f"conv2d:{direction}"]
        for direction in ("fwd", "bwd_data", "bwd_filter", "bwd_bias")
    ]
    assert all(line.endswith("why=no-gpu") for line in lines)
    for line in lines:
        planned = CliRunner().invoke(main, ["plan", "--device", "cpu", line])
        assert planned.exit_code == 0, planned.output
        problem = line.removeprefix("oocdnn: taken ").partition(" tiles=")[0]
        assert planned.output.splitlines()[0] == problem


def test_a_linked_client_finds_it_on_the_library_path_too(tmp_path):
    program = build(CLIENTS / "legacy.c", tmp_path / "legacy")
    done = run(program, preload=False, LD_LIBRARY_PATH=str(cudnn.dropin_path().parent))
    assert (done.returncode, done.stdout) == (0, "ok\n")


@pytest.mark.parametrize("way", ["local", "lazy", "deepbind"])
def test_a_client_that_opens_cudnn_by_name_gets_the_drop_in(tmp_path, way):
    program = build(CLIENTS / "by_name.c", tmp_path / "by_name", extra=("-ldl",))
    done = run([program, way, "libcudnn.so.9"])
    assert done.stdout == OWN_VERSION


def test_a_client_that_searches_all_that_is_loaded_gets_the_drop_in(tmp_path):
    program = build(CLIENTS / "by_name.c", tmp_path / "by_name", extra=("-ldl", "-D_GNU_SOURCE"))
    assert run([program, "default"]).stdout == OWN_VERSION


@pytest.mark.parametrize("way", ["local", "deepbind"])
def test_a_plug_in_that_needs_cudnn_gets_the_drop_in(tmp_path, way):
    plugin, program = tmp_path / "plugin.so", tmp_path / "by_name"
    flags = ["-shared", "-fPIC", "-o", str(plugin), str(CLIENTS / "plugin.c")]
    compiler([*include_flags("ours"), *flags, str(cudnn.dropin_path())])
    build(CLIENTS / "by_name.c", program, extra=("-ldl",))
    assert run([program, way, str(plugin), "plugin_version"]).stdout == OWN_VERSION


def test_fork_and_exit(tmp_path):
    program = build(CLIENTS / "fork_exit.c", tmp_path / "fork_exit")
    done = run(program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


def test_nothing_happens_before_the_first_call(tmp_path):
    """Preloading reaches every child process: one that never calls cuDNN opens nothing."""
    source = tmp_path / "idle.c"
    source.write_text(
        "#include <stdio.h>\n#include <string.h>\nint main(void) {\n"
        '  FILE* maps = fopen("/proc/self/maps", "r");\n  char line[512];\n'
        '  while (fgets(line, sizeof line, maps)) if (strstr(line, "liboocdnn.so")) return 1;\n'
        "  return 0;\n}\n"
    )
    program = build(source, tmp_path / "idle", extra=("-ldl",))
    done = run(program)
    assert (done.returncode, done.stderr) == (0, "")


def test_disabled_it_is_the_real_library(tmp_path):
    real = real_library()
    program = build(CLIENTS / "by_name.c", tmp_path / "by_name", extra=("-ldl",))
    alone = run([program, "local", str(real)], preload=False)
    done = run(
        [program, "local", "libcudnn.so.9"],
        OOCDNN_DISABLE="1",
        OOCDNN_CUDNN_LIBRARY=str(real),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, alone.stdout, "")


def test_without_a_core_one_line_says_so_and_calls_are_refused(tmp_path):
    program = build(CLIENTS / "legacy.c", tmp_path / "legacy")
    done = run(program, OOCDNN_LIBRARY="/nowhere.so", OOCDNN_CUDNN_LIBRARY="/nowhere.so.9")
    assert done.returncode == 1
    assert "CUDNN_STATUS_NOT_SUPPORTED: no cuDNN was found" in done.stdout
    assert "the core cannot be opened" in done.stderr
