"""How fast passes over tiles are with nothing beside them, against a copy inside the device.

    python tests/gpu/pass_rates.py

A line is what comes after a convolution, or what restores dy of that; the memory order of the tile
of y, and that of z where it is another; the type of both; bytes read and written per second by the
best of all rounds, and as a share of those of the copy. Windows are of 2x2.
"""

from __future__ import annotations

import argparse
import ctypes
import os

TEXT_BYTES = 1 << 16


def rates(library: str, device: str, size: int) -> dict[str, float]:
    """Of one round, by the names of the lines."""
    core = ctypes.CDLL(library)
    text = ctypes.create_string_buffer(TEXT_BYTES)
    code = core.oocdnn_testing_pass_rates(
        device.encode(), ctypes.c_int64(size), text, ctypes.c_int64(TEXT_BYTES)
    )
    if code != 0:
        raise RuntimeError(text.value.decode())
    lines = (line.rpartition(" ") for line in text.value.decode().splitlines())
    return {name: float(rate) for name, _, rate in lines}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", default=os.environ.get("OOCDNN_TESTING_LIBRARY"))
    parser.add_argument("--device", default="cuda:direct", help="as the conformance suite says it")
    parser.add_argument("--bytes", type=int, default=600_000_000, help="of a tile of y, at most")
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    found = [rates(options.library, options.device, options.bytes) for _ in range(options.rounds)]
    best = {name: max(one[name] for one in found) for name in found[0]}
    copy = best["copy all byte"]
    for name, rate in best.items():
        figures = f"{rate / 1e12:6.3f} TB/s {rate / copy:7.1%}" if rate else "the device refuses"
        print(f"{'{:<14} {:<10} {:<5}'.format(*name.split())} {figures}")


if __name__ == "__main__":
    main()
