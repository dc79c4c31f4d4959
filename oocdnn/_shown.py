"""Arguments in the texts of errors."""


def shown(value: object) -> str:
    """repr(value), or its type where that raises, as of integers of more than 4300 digits."""
    try:
        return repr(value)
    except Exception:
        return f"an object of type {type(value).__name__}, which has no text"
