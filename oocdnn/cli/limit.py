"""What `oocdnn run` hands on so that a program keeps to a limit of device memory."""

import re
from collections.abc import Mapping
from pathlib import Path

import click

from oocdnn import cudnn

HOST, REFUSE = "host", "refuse"
_BUDGET_PART = 16  # of the limit oocdnn's own, where no budget says otherwise
_UNITS = {
    "": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
_MOST = 2**60
_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_ALLOCATORS = {
    "expandable_segments:True": "expandable_segments ask the driver",
    "backend:cudaMallocAsync": "cudaMallocAsync backend does not ask twice",
}


def spill_path() -> Path:
    """The library that stands before CUDA's runtime, to be preloaded with a limit."""
    return cudnn.dropin_path().parent / "liboocdnn_spill.so"


def bytes_of(text: str) -> int:
    """ "16GiB", "1.5GB", "4096" -> bytes. Raises click.UsageError."""
    found = re.fullmatch(rf"\+?({_NUMBER})\s*([A-Za-z]*)", text.strip())
    if found is None or found[2] not in _UNITS or float(found[1]) > _MOST:
        raise click.UsageError(f"'{text}' is not a number of bytes; write 512MiB, 2GiB or 1.5GB")
    return int(float(found[1]) * _UNITS[found[2]])


def check_budget(text: str) -> None:
    """Raises click.UsageError for what the library would not take, in the midst of the program."""
    if text in ("", "auto"):
        return
    share = re.fullmatch(rf"\s*\+?({_NUMBER})\s*%", text)
    if not (0 < float(share[1]) <= 100 if share else bytes_of(text) > 0):
        raise click.UsageError(f"'{text}' is no budget; write 512MiB, 2GiB, 50% or auto")


def check_device(text: str) -> None:
    """The same of a device."""
    if text and not re.fullmatch(r"auto|cpu|cuda(:\d+)?", text):
        raise click.UsageError(f"there is no device '{text}'; write auto, cpu or cuda:N")


def variables(
    limit: str, budget: str | None, spill: str | None, pinned: str | None = None
) -> dict[str, str]:
    """OOCDNN_LIMIT, OOCDNN_BUDGET and OOCDNN_SPILL, and OOCDNN_PINNED_LIMIT where there is one: in
    bytes, as the library reads them. Raises click.UsageError."""
    most = bytes_of(limit)
    own = most // _BUDGET_PART if budget is None else bytes_of(budget)
    if not 0 < own < most:
        raise click.UsageError(f"a budget of {own} bytes in a limit of {most} leaves no room")
    names = {"LIMIT": most, "BUDGET": own, "SPILL": spill or REFUSE}
    if pinned:
        names["PINNED_LIMIT"] = bytes_of(pinned)
    return {f"OOCDNN_{name}": str(value) for name, value in names.items()}


def way_past(environment: Mapping[str, str]) -> str | None:
    """How the program will get its memory past the library, where its variables say so."""
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        for setting, meaning in _ALLOCATORS.items():
            if setting in environment.get(name, "").replace(" ", ""):
                return f"no limit is kept and nothing spills: PyTorch's {meaning} ({name})"
    return None
