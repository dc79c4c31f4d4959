"""What others hold of the card, and when it is looked at."""

import pytest
from dropin.building import compiler
from spill.scene import BIG, BUDGET, FULL, LIMIT, MIB, REFUSED, SHARE, SMALL, TWICE, play, variables


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
