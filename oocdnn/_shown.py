"""Values in texts for people."""


def shown(value: object) -> str:
    """repr(value), or its type where that raises, as of integers of more than 4300 digits."""
    try:
        return repr(value)
    except Exception:
        return f"an object of type {type(value).__name__}, which has no text"


def bytes_text(count: float) -> str:
    """1.50 GiB, 12.0 MiB, 7 B."""
    for unit, size, digits in _UNITS:
        if count >= size:
            return f"{count / size:.{digits}f} {unit}"
    return f"{count:.0f} B"


_UNITS = (("TiB", 1 << 40, 2), ("GiB", 1 << 30, 2), ("MiB", 1 << 20, 1), ("KiB", 1 << 10, 1))
