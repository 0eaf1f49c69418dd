"""The machine, and the versions of its packages, compared with the lock."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.harness.machine import MachineInfo

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements" / "gpu.txt"

COMMIT = ROOT / ".gpu-check-commit"
"""The file of an archive that names its commit."""

PACKAGES = (
    "torch",
    "triton",
    "nvidia-cublas",
    "nvidia-nccl-cu13",
    "transformers",
    "tokenizers",
    "huggingface-hub",
    "safetensors",
    "diffusers",
    "accelerate",
    "numpy",
    "pillow",
    "soundfile",
    "grpcio",
    "protobuf",
    "pydantic",
)
"""The packages on which figures may depend."""


def version_rows(device: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields cases with their figures."""
    import torch

    locked = locked_versions()
    yield "Cornserve", {"found": COMMIT.read_text().strip() if COMMIT.exists() else checkout_commit(), "lock": ""}
    machine = MachineInfo.current()
    yield "machine", {"found": f"{machine.cpu}, {len(os.sched_getaffinity(0))} cores", "lock": ""}
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        yield "card", {"found": f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB", "lock": ""}
        cuda = str(torch.version.cuda)
        yield "CUDA", {"found": cuda, "lock": _difference(cuda, _short(locked["nvidia-cuda-runtime"], 2))}
        yield "driver", {"found": _driver(), "lock": ""}
        number = torch.backends.cudnn.version() or 0
        cudnn = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
        yield "cuDNN", {"found": cudnn, "lock": _difference(cudnn, _short(locked["nvidia-cudnn-cu13"], 3))}
    else:
        yield "card", {"found": "none: tiny dimensions on the CPU", "lock": ""}
    yield "Python", {"found": platform.python_version(), "lock": ""}
    for package in PACKAGES:
        yield package, {"found": _version(package), "lock": _difference(_version(package), locked[package])}


def locked_versions() -> dict[str, str]:
    """Returns the version of each package in the lock."""
    return dict(re.findall(r"^([\w.-]+)==([^ ;]+)", LOCK.read_text(), re.MULTILINE))


def checkout_commit() -> str:
    """Returns the commit of the checkout, with "-dirty" if a file has changed since."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        described = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return described.stdout.strip()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _difference(found: str, locked: str) -> str:
    return "as locked" if found.partition("+")[0] == locked else f"differs: {locked}"


def _short(version: str, numbers: int) -> str:
    return ".".join(version.split(".")[:numbers])


def _driver() -> str:
    file = Path("/proc/driver/nvidia/version")
    match = re.search(r"Kernel Module(?: for \S+)?\s+([\d.]+)", file.read_text()) if file.exists() else None
    return match[1] if match else "unknown"
