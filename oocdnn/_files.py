"""How files are written that others may read meanwhile."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file to write to, which takes the place of `path` afterwards. Whoever reads finds the
    old file or the new one, whole, also where the disk is full or the program is ended meanwhile.
    No link that somebody has put into the folder is followed."""
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    descriptor = os.open(part, _NEW, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)  # on a full disk it takes room


def write(path: Path, data: bytes) -> None:
    """Writes what a user has asked for: a new file, or into what is none, such as a pipe."""
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            file.write(data)
    else:
        with replacing(path) as file:
            file.write(data)
