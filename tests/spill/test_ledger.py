"""Where requests land: any order of requests and frees, over threads, against a model."""

from collections import defaultdict

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spill.scene import MEASURING, MIB, REFUSED, RESERVE, SHARE, SMALL, play, variables

SIZES = st.sampled_from(
    (512, SMALL - 1, SMALL, 2 * MIB, 7 * MIB, 20 * MIB, SHARE - RESERVE, SHARE, SHARE + 1)
) | st.integers(1, 24 * MIB)
QUICK = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
THREADS = 4


@st.composite
def programs(draw):
    """Lines of requests and frees; each slot belongs to one thread, and all is freed at the end.

    Some requests are made twice, as clients that cache memory do; a free of what was not given
    frees nothing.
    """
    lines, held = [], {}
    for slot in range(2, 2 + draw(st.integers(1, 24))):
        thread, size = draw(st.integers(0, THREADS - 1)), draw(SIZES)
        lines += [f"{thread} m {slot} {size}"] * draw(st.integers(1, 2))
        held[slot] = thread
        for gone in draw(st.lists(st.sampled_from(sorted(held)), max_size=2, unique=True)):
            lines.append(f"{held.pop(gone)} f {gone}")
            if not held:
                break
    return lines + [f"{thread} f {slot}" for slot, thread in held.items()]


class Model:
    """The policy in its plainest form."""

    def __init__(self) -> None:
        self.small = self.large = self.host = self.peak = self.host_peak = 0
        self.given: dict[int, tuple[str, int]] = {}
        self.refused: defaultdict[int, int] = defaultdict(int)

    def request(self, thread: int, slot: int, size: int) -> str:
        kept = 0 if size < SMALL else max(RESERVE - self.small, 0)
        if self.small + self.large + size + kept <= SHARE:
            self.refused[thread] = 0
            return self.give(slot, "device", size)
        if self.refused[thread] != size:
            self.refused[thread] = size
            return REFUSED
        self.refused[thread] = 0
        return self.give(slot, "host", size)

    def count(self, place: str, size: int) -> None:
        if place == "host":
            self.host += -(-abs(size) // 512) * (512 if size > 0 else -512)
        elif abs(size) < SMALL:
            self.small += size
        else:
            self.large += size
        self.peak = max(self.peak, self.small + self.large)
        self.host_peak = max(self.host_peak, self.host)

    def give(self, slot: int, place: str, size: int) -> str:
        self.given[slot] = (place, size)
        self.count(place, size)
        return f"0 {place}"

    def free(self, slot: int) -> str:
        place, size = self.given.pop(slot, ("device", 0))
        self.count(place, -size)
        return "0"


def answers(lines: list[str]) -> tuple[list[str], Model]:
    model, expected = Model(), []
    for line in lines:
        thread, what, slot, *size = line.split()
        if what == "f":
            expected.append(model.free(int(slot)))
        elif int(slot) in model.given:
            expected.append("held")
        else:
            expected.append(model.request(int(thread), int(slot), int(size[0])))
    return expected, model


@QUICK
@given(programs())
def test_requests_land_where_the_policy_says(client, lines):
    expected, model = answers(lines)
    outcome = play(client, lines, **variables())
    figures = outcome.figures
    assert outcome.answers == expected
    assert (figures.peak, figures.device_peak) == (model.peak, model.peak)
    assert (figures.used, figures.device_bytes, figures.host_bytes) == (0, 0, 0)
    assert figures.host_peak == model.host_peak
    assert figures.refused == expected.count(REFUSED)
    served = expected.count("0 host")  # each of them was freed
    assert figures.waits == (served + MEASURING if served else 0)
    assert figures.registered == figures.pinned_bytes >= figures.host_peak


@QUICK
@given(programs())
def test_threads_at_once_never_pass_the_limit(client, lines):
    outcome = play(client, lines, together=True, **variables())
    figures = outcome.figures
    assert figures.peak <= figures.device_peak <= SHARE
    assert (figures.used, figures.device_bytes, figures.host_bytes) == (0, 0, 0)
    assert figures.refused == outcome.answers.count(REFUSED)
    assert figures.pinned_bytes == figures.registered


def test_pinned_memory_stops_growing(client):
    """A step that is repeated, in an order of sizes of its own each time."""
    sizes = [40 * MIB, 11 * MIB, 7 * MIB, 5 * MIB, 3 * MIB]
    lines = []
    for step in range(60):
        turned = sizes[step % 5 :] + sizes[: step % 5]
        for slot, size in enumerate(turned, 2):
            lines += [f"0 m {slot} {size}"] * 2
        lines += [f"0 f {slot}" for slot in range(2, 7)]
    early = play(client, lines[: len(lines) // 4], **variables()).figures
    late = play(client, lines, **variables()).figures
    assert late.pinned_bytes == early.pinned_bytes > 0
    assert late.registrations == early.registrations
