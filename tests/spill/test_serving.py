"""What the spill library answers, call by call."""

import shutil
import subprocess

import pytest
from dropin.building import compiler
from spill.scene import (  # fmt: skip
    BIG,
    BUDGET,
    CLIENTS,
    FULL,
    LIMIT,
    MEASURING,
    MIB,
    REFUSED,
    SHARE,
    TWICE,
    build_client,
    build_runtime,
    play,
    run,
    spill_path,
    variables,
)

INVALID = "1"  # cudaErrorInvalidValue


def test_past_the_limit_the_first_request_fails_and_its_repetition_is_served(client):
    outcome = play(client, [*FULL, *TWICE, *TWICE[:1]], **variables())
    assert outcome.answers == ["0 device", REFUSED, "0 host", "held"]
    assert (outcome.figures.device_peak, outcome.figures.host_bytes) == (BIG, BIG)
    assert (outcome.figures.limit, outcome.figures.budget) == (LIMIT, BUDGET)


def test_another_size_or_thread_is_no_repetition(client):
    lines = [*FULL, f"0 m 3 {BIG}", f"1 m 4 {BIG}", f"0 m 5 {BIG + 512}", f"0 m 3 {BIG}"]
    outcome = play(client, lines, **variables())
    assert outcome.answers == ["0 device", *[REFUSED] * 4]
    assert outcome.figures.refused == 4


def test_what_the_client_gives_back_serves_the_repetition(client):
    """PyTorch frees its cache between the two: then there is room on the device, and a later
    request of the same size is refused once again."""
    lines = [*FULL, f"0 m 3 {BIG}", "0 f 2", f"0 m 3 {BIG}", f"0 m 4 {BIG}"]
    outcome = play(client, lines, **variables())
    assert outcome.answers == ["0 device", REFUSED, "0", "0 device", REFUSED]
    assert outcome.figures.pinned_bytes == 0


def test_an_address_within_a_block_frees_nothing(client):
    lines = [*FULL, *TWICE, "0 s 2", "0 s 3", f"0 m 4 {BIG}", "0 f 2", f"0 m 4 {BIG}", "0 f 3"]
    outcome = play(client, lines, **variables())
    assert outcome.answers[3:] == [INVALID, INVALID, REFUSED, "0", "0 device", "0"]
    assert (outcome.figures.device_bytes, outcome.figures.host_bytes) == (BIG, 0)


def test_each_device_has_a_ledger_of_its_own(client):
    other = [f"0 m 4 {BIG}", f"0 m 5 {BIG}"]
    lines = [*FULL, f"0 m 3 {BIG}", "0 d 1", *other, "0 d 0", f"0 m 5 {BIG}"]
    outcome = play(client, lines, **variables())
    assert outcome.answers == ["0 device", REFUSED, "0", "0 device", REFUSED, "0", REFUSED]
    lines = [*FULL, "0 d 1", "0 f 2", *other, "0 d 0", f"0 m 2 {BIG}"]
    outcome = play(client, lines, **variables())
    assert outcome.answers == ["0 device", "0", "0", "0 device", REFUSED, "0", "0 device"]


def test_small_requests_find_room_when_large_ones_have_taken_theirs(client):
    small = [f"0 m {slot} {MIB // 2}" for slot in range(10, 17)]
    lines = [f"0 m 2 {BIG}", *[f"0 m 3 {8 * MIB}"] * 2, *small]
    outcome = play(client, lines, **variables())
    assert outcome.answers == ["0 device", REFUSED, "0 host", *["0 device"] * 7]


def test_room_for_small_requests_is_kept_anew_when_they_are_gone(client):
    small = [f"0 m {slot} {MIB // 2}" for slot in range(10, 17)]
    freed = [f"0 f {slot}" for slot in range(10, 17)]
    outcome = play(client, [*small, *freed, f"0 m 2 {SHARE}"], **variables())
    assert outcome.answers[-1] == REFUSED
    used = play(client, [*small, f"0 m 2 {SHARE - 7 * (MIB // 2)}"], **variables())
    assert used.answers[-1] == "0 device"


def test_refuse_serves_nothing_from_the_host(client):
    outcome = play(client, [*FULL, *TWICE], **variables(spill="refuse"))
    assert outcome.answers == ["0 device", REFUSED, REFUSED]
    assert (outcome.figures.pinned_bytes, outcome.said) == (0, [])


def test_a_process_that_keeps_to_the_limit_by_itself_is_refused_nothing(client):
    """And is told what the card has. What is served from host memory stays known."""
    lines = [*FULL, "0 n", f"0 m 3 {BIG}", f"0 m 4 {BIG}", "0 i"]
    outcome = play(client, lines, **variables(spill="refuse"))
    assert outcome.answers[:4] == ["0 device", "0", "0 device", "0 device"]
    assert outcome.answers[4] == play(client, lines).answers[4]
    assert outcome.figures.limit == 0
    outcome = play(client, [*FULL, "0 n", *TWICE], **variables())
    assert outcome.answers == ["0 device", "0", REFUSED, "0 host"]


def test_what_the_device_itself_refuses_is_served_too(client):
    outcome = play(client, TWICE, FAKE_CARD=str(BIG - 1), **variables())
    assert outcome.answers == [REFUSED, "0 host"]
    assert (outcome.figures.device_bytes, outcome.figures.device_peak) == (0, BIG)


def test_a_host_block_is_device_memory_to_the_program(client):
    outcome = play(client, [*FULL, *TWICE, "0 t 2", "0 t 3"], **variables())
    assert outcome.answers[-2:] == ["2 0", "2 0"]


def test_other_processes_get_no_handle_of_a_host_block(client):
    outcome = play(client, [*FULL, *TWICE, "0 h 2", "0 h 3"], **variables())
    assert outcome.answers[-2:] == ["0", "801"]
    line = outcome.said[-1]
    assert line.startswith(f"oocdnn: no other process gets a handle of the block of {BIG} bytes at")
    assert "raise --limit" in line


def test_requests_in_stream_order_are_counted_and_served(client):
    lines = [line.replace("m", "a") for line in [*FULL, *TWICE]]
    outcome = play(client, [*lines, "0 g 2", "0 g 3"], **variables())
    assert outcome.answers == ["0 device", REFUSED, "0 host", "0", "0"]
    assert (outcome.figures.waits, outcome.figures.device_bytes) == (MEASURING + 1, 0)


@pytest.mark.parametrize(
    ("ask", "end"), [("A", "G"), ("p", "g"), ("P", "G"), ("u", "f"), ("v", "f")]
)
def test_every_allocating_function_is_counted_and_served(client, ask, end):
    lines = [line.replace("m", ask) for line in [*FULL, *TWICE]]
    outcome = play(client, [*lines, "0 t 3", f"0 {end} 2", f"0 {end} 3"], **variables())
    assert outcome.answers == ["0 device", REFUSED, "0 host", "2 0", "0", "0"]
    assert outcome.figures.device_peak == BIG
    assert (outcome.figures.device_bytes, outcome.figures.host_bytes) == (0, 0)


@pytest.mark.parametrize("ask", [*"maApPuv"])
def test_a_size_that_no_address_space_holds_is_refused(client, ask):
    """Neither a new slab nor a free piece of one serves it, and the runtime keeps the error."""
    sizes = [2**63, 2**64 - 512 * MIB, 2**64 - 2 * MIB, 2**64 - 512, 2**64 - 511, 2**64 - 1]
    asked = [line for size in sizes for line in [f"0 {ask} 3 {size}"] * 2]
    outcome = play(client, [*FULL, *TWICE, "0 f 3", *asked, "0 q 0"], **variables())
    assert outcome.answers[4:] == [REFUSED] * len(asked) + ["2"]
    assert (outcome.figures.host_bytes, outcome.figures.device_bytes) == (0, BIG)


@pytest.mark.parametrize("ask", ["u", "v"])
def test_rows_begin_where_textures_may(client, ask):
    outcome = play(client, [f"0 {ask} 2 {4 * 513}", f"0 {ask} 3 0"], **variables())
    assert outcome.answers == ["0 device", "0 device"]
    assert outcome.figures.device_bytes == 4 * 1024


def test_requests_in_stream_order_are_of_the_streams_device(client):
    lines = [f"0 o 2 {BIG}", f"0 m 3 {BIG}", f"0 o 4 {BIG}", "0 g 2", "0 d 1", f"0 m 4 {BIG}"]
    outcome = play(client, lines, **variables())
    assert outcome.answers == ["0 device", "0 device", REFUSED, "0", "0", "0 device"]


def test_a_device_that_is_reset_holds_nothing(client):
    """Its blocks are forgotten, and its slabs are unpinned while that can be done; another device's
    are as they were."""
    other = ["0 d 1", f"0 m 4 {BIG}", *[f"0 m 5 {BIG}"] * 2, "0 d 0"]
    lines = [*FULL, *TWICE, *other, "0 z 0"]
    figures = play(client, lines, **variables()).figures
    assert (figures.used, figures.device_bytes, figures.host_bytes) == (BIG, BIG, BIG)
    assert figures.registered == figures.pinned_bytes == BIG
    again = play(client, [*lines, *FULL, *TWICE], **variables())
    assert again.answers[-3:] == ["0 device", REFUSED, "0 host"]


def test_a_device_that_is_broken_is_reset_as_well(client):
    lines = [*FULL, *TWICE, "0 w 9", "0 z 0", "0 q 0", "0 w 0", *FULL, *TWICE, "0 f 3"]
    outcome = play(client, lines, **variables())
    assert outcome.answers[4:] == ["0", "0", "0", "0 device", REFUSED, "0 host", "0"]
    assert outcome.figures.registrations == 2
    assert outcome.figures.registered == outcome.figures.pinned_bytes == BIG


def test_a_function_that_was_called_before_the_runtime_was_there(tmp_path):
    """That it was not found is not remembered."""
    runtime = build_runtime(tmp_path, 13)
    source = tmp_path / "early.c"
    source.write_text(
        "#include <dlfcn.h>\n#include <stdio.h>\nint main(int n, char** v) {\n  (void)n;\n"
        '  void* p;\n  int (*ask)(void**, size_t) = dlsym(RTLD_DEFAULT, "cudaMalloc");\n'
        "  const int early = ask(&p, 4096);\n  dlopen(v[1], RTLD_NOW | RTLD_LOCAL);\n"
        '  printf("%d %d\\n", early, ask(&p, 4096));\n  return 0;\n}\n'
    )
    program = tmp_path / "early"
    subprocess.run(["gcc", "-D_GNU_SOURCE", "-w", "-o", program, source, "-ldl"], check=True)
    for more in ({}, {"OOCDNN_DISABLE": "1"}):
        assert run([program, runtime], **(variables() | more)).stdout == "3 0\n"


def test_memory_of_a_graph_is_not_counted(client):
    outcome = play(client, ["0 b 5", f"0 a 5 {2 * SHARE}", "0 g 5", "0 e 5"], **variables())
    assert outcome.answers == ["0", "0 device", "0", "0"]
    assert outcome.figures.device_peak == 0


def test_requests_for_nothing_go_to_the_runtime(client):
    outcome = play(client, ["0 m 2 0", "0 f 2"], **variables())
    assert outcome.answers == ["0 device", "0"]


@pytest.mark.parametrize("failing", [1, 2])
def test_a_note_that_finds_no_memory_loses_nothing(client, tmp_path, failing):
    """The first list is that of blocks, the second that of pieces of slabs."""
    library = tmp_path / "fail_realloc.so"
    source = CLIENTS / "fail_realloc.c"
    compiler(["-D_GNU_SOURCE", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"])
    environment = variables()
    environment["LD_PRELOAD"] = f"{environment['LD_PRELOAD']}:{library}"
    lines = [*FULL * 2, *TWICE * 2, "0 f 2", "0 f 3"]
    outcome = play(client, lines, FAIL_REALLOC=str(failing), **environment)
    first = [REFUSED, "0 device"] if failing == 1 else ["0 device", "held"]
    then = [REFUSED, "0 host", "held", "held"]
    if failing == 2:
        then = [REFUSED, REFUSED, REFUSED, "0 host"]
    assert outcome.answers == [*first, *then, "0", "0"]
    figures = outcome.figures
    assert (figures.used, figures.device_bytes, figures.host_bytes) == (0, 0, 0)


@pytest.mark.parametrize(
    "off", [{"OOCDNN_DISABLE": "1"}, {"OOCDNN_LIMIT": ""}, {"OOCDNN_SPILL": ""}]
)
def test_off_it_is_the_runtime(client, off):
    lines = [*FULL, *TWICE, "0 i 0", "0 t 2", "0 h 2", "0 f 2"]
    outcome = play(client, lines, **(variables() | off))
    alone = play(client, lines)
    assert (outcome.answers, outcome.figures, outcome.said) == (alone.answers, alone.figures, [])


@pytest.mark.parametrize(
    "wrong",
    [
        {"OOCDNN_LIMIT": "16GiB"},
        {"OOCDNN_LIMIT": str(2**63)},
        {"OOCDNN_BUDGET": str(LIMIT)},
        {"OOCDNN_SPILL": "yes"},
    ],
)
def test_settings_that_make_no_sense_keep_no_limit_and_are_named(client, wrong):
    outcome = play(client, [*FULL, *TWICE[:1]], **(variables() | wrong))
    assert outcome.answers == ["0 device", "0 device"]
    (line,) = outcome.said
    ((name, value),) = wrong.items()
    assert line.startswith("oocdnn: no limit is kept: ")
    assert f"{name}={value}" in line


def test_programs_of_either_runtime_are_served(tmp_path):
    outcome = play(build_client(tmp_path, 12), [*FULL, *TWICE], **variables())
    assert outcome.answers == ["0 device", REFUSED, "0 host"]


@pytest.mark.parametrize("version", [12, 13])
def test_a_runtime_that_is_opened_late_is_found(tmp_path, version):
    """As Python opens PyTorch's: in no scope of the library's own; and asked without a version."""
    runtime = build_runtime(tmp_path, version)
    source = tmp_path / "late.c"
    source.write_text(
        "#include <dlfcn.h>\n#include <stdio.h>\n#include <stdlib.h>\n"
        "int main(int n, char** v) {\n  (void)n;\n  void* p;\n"
        "  dlopen(v[1], RTLD_NOW | RTLD_LOCAL);\n"
        '  int (*ask)(void**, size_t) = dlsym(RTLD_DEFAULT, "cudaMalloc");\n'
        '  printf("%d %d\\n", ask(&p, 40 << 20), ask(&p, 40 << 20));\n  return 0;\n}\n'
    )
    program = tmp_path / "late"
    subprocess.run(["gcc", "-D_GNU_SOURCE", "-w", "-o", program, source, "-ldl"], check=True)
    done = run([program, runtime], **variables())
    assert sorted(done.stdout.split()) == ["0", "2"], done.stderr


def test_nothing_is_needed_but_libc():
    if shutil.which("readelf") is None:
        pytest.skip("readelf is not installed")
    text = subprocess.run(
        ["readelf", "-d", spill_path()], capture_output=True, text=True, check=True
    ).stdout
    assert [line.split()[-1] for line in text.splitlines() if "(NEEDED)" in line] == ["[libc.so.6]"]
