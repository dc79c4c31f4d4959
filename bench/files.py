"""How files of results are written."""

from pathlib import Path


def replace(path: Path, text: str) -> None:
    """Replaces a file in one step: whoever reads it finds the old text or the new one, whole, also
    where the disk is full or the program is ended meanwhile."""
    beside = path.with_name(path.name + ".part")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)  # on a full disk it takes room
        raise
