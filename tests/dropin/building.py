"""C clients for the drop-in, built with our own headers or with NVIDIA's."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from oocdnn import cudnn

HERE = Path(__file__).parent
CLIENTS = HERE / "clients"
ROOT = HERE.parents[1]


def nvidia_folder() -> Path | None:
    """A folder with include/ and lib/ of a real cuDNN 9: OOCDNN_TEST_CUDNN, else the wheel's."""
    chosen = os.environ.get("OOCDNN_TEST_CUDNN")
    if chosen:
        return Path(chosen)
    try:
        spec = importlib.util.find_spec("nvidia.cudnn")
    except ModuleNotFoundError:
        return None
    return Path(spec.submodule_search_locations[0]) if spec is not None else None


def real_library() -> Path:
    folder = nvidia_folder()
    path = folder / "lib" / "libcudnn.so.9" if folder is not None else None
    if path is None or not path.is_file():
        pytest.skip("no real cuDNN here: OOCDNN_TEST_CUDNN names a folder with one's lib")
    return path


def cuda_include() -> Path | None:
    """Where NVIDIA's cudnn.h finds CUDA's headers."""
    places = [Path("/usr/local/cuda/include")]
    folder = nvidia_folder()
    if folder is not None:
        places += sorted(folder.parent.glob("cu*/include"))
    return next((place for place in places if (place / "library_types.h").is_file()), None)


def include_flags(headers: str) -> list[str]:
    """The compiler's flags for "ours" or "nvidia"."""
    if headers == "ours":
        folder = cudnn.include_path()
        return [f"-I{folder / 'abi'}", f"-I{folder}"]
    folder, cuda = nvidia_folder(), cuda_include()
    if folder is None or not (folder / "include" / "cudnn.h").is_file():
        pytest.skip("NVIDIA's cudnn.h is not here: OOCDNN_TEST_CUDNN names a folder with include/")
    if cuda is None:
        pytest.skip("CUDA's library_types.h, which NVIDIA's cudnn.h includes, is not here")
    return [f"-I{folder / 'include'}", f"-isystem{cuda}", "-Wno-deprecated-declarations"]


def compiler(flags: list[str]) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    subprocess.run(["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", *flags], check=True)


def build(source: Path, target: Path, headers: str = "ours", extra: tuple[str, ...] = ()) -> Path:
    """Compiles one client; it is linked with the drop-in, which it finds by name alone."""
    linked = [] if "-ldl" in extra else [str(cudnn.dropin_path())]
    compiler([*include_flags(headers), "-o", str(target), str(source), *linked, *extra])
    return target


def run(program: Path | list, *, preload: bool = True, **variables: str):
    """Runs a client with the drop-in preloaded and only these OOCDNN_* variables."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OOCDNN_")}
    if preload:
        environment["LD_PRELOAD"] = str(cudnn.dropin_path())
    environment.update({"OOCDNN_DEVICE": "cpu", "OOCDNN_PROFILE": "none", **variables})
    command = program if isinstance(program, list) else [program]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
