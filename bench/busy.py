"""How long each engine of a device was busy, for people."""

from collections.abc import Mapping
from typing import Any


def busy_text(stats: Mapping[str, Any]) -> str:
    """Milliseconds of fetching, computing and draining, of the fields of a `Stats`; what is not
    there counts as none."""
    engines = ("fetch", "compute", "drain")
    return "/".join(f"{stats.get(f'{engine}_seconds', 0) * 1e3:.1f}" for engine in engines)
