"""What the host has left, from files as kernels write them."""

import subprocess

import pytest
from dropin.building import ROOT, compiler
from spill.scene import CLIENTS, MIB

PARENT, GROUP = "/user.slice", "/user.slice/job-1"
NAMES = {
    2: ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file", "0::"),
    1: (
        "sys/fs/cgroup/memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
        "3:cpu,cpuacct:/elsewhere\n5:hugetlb,memory:",
    ),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("room") / "room"
    compiler(["-D_GNU_SOURCE", f"-I{ROOT / 'native'}", "-o", str(path), str(CLIENTS / "room.c"),
              str(ROOT / "native" / "spill" / "host_room.c")])  # fmt: skip
    return path


class Host:
    def __init__(self, root, program, version=2):
        self.root, self.program, self.version = root, program, version
        self.write("proc/meminfo", f"MemTotal: {999 << 10} kB\nMemAvailable: {100 << 10} kB\n")
        self.write("proc/self/cgroup", f"{NAMES[version][-1]}{GROUP}\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def group(self, path, limit, used, cache=0):
        mount, most, usage, inactive, _ = NAMES[self.version]
        self.write(f"{mount}{path}/{most}", f"{limit}\n")
        self.write(f"{mount}{path}/{usage}", f"{used * MIB}\n")
        stat = f"anon 5\nactive_file {7 * MIB}\n{inactive} {cache * MIB}\n"
        self.write(f"{mount}{path}/memory.stat", stat)

    def room(self):
        done = subprocess.run([self.program, self.root], capture_output=True, text=True, check=True)
        return int(done.stdout) / MIB


@pytest.fixture(params=[2, 1])
def host(tmp_path, program, request):
    return Host(tmp_path, program, request.param)


def test_without_groups_it_is_the_kernels_estimate(host):
    assert host.room() == 100


def test_file_cache_that_can_be_given_back_is_free(host):
    """A DataLoader's files fill a group without being in the way."""
    host.group(GROUP, 80 * MIB, 70, cache=40)
    assert host.room() == 50
    host.group(GROUP, 80 * MIB, 90)
    assert host.room() == 0
    host.group(GROUP, 80 * MIB, 5, cache=6)
    assert host.room() == 80


@pytest.mark.parametrize("tight", [GROUP, PARENT, ""])
def test_the_tightest_of_all_groups_above_counts(host, tight):
    for path in (GROUP, PARENT, ""):
        host.group(path, 60 * MIB if path == tight else "max", 20)
    assert host.room() == 40


def test_a_path_that_is_not_visible_leaves_the_mounts_group(host):
    host.group("", 30 * MIB, 20)
    assert host.room() == 10


def test_what_cannot_be_read_does_not_limit(tmp_path, program):
    host = Host(tmp_path, program)
    host.write("proc/meminfo", "")
    assert host.room() == 2**64 / MIB


@pytest.mark.parametrize("kib", [2**54, 2**60, 2**64])
def test_an_estimate_that_overflows_does_not_limit(tmp_path, program, kib):
    host = Host(tmp_path, program)
    host.write("proc/meminfo", f"MemAvailable: {kib} kB\n")
    assert host.room() == 2**64 / MIB
