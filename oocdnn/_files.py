"""How files are written that others may read meanwhile."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to, which takes the place of `path` afterwards. Whoever reads finds the old
    file or the new one, whole, also where the disk is full or the program is ended meanwhile."""
    part = path.with_name(path.name + ".part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)  # on a full disk it takes room
