"""What a call takes: the first one, and warm ones until their median is known, with its noise."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from oocdnn.bench.cpu import timed

MUCH_LONGER = 5  # than the seconds that warm calls should take


@dataclass(frozen=True)
class Patience:
    """When enough warm calls were timed: `least`, and the noise or the seconds. Where calls take so
    long that these are passed by far, one is enough."""

    least: int = 5
    most: int = 50
    noise: float = 0.01
    seconds: float = 2.0


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
        long = spent >= MUCH_LONGER * patience.seconds
        if len(times.warm) < (1 if long else patience.least):
            continue
        if times.noise <= patience.noise or spent >= patience.seconds:
            break
    return times
