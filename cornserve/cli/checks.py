"""What `cornserve doctor` looks at. Each check says what it found and, if that is not well, what to do."""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from cornserve.home import Home
from cornserve.instance import Instance

GIB = 1024**3


class Finding(NamedTuple):
    name: str
    ok: bool
    found: str
    remedy: str = ""
    is_essential: bool = False
    """Cornserve cannot work without it."""


def examine(home: Home, host: str, port: int) -> Iterator[Finding]:
    yield _python()
    yield _engine()
    gpus = _gpus()
    yield _gpus_found(gpus)
    yield _libnuma(needed=not gpus)
    yield _memory()
    yield _shared_memory()
    yield _home(home)
    yield _disk(home)
    instance = Instance.find_running(home)
    yield _instance(home, instance)
    if instance is None:
        yield _port(host, port)


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("Python", sys.version_info >= (3, 11), version, "install Python 3.11 or newer", is_essential=True)


def _engine() -> Finding:
    found = find_spec("vllm") is not None
    return Finding(
        "vLLM",
        found,
        "installed" if found else "not installed",
        "language models need it: install cornserve[cpu] or cornserve[gpu]",
    )


def _gpus() -> list[str]:
    try:
        answer = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in answer.stdout.splitlines() if line.strip()]


def _gpus_found(gpus: list[str]) -> Finding:
    return Finding("GPUs", True, "; ".join(gpus) or "none: models run on the CPU")


def _libnuma(*, needed: bool) -> Finding:
    try:
        ctypes.CDLL("libnuma.so.1")
    except OSError:
        found = False
    else:
        found = True
    return Finding(
        "libnuma",
        found or not needed,
        "found" if found else "not found",
        "vLLM needs it on CPUs: apt-get install libnuma1 (Debian, Ubuntu), dnf install numactl-libs (Fedora)",
        is_essential=True,
    )


def _memory() -> Finding:
    import psutil

    memory = psutil.virtual_memory()
    return Finding(
        "memory",
        memory.available >= 4 * GIB,
        f"{_gib(memory.available)} of {_gib(memory.total)} available",
        "even a small model takes 4 GiB: end other programs",
    )


def _shared_memory() -> Finding:
    path = Path("/dev/shm")
    if not path.is_dir() or not os.access(path, os.W_OK):
        return Finding("/dev/shm", False, "not writable", "mount a tmpfs there", is_essential=True)
    free = shutil.disk_usage(path).free
    return Finding(
        "/dev/shm",
        free >= GIB,
        f"{_gib(free)} free",
        "tensors between executors live there: in a container, start it with --shm-size=2g",
    )


def _home(home: Home) -> Finding:
    try:
        home.path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home.path):
            pass
    except OSError as error:
        return Finding(
            "home", False, f"{home.path}: {error.strerror}", "choose another with CORNSERVE_HOME", is_essential=True
        )
    return Finding("home", True, str(home.path))


def _disk(home: Home) -> Finding:
    place = next(path for path in (home.path, *home.path.parents) if path.exists())
    free = shutil.disk_usage(place).free
    return Finding("disk", free >= 5 * GIB, f"{_gib(free)} free", "models need room: choose another CORNSERVE_HOME")


def _instance(home: Home, instance: Instance | None) -> Finding:
    if instance is not None:
        return Finding("instance", True, f"runs at {instance.url} (process {instance.pid})")
    if Instance.read(home) is not None:
        return Finding(
            "instance",
            False,
            "was killed",
            "`cornserve up` starts it again; `cornserve down --keep-apps` only cleans up",
        )
    return Finding("instance", True, "none runs: start one with `cornserve up`")


def _port(host: str, port: int) -> Finding:
    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        return Finding(
            "port",
            False,
            f"{host}:{port}: {error.strerror}",
            "choose another: `cornserve up --port 8001`",
            is_essential=True,
        )
    return Finding("port", True, f"{host}:{port} is free")


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
