"""The GPUs that a build compiles its kernels for (native/device/cuda/fatbin.cmake)."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "native" / "device" / "cuda" / "fatbin.cmake"
KNOWN = "75;80;86;87;89;90;100;103;120"


def chosen(folder: Path, value: str, capabilities: str | None = None) -> list[str]:
    """The architectures chosen where nvidia-smi prints `capabilities`, or is not there."""
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("there is no cmake")
    if capabilities is not None:
        program = folder / "nvidia-smi"
        program.write_text(f"#!/bin/sh\nprintf '{capabilities}'\n")
        program.chmod(0o755)
    script = folder / "choose.cmake"
    script.write_text(
        "cmake_minimum_required(VERSION 3.22)\n"
        f'set(OOCDNN_CUDA_ARCHITECTURES "{value}")\n'
        f"set(CMAKE_PROGRAM_PATH {folder})\n"
        f'include("{FILE}")\n'
        f'oocdnn_chosen_architectures(out "{KNOWN}")\n'
        'message("chosen: ${out}")\n'
    )
    environment = {**os.environ, "PATH": f"{folder}:/usr/bin:/bin"}
    done = subprocess.run(
        [cmake, "-P", str(script)], capture_output=True, text=True, env=environment
    )
    if done.returncode != 0:
        raise ValueError(" ".join(done.stderr.split()))
    line = next(line for line in done.stderr.splitlines() if line.startswith("chosen: "))
    return [one for one in line.removeprefix("chosen: ").split(";") if one]


def test_native_is_the_gpus_found(tmp_path: Path) -> None:
    assert chosen(tmp_path, "native", "9.0\\n12.0\\n9.0\\n") == ["90", "120"]
    assert chosen(tmp_path, "native", "8.6\\n") == ["86"]


def test_a_gpu_unknown_to_nvcc_is_left_to_nvrtc(tmp_path: Path) -> None:
    assert chosen(tmp_path, "native", "6.1\\n9.0\\n") == ["90"]


@pytest.mark.skipif(Path("/usr/bin/nvidia-smi").exists(), reason="there is an nvidia-smi")
def test_native_without_a_gpu_is_nothing(tmp_path: Path) -> None:
    assert chosen(tmp_path, "native") == []
    assert chosen(tmp_path, "native", "No devices were found\\n") == []


def test_all_and_lists(tmp_path: Path) -> None:
    assert chosen(tmp_path, "all") == ["75", "80", "86", "89", "90", "100", "120"]
    assert chosen(tmp_path, "90,80") == ["80", "90"]
    assert chosen(tmp_path, "103") == ["103"]


def test_an_unknown_architecture_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"=80,42: .*does not know 42; pass native, all, off"):
        chosen(tmp_path, "80,42")
