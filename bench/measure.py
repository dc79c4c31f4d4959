"""What a call takes: the first one, and warm ones until their median is known, with its noise."""

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

MUCH_LONGER = 5  # than the seconds that warm calls should take
ENDLESS = 60.0  # seconds; what a first call does beside its work takes less by far
DISTURBED = 0.08  # share of the cores that others may have during a call that counts


@dataclass(frozen=True)
class Call:
    """The time of one call, and how much of the machine's cores other programs had meanwhile."""

    seconds: float
    processor_seconds: float  # of all threads of this process
    others: float  # 0 to 1

    @property
    def quiet(self) -> bool:
        return self.others <= DISTURBED


def machine_busy_seconds() -> float:
    """Processor time that all programs of the machine have used, in all; 0 where unknown."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            fields = [int(text) for text in file.readline().split()[1:9]]
    except OSError:
        return 0.0
    user, nice, system, _idle, _waiting, *interrupts_and_stolen = fields
    return (user + nice + system + sum(interrupts_and_stolen)) / os.sysconf("SC_CLK_TCK")


def timed(call: Callable[..., object], *arguments: object) -> Call:
    """Runs `call` and says how long it took."""
    busy, own, start = machine_busy_seconds(), time.process_time(), time.perf_counter()
    call(*arguments)
    seconds, own = time.perf_counter() - start, time.process_time() - own
    foreign = machine_busy_seconds() - busy - own
    share = foreign / (seconds * (os.cpu_count() or 1))
    return Call(seconds, own, min(max(share, 0.0), 1.0))


@dataclass(frozen=True)
class Patience:
    """When enough warm calls were timed: `least`, and the noise or the seconds. Where calls take so
    long that these are passed by far, one is enough, unless `least` is `strict`; where the first
    call is endless, it is the one."""

    least: int = 5
    most: int = 50
    noise: float = 0.01
    seconds: float = 2.0
    strict: bool = False

    @classmethod
    def exactly(cls, calls: int) -> "Patience":
        return cls(least=calls, most=calls, strict=True)


@dataclass
class Times:
    """Warm calls in order, and how many more were dropped since others used the machine."""

    cold: float = 0.0
    warm: list[float] = field(default_factory=list)
    dropped: int = 0

    @property
    def median(self) -> float:
        return median(self.warm)

    @property
    def noise(self) -> float:
        """Half the width of the median's 95 % interval over the median."""
        low, high = interval(self.warm)
        return (high - low) / 2 / self.median


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the median, whatever the distribution: by order statistics. Fewer than
    six values have none so narrow, and give their least and greatest."""
    ordered, count = sorted(values), len(values)
    tail, rank = 0.5**count, 0  # the chance that at most `rank` values are below the median
    while rank + 1 < count / 2:
        more = tail + math.comb(count, rank + 1) * 0.5**count
        if more > 0.025:
            break
        tail, rank = more, rank + 1
    if tail > 0.025:
        return ordered[0], ordered[-1]
    return ordered[rank], ordered[count - 1 - rank]


def time_calls(
    call: Callable[[], object],
    patience: Patience,
    reset: Callable[[], object] = lambda: None,
    throttled: Callable[[], bool] = lambda: False,
) -> Times:
    """The first call, and warm ones until their median is known well enough, each after a `reset`
    that is not timed. A call in which other programs used much of the processor, or after which the
    device is `throttled`, is dropped, as long as there were as many that count."""
    reset()
    start = time.perf_counter()
    call()
    times = Times(cold=time.perf_counter() - start)
    if times.cold >= ENDLESS and patience.most > 0 and not patience.strict:
        times.warm.append(times.cold)
        return times
    spent = 0.0
    while len(times.warm) < patience.most:
        reset()
        one = timed(call)
        spent += one.seconds
        held = throttled()
        if (one.quiet and not held) or times.dropped > len(times.warm):
            times.warm.append(one.seconds)
        else:
            times.dropped += 1
        long = spent >= MUCH_LONGER * patience.seconds and not patience.strict
        if len(times.warm) < (1 if long else patience.least):
            continue
        if times.noise <= patience.noise or spent >= patience.seconds:
            break
    return times
