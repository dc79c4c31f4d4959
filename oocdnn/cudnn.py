"""cuDNN's own functions, by their own names, as the drop-in library serves them.

    from oocdnn import cudnn

    handle = cudnn.ffi.new("cudnnHandle_t *")
    cudnn.check(cudnn.cudnnCreate(handle))

Functions and enum values are attributes of this module; `ffi` makes their arguments. Without a GPU
they are served by the CPU and take pointers to host memory, of NumPy arrays for instance:
`cudnn.ffi.from_buffer(array)`. What they mean is cuDNN's documentation.
"""

import functools
import re
from pathlib import Path
from typing import Any

import cffi

from oocdnn._core import loading
from oocdnn.errors import DeviceError

# In the order in which they need each other.
_HEADERS = (
    "cudnn_types.h",
    "cudnn_legacy.h",
    "cudnn_backend.h",
    "cudnn_functions.h",
    "cudnn_handed_on.h",
)
_DRIVER_TYPES = "typedef struct CUstream_st* CUstream;\n"


def dropin_path() -> Path:
    """The drop-in library, to be preloaded: LD_PRELOAD=$(oocdnn dropin)."""
    return loading.library_path().resolve().parents[1] / "dropin" / "libcudnn.so.9"


def include_path() -> Path:
    """The folder of our own cudnn.h, for programs that are built where there is no cuDNN."""
    return dropin_path().parent / "include"


def _declarations(header: str) -> str:
    """A header without comments, preprocessor lines and what only a C++ compiler sees."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL).replace("\\\n", " ")
    text = re.sub(r"^#ifdef __cplusplus$.*?^#endif$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"^#.*$", "", text, flags=re.MULTILINE)


@functools.cache
def _ffi() -> Any:
    ffi = cffi.FFI()
    folder = include_path() / "abi"
    texts = [(folder / name).read_text(encoding="utf-8") for name in _HEADERS]
    ffi.cdef(_DRIVER_TYPES + "".join(map(_declarations, texts)))
    return ffi


@functools.cache
def _library() -> Any:
    path = dropin_path()
    if not path.is_file():
        raise ImportError(f"there is no drop-in at {path}; it is built for x86-64 only")
    return _ffi().dlopen(str(path))


def check(status: int) -> None:
    """Raises the error of a failed call of this thread."""
    if status == 0:
        return
    ffi, library = _ffi(), _library()
    text = ffi.new("char[]", 1024)
    library.cudnnGetLastErrorString(text, len(text))
    name = ffi.string(library.cudnnGetErrorString(status)).decode()
    raise DeviceError(f"{name}: {ffi.string(text).decode('utf-8', 'replace')}")


def __getattr__(name: str) -> Any:
    if name == "ffi":
        return _ffi()
    if name.startswith(("cudnn", "CUDNN_")):
        return getattr(_library(), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
