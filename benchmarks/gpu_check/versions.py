"""The machine, and the versions of its packages, compared with the lock."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.harness.machine import MachineInfo

LOCK = Path(__file__).parents[2] / "requirements" / "gpu.txt"

PACKAGES = (
    "torch",
    "transformers",
    "diffusers",
    "accelerate",
    "numpy",
    "safetensors",
    "grpcio",
    "protobuf",
    "pydantic",
)
"""The packages on which figures may depend."""


def version_rows(device: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields cases with their figures."""
    import torch

    machine = MachineInfo.current()
    yield "machine", {"found": f"{machine.cpu}, {len(os.sched_getaffinity(0))} cores", "lock": ""}
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        yield "card", {"found": f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB", "lock": ""}
        yield "CUDA", {"found": f"{torch.version.cuda}, driver {_driver()}", "lock": _locked_cuda()}
    else:
        yield "card", {"found": "none: tiny dimensions on the CPU", "lock": ""}
    yield "Python", {"found": platform.python_version(), "lock": ""}
    locked = locked_versions()
    for package in PACKAGES:
        yield package, {"found": _version(package), "lock": _difference(_version(package), locked[package])}


def locked_versions() -> dict[str, str]:
    """Returns the version of each package in the lock."""
    return dict(re.findall(r"^([\w.-]+)==([^ ;]+)", LOCK.read_text(), re.MULTILINE))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _difference(found: str, locked: str) -> str:
    return "as locked" if found.partition("+")[0] == locked else f"differs: {locked}"


def _locked_cuda() -> str:
    return next(
        (f"CUDA {found}" for name, found in locked_versions().items() if name.startswith("nvidia-cuda-runtime")), ""
    )


def _driver() -> str:
    file = Path("/proc/driver/nvidia/version")
    match = re.search(r"Kernel Module(?: for \S+)?\s+([\d.]+)", file.read_text()) if file.exists() else None
    return match[1] if match else "unknown"
