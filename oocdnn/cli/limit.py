"""What `oocdnn run` hands on so that a program keeps to a limit of device memory."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

import oocdnn
from oocdnn import cudnn
from oocdnn._arguments import NUMBER, byte_count, lender
from oocdnn.errors import InvalidProblem

HOST, REFUSE = "host", "refuse"
_BUDGET_PART = 16  # of the limit oocdnn's own, where no budget says otherwise
_ALLOCATORS = {
    "expandable_segments:True": "expandable_segments ask the driver",
    "backend:cudaMallocAsync": "cudaMallocAsync backend does not ask twice",
}


def spill_path() -> Path:
    """The library that stands before CUDA's runtime, to be preloaded with a limit."""
    return cudnn.dropin_path().parent / "liboocdnn_spill.so"


def bytes_of(text: str) -> int:
    """ "16GiB", "1.5GB", "4096" -> bytes. Raises click.UsageError."""
    try:
        return byte_count("size", text)
    except InvalidProblem:
        raise click.UsageError(
            f"'{text}' is not a number of bytes; write 512MiB, 2GiB or 1.5GB"
        ) from None


def check_budget(text: str) -> None:
    """Raises click.UsageError for what the library would not take, in the midst of the program."""
    if text in ("", "auto"):
        return
    share = re.fullmatch(rf"\s*\+?({NUMBER})\s*%", text)
    if not (0 < float(share[1]) <= 100 if share else bytes_of(text) > 0):
        raise click.UsageError(f"'{text}' is no budget; write 512MiB, 2GiB, 50% or auto")


def checked_lenders(texts: Sequence[str]) -> str:
    """The same of GPUs and the bytes that they lend, each GPU once; as the variable has them."""
    try:
        names = [lender(text)[0] for text in texts]
    except InvalidProblem as error:
        raise click.UsageError(str(error)) from None
    for name in names:
        if names.count(name) > 1:
            raise click.UsageError(f"--borrow names {name} twice")
    return ",".join(text.strip() for text in texts)


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


def start_path() -> Path:
    """The folder from which Python reads at its start that training is to be planned."""
    return Path(oocdnn.__file__).parent / "startup"


def skipping_option(program: Sequence[str]) -> str | None:
    """The interpreter option that makes a Python program skip PYTHONPATH or sitecustomize."""
    if not re.fullmatch(r"python(\d+(\.\d+)?)?", Path(program[0]).name):
        return None
    words = iter(program[1:])
    for word in words:
        if not re.match(r"-[^-]", word) or word[1] in "cm":
            return None
        if word in ("-W", "-X"):
            next(words, None)
        elif word[1] not in "WX":
            for letter in word[1:]:
                if letter in "ISE":
                    return f"-{letter}"
                if letter in "cm":
                    return None
    return None


def way_past(environment: Mapping[str, str]) -> str | None:
    """How the program will get its memory past the library, where its variables say so."""
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        for setting, meaning in _ALLOCATORS.items():
            if setting in environment.get(name, "").replace(" ", ""):
                return f"no limit is kept and nothing spills: PyTorch's {meaning} ({name})"
    return None
