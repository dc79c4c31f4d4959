"""What the spill library answers, call by call."""

import shutil
import subprocess

import pytest
from dropin.building import compiler
from spill.scene import (
    BIG,
    BUDGET,
    CLIENTS,
    FULL,
    LIMIT,
    MEASURING,
    MIB,
    REFUSED,
    SHARE,
    SMALL,
    TWICE,
    build_client,
    build_runtime,
    play,
    run,
    spill_path,
    variables,
)  # fmt: skip


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


def test_each_device_has_a_ledger_of_its_own(client):
    other = [f"0 m 4 {BIG}", f"0 m 5 {BIG}"]
    lines = [*FULL, f"0 m 3 {BIG}", "0 d 1", *other, "0 d 0", f"0 m 5 {BIG}"]
    outcome = play(client, lines, **variables())
    assert outcome.answers == ["0 device", REFUSED, "0", "0 device", REFUSED, "0", REFUSED]
    lines = [*FULL, "0 d 1", "0 f 2", *other, "0 d 0", f"0 m 2 {BIG}"]
    outcome = play(client, lines, **variables())
    assert outcome.answers == ["0 device", "0", "0", "0 device", REFUSED, "0", "0 device"]


def test_a_host_block_waits_for_its_own_device(client):
    """And leaves the current one as it was."""
    lines = [*FULL, *TWICE, "0 d 1", "0 f 3", f"0 m 3 {BIG}"]
    outcome = play(client, lines, **variables())
    assert outcome.answers[-1] == "0 device"
    assert outcome.figures.waits == MEASURING + 1


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


def test_what_the_device_itself_refuses_is_served_too(client):
    outcome = play(client, TWICE, FAKE_CARD=str(BIG - 1), **variables())
    assert outcome.answers == [REFUSED, "0 host"]
    assert (outcome.figures.device_bytes, outcome.figures.device_peak) == (0, BIG)


def test_the_end_of_a_host_block_waits_for_the_device(client):
    lines = [*FULL, *TWICE, "0 f 2", "0 f 3"]
    outcome = play(client, lines, **variables())
    assert outcome.answers[-2:] == ["0", "0"]
    assert (outcome.figures.waits, outcome.figures.host_bytes) == (MEASURING + 1, 0)
    assert outcome.figures.pinned_bytes == BIG  # exactly


def test_nothing_is_free_before_it_is(client):
    """A block in host memory serves nobody until the wait is over, and one on the device is in the
    ledger until the runtime has freed it."""
    figures = play(client, [*FULL, *TWICE, "0 f 3"], **variables()).figures
    assert (figures.host_at_wait, figures.host_bytes) == (BIG, 0)
    figures = play(client, [*FULL, "0 f 2"], **variables()).figures
    assert (figures.device_at_free, figures.device_bytes) == (BIG, 0)


def test_a_block_whose_wait_fails_is_not_given_back(client):
    lines = [*FULL, *TWICE, "0 w 1", "0 f 3", "0 q 0", "0 t 3", "0 f 3"]
    outcome = play(client, lines, **variables())
    assert outcome.answers[4:] == ["719", "719", "2 0", "0"]
    assert outcome.figures.host_bytes == 0
    held = play(client, lines[:-1], **variables()).figures
    assert held.host_bytes == BIG


def test_a_slab_serves_again_in_parts_and_as_a_whole(client):
    part = BIG // 2
    again = [line for slot in (4, 5) for line in [f"0 m {slot} {part}"] * 2]
    lines = [*FULL, *TWICE, "0 f 3", *again, "0 f 4", "0 f 5", *TWICE]
    outcome = play(client, lines, **variables())
    assert outcome.answers[-1] == "0 host"
    assert outcome.figures.registrations == 1


def test_the_smallest_piece_that_is_large_enough_serves(client):
    """So that the large one is whole when it is wanted."""
    large, little = [f"0 m 3 {40 * MIB}"] * 2, [f"0 m 4 {10 * MIB}"] * 2
    lines = [*FULL, *large, *little, "0 f 3", "0 f 4", *little, *large]
    outcome = play(client, lines, **variables())
    assert outcome.answers[-1] == "0 host"
    assert outcome.figures.registrations == 2


def test_memory_info_is_that_of_the_share(client):
    outcome = play(client, ["0 i 0", *FULL, "0 i 0"], **variables())
    assert outcome.answers[0] == f"{SHARE} {SHARE}"
    assert outcome.answers[2] == f"{SHARE - BIG} {SHARE}"
    smaller = play(client, ["0 i 0"], FAKE_CARD=str(MIB), **variables())
    assert smaller.answers == [f"{MIB} {MIB}"]


def test_what_nobody_asked_for_is_in_the_limit(client):
    """A context of 4 MiB; other processes' memory counts as an eighth of the limit at most."""
    lines = [f"0 m 2 {BIG}", "0 i 0", f"0 m 3 {4 * MIB}"]
    outcome = play(client, lines, FAKE_CONTEXT=str(4 * MIB), **variables())
    share = SHARE - 4 * MIB
    assert outcome.answers == ["0 device", f"{share - BIG} {share}", REFUSED]
    assert outcome.figures.others == 4 * MIB
    assert outcome.figures.device_peak + 4 * MIB + BUDGET <= LIMIT
    assert play(client, lines, **variables()).answers[2] == "0 device"
    crowded = play(client, [f"0 m 2 {MIB}"], FAKE_CONTEXT=str(2 * LIMIT), **variables())
    assert (crowded.answers, crowded.figures.others) == (["0 device"], LIMIT // 8)


def test_what_others_come_to_hold_is_in_the_limit_after_something_has_spilled(client):
    """Kernels are loaded and handles made throughout the first step, which may be much."""
    small = [f"0 m 4 {SMALL - 1}", "0 f 4"]
    for before in ([], TWICE):
        late = play(client, [*FULL, *before, "0 c 4", *small], **variables())
        assert late.figures.others == 4 * MIB
        much = play(client, [*FULL, *before, "0 c 12", *small], **variables())
        assert much.figures.others == 12 * MIB
        less = play(client, [*FULL, *before, "0 c 12", *small, "0 c 3", *small], **variables())
        assert less.figures.others == 3 * MIB


def test_other_processes_memory_is_not_the_programs(client):
    """What passes an eighth of the limit at the first look, and not what comes to it."""
    lines = ["0 c 100", FULL[0], "0 i 0", "0 c 103", "0 i 0"]
    outcome = play(client, lines[:3], **variables())
    assert outcome.figures.others == LIMIT // 8
    assert play(client, lines, **variables()).figures.others == LIMIT // 8 + 3 * MIB


NVML = """
#include <string.h>
#include <unistd.h>
typedef struct { unsigned pid; unsigned long long bytes; unsigned instances[2]; } Process;
static int initialized;
int nvmlInit_v2(void) { return ++initialized, 0; }
int nvmlShutdown(void) { return --initialized, 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** device) {
  return *device = (void*)bus, initialized == 1 && strcmp(bus, "0000:0a:00.0") == 0 ? 0 : 2;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Process* all) {
  (void)device;
  if (*count < 2 || initialized != 1) return 7;
  all[0] = (Process){1, 85 << 20, {0, 0}};
  all[1] = (Process){PID, 15 << 20, {0, 0}};
  return *count = 2, 0;
}
"""


@pytest.mark.parametrize(("pid", "others"), [("(unsigned)getpid()", 15 * MIB), ("2", LIMIT // 8)])
def test_what_is_this_processs_is_asked_where_it_is_known(client, tmp_path, pid, others):
    """A context may take more than an eighth of the limit."""
    source, library = tmp_path / "nvml.c", tmp_path / "libnvidia-ml.so.1"
    source.write_text(NVML)
    flags = ["-D_GNU_SOURCE", "-shared", "-fPIC", f"-DPID={pid}"]
    compiler([*flags, "-o", str(library), str(source), f"-Wl,-soname,{library.name}"])
    environment = variables() | {"LD_LIBRARY_PATH": str(tmp_path)}
    outcome = play(client, ["0 c 100", "0 m 2 4096"], **environment)
    assert outcome.figures.others == others
    later = play(client, ["0 c 100", "0 m 2 4096", "0 c 102", "0 i 0"], **environment)
    assert later.figures.others == others + 2 * MIB


def test_the_card_is_looked_at_once_while_there_is_room(client):
    lines = [f"0 m {slot} {2 * MIB}" for slot in range(10, 26)]
    assert play(client, lines, **variables()).figures.looks == 1
    near = play(client, [*FULL, f"0 m 3 {SMALL - 1}"], **variables())
    assert near.figures.looks == 2


def test_what_memory_info_asked_is_a_look(client):
    outcome = play(client, ["0 i 0", "0 m 2 4096"], FAKE_CONTEXT=str(MIB), **variables())
    assert (outcome.figures.looks, outcome.figures.others) == (1, MIB)


def test_a_look_while_memory_is_freed_tells_nothing(client):
    """The block is in the card's figure, and no more in the ledger's."""
    lines = ["0 m 2 4096", f"0 m 3 {5 * MIB}", "0 x 3", f"0 m 4 {BIG}"]
    figures = play(client, lines, **variables()).figures
    assert (figures.device_bytes, figures.others) == (BIG + 4096, 0)


def test_what_the_core_holds_is_in_the_budget_and_nobody_elses(client, tmp_path):
    source, core = tmp_path / "core.c", tmp_path / "liboocdnn.so"
    source.write_text(
        "long oocdnn_device_bytes(int device) { return device == 0 ? 5 << 20 : 0; }\n"
    )
    compiler(["-shared", "-fPIC", "-o", str(core), str(source), f"-Wl,-soname,{core.name}"])
    environment = variables()
    environment["LD_PRELOAD"] += f":{core}"
    lines = ["0 c 6", *FULL, *TWICE, "0 i 0"]
    share = SHARE - MIB
    outcome = play(client, lines, **environment)
    assert outcome.figures.others == MIB
    assert outcome.answers[-1] == f"{share - BIG} {share}"
    assert play(client, ["0 d 1", *lines], **environment).figures.others == 6 * MIB


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


def test_a_forked_child_ends_well_and_has_no_host_block(client):
    outcome = play(client, [*FULL, *TWICE, "0 k 0", "0 f 3"], **variables())
    assert outcome.answers[-2:] == ["0", "0"]


def test_one_line_says_what_is_served_and_what_it_costs(client):
    other = [f"0 m 4 {BIG}"] * 2
    outcome = play(client, [*FULL, *TWICE, *other], **variables())
    (line,) = outcome.said
    assert "past the limit of 0.06 GiB requests are served from host memory" in line
    assert "first one of 48 MiB: whatever reads or writes 1 GiB of it takes " in line
    assert "OOCDNN_DISABLE=1 prevents it" in line


@pytest.mark.parametrize("why", ["FAKE_NO_PINNING", "FAKE_OTHER_ADDRESS"])
def test_without_pinning_the_request_fails_and_one_line_says_so(client, why):
    outcome = play(client, [*FULL, *TWICE, *TWICE, "0 q 0"], **{why: "1"}, **variables())
    assert outcome.answers == ["0 device", *[REFUSED] * 4, "2"]
    assert outcome.figures.registered == 0
    (line,) = outcome.said
    assert f"no host memory for a request of {BIG} bytes: it cannot be pinned" in line


def test_a_second_reason_is_said_too(client):
    """A request that no host has room for is refused before it is tried."""
    much = 2**47
    outcome = play(
        client, [*FULL, *TWICE * 2, *[f"0 m 3 {much}"] * 4], FAKE_NO_PINNING="1", **variables()
    )
    assert outcome.answers == ["0 device", *[REFUSED] * 8]
    assert [line.split(": ")[-1] for line in outcome.said] == [
        "it cannot be pinned", "it has too little left",
    ]  # fmt: skip
    assert f"a request of {much} bytes" in outcome.said[1]


def test_no_more_is_pinned_than_its_limit_allows(client):
    lines = [*FULL, *TWICE, *[f"0 m 4 {MIB}"] * 2, *[f"0 m 5 {9 * MIB}"] * 2]
    outcome = play(client, lines, OOCDNN_PINNED_LIMIT=str(BIG + 8 * MIB), **variables())
    assert outcome.answers == ["0 device", REFUSED, "0 host", *["0 device", "held"], *[REFUSED] * 2]
    assert outcome.figures.pinned_bytes == BIG
    assert outcome.said[-1].endswith("more would be pinned than OOCDNN_PINNED_LIMIT allows")


def test_free_slabs_make_room_for_others(client):
    """Sizes that vary from step to step would else fill the host with what serves none of them."""
    lines = [*FULL]
    for size in range(10, 30, 2):
        lines += [f"0 m 3 {size * MIB}"] * 2 + [f"0 m 4 {size * MIB}"] * 2 + ["0 f 3", "0 f 4"]
    outcome = play(client, lines, OOCDNN_PINNED_LIMIT=str(64 * MIB), **variables())
    assert "0 device" not in outcome.answers[1:]
    assert outcome.answers.count("0 host") == 20
    assert outcome.figures.registered == outcome.figures.pinned_bytes <= 64 * MIB
    taken = play(client, lines[:-2], OOCDNN_PINNED_LIMIT=str(64 * MIB), **variables())
    assert taken.figures.registered == taken.figures.pinned_bytes == 2 * 28 * MIB


@pytest.mark.parametrize(("level", "lines"), [("error", 0), ("warn", 1), ("debug", 1)])
def test_lines_go_where_the_log_goes(client, tmp_path, level, lines):
    log = tmp_path / "log.txt"
    log.write_text("before\n")
    outcome = play(
        client, [*FULL, *TWICE], OOCDNN_LOG=level, OOCDNN_LOG_FILE=str(log), **variables()
    )
    assert outcome.said == []
    said = log.read_text().splitlines()[1:]
    assert len(said) == lines
    assert all(line.startswith("oocdnn: past the limit") for line in said)


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
    "wrong", [{"OOCDNN_LIMIT": "16GiB"}, {"OOCDNN_BUDGET": str(LIMIT)}, {"OOCDNN_SPILL": "yes"}]
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
