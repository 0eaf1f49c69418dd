"""Checks of `cornserve doctor`. Each check reports its result and, if it fails, a remedy."""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from cornserve.app_host.sandbox import Protection
from cornserve.cli.check_result import GIB, CheckResult, format_gib
from cornserve.cli.home_checks import disk_check, home_check, instance_check, store_check, unreadable_instance
from cornserve.cli.local_slots import describe_slots
from cornserve.control.local_instance.process_specs import gateway_name
from cornserve.home import Home
from cornserve.instance import Instance
from cornserve.limits import MIB, Limits
from cornserve.memory_limit import memory_limit_bytes
from cornserve.pull_protocol import PullProtocol, rdma_devices

RESPONSE_SECONDS = 3.0
"""The time that a gateway has to respond. It needs milliseconds."""


def run_checks(home: Home, host: str, port: int) -> Iterator[CheckResult]:
    yield _python()
    yield _engine()
    gpus = _gpus()
    yield _gpus_found(gpus)
    yield _libnuma(needed=not gpus)
    yield _memory()
    yield _shared_memory()
    yield _rdma(home)
    yield _apps()
    yield home_check(home)
    yield disk_check(home)
    yield store_check(home)
    try:
        instance = Instance.find_running(home)
    except OSError as error:
        yield unreadable_instance(home, error)
        return
    yield instance_check(home, instance)
    if instance is None:
        yield _port(host, port)
    else:
        if slots := describe_slots(home, instance):
            yield CheckResult("slots", True, slots)
        for number, url in enumerate(instance.gateways, start=1):
            yield _gateway(home, gateway_name(number), url)


def _python() -> CheckResult:
    version = ".".join(map(str, sys.version_info[:3]))
    return CheckResult(
        "Python", sys.version_info >= (3, 11), version, "install Python 3.11 or newer", is_essential=True
    )


def _engine() -> CheckResult:
    found = find_spec("vllm") is not None
    return CheckResult(
        "vLLM",
        found,
        "installed" if found else "not installed",
        "language models require vLLM: install cornserve[cpu] or cornserve[gpu]",
    )


def _gpus() -> list[str]:
    try:
        output = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in output.stdout.splitlines() if line.strip()]


def _gpus_found(gpus: list[str]) -> CheckResult:
    return CheckResult("GPUs", True, "; ".join(gpus) or "none: models run on the CPU")


def _libnuma(*, needed: bool) -> CheckResult:
    try:
        ctypes.CDLL("libnuma.so.1")
    except OSError:
        found = False
    else:
        found = True
    return CheckResult(
        "libnuma",
        found or not needed,
        "found" if found else "not found",
        "vLLM requires libnuma on CPUs: apt-get install libnuma1 (Debian, Ubuntu), dnf install numactl-libs (Fedora)",
        is_essential=True,
    )


def _memory() -> CheckResult:
    import psutil

    memory, limit = psutil.virtual_memory(), memory_limit_bytes()
    limited = "" if limit >= memory.total else f", limited to {format_gib(limit)} by the control group"
    bodies = format_gib(Limits().bodies_mib * MIB)
    return CheckResult(
        "memory",
        min(memory.available, limit) >= 4 * GIB,
        f"{format_gib(memory.available)} of {format_gib(memory.total)} available{limited}; {bodies} for request bodies",
        "even a small model needs 4 GiB: stop other programs",
    )


def _shared_memory() -> CheckResult:
    path = Path("/dev/shm")
    if not path.is_dir() or not os.access(path, os.W_OK):
        return CheckResult("/dev/shm", False, "not writable", "mount a tmpfs at /dev/shm", is_essential=True)
    free = shutil.disk_usage(path).free
    return CheckResult(
        "/dev/shm",
        free >= GIB,
        f"{format_gib(free)} free",
        "executors exchange tensors there, such as encoded images, and refuse requests while it is full: start a "
        "container with --shm-size=2g",
    )


UCX_OVER_TCP = (
    "tensors of other nodes are pulled by UCX over TCP. Each process that reaches UCX's ports can write the memory of "
    "executors: use it only on a network without others"
)


def _rdma(home: Home) -> CheckResult:
    """Uses the settings of the instance that runs, or the default ones."""
    instance = None
    with suppress(OSError):  # another check reports that the instance file cannot be read
        instance = Instance.find_running(home)
    transport = PullProtocol.AUTO if instance is None else instance.transport
    devices = rdma_devices()
    names = ", ".join(devices) or "no network device"
    if transport is PullProtocol.TCP or not (devices or transport is PullProtocol.UCX):
        return CheckResult("RDMA", True, f"{names}: tensors of other nodes are pulled over TCP")
    if not devices:
        _, problem = _start_ucx()
        return CheckResult(
            "RDMA",
            not problem,
            f"{names}: {problem or UCX_OVER_TCP}",
            "tensors of other nodes are pulled over TCP: install cornserve[rdma]",
        )
    slab_mib = None if instance is None else instance.slab_mib
    problem = _rdma_problem((Limits().slab_mib if slab_mib is None else slab_mib) * MIB)
    return CheckResult(
        "RDMA",
        not problem,
        f"{names}: {problem or 'UCX uses them'}",
        "tensors of other nodes are pulled over TCP: to use the devices, install cornserve[rdma] and a UCX with verbs, "
        "and permit processes to lock the memory of a slab (ulimit -l)",
    )


def _start_ucx() -> tuple[bool, str]:
    """Returns whether UCX supports network devices, and the reason for which it does not start, or an empty text."""
    from cornserve.transport.pull.ucx import UcxFabric

    async def supports_rdma() -> bool:
        fabric = await UcxFabric.start()
        await fabric.close()
        return fabric.has_rdma

    try:
        return asyncio.run(supports_rdma()), ""
    except (ImportError, OSError) as error:
        return False, str(error)


def _rdma_problem(slab: int) -> str:
    """Returns the reason for which UCX cannot use network devices for a slab, or an empty text."""
    has_support, problem = _start_ucx()
    if problem or not has_support:
        return problem or "UCX has no support for them"
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit != resource.RLIM_INFINITY and limit < slab:
        return f"a process can lock {format_gib(limit)}, and a slab has {format_gib(slab)}"
    return ""


def _apps() -> CheckResult:
    protection = Protection.of_machine()
    return CheckResult(
        "apps",
        not protection.gaps,
        "; ".join(protection.gaps) or "their code reaches no files and processes of the instance and of other apps",
        "deploy only code that you trust, or use Linux 6.12 or newer with Landlock (lsm=landlock,… on the kernel's "
        "command line) on x86_64",
    )


def _gateway(home: Home, name: str, url: str) -> CheckResult:
    address = urlsplit(url)
    log = home.logs / f"{name}.log"
    connection = HTTPConnection(address.hostname or "", address.port, timeout=RESPONSE_SECONDS)
    try:
        connection.request("GET", "/livez")
        status = connection.getresponse().status
    except (OSError, HTTPException) as error:
        problem = "does not respond: its event loop is blocked" if isinstance(error, TimeoutError) else str(error)
        remedy = (
            "wait until the supervisor has restarted it (see --limit blocked-seconds of `cornserve up`), and see "
            f"{log}; if it stays blocked, use `cornserve down --keep-apps` and `cornserve up`"
        )
        return CheckResult(name, False, f"{url} {problem}", remedy, is_essential=True)
    finally:
        connection.close()
    is_alive = status == HTTPStatus.OK
    remedy = f"another program listens there: see {log}"
    return CheckResult(name, is_alive, f"{url} responds" if is_alive else f"{url} responds with {status}", remedy)


def _port(host: str, port: int) -> CheckResult:
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        return CheckResult(
            "port",
            False,
            f"{host}:{port}: {error.strerror}",
            "use another port: `cornserve up --port 8001`",
            is_essential=True,
        )
    return CheckResult("port", True, f"{host}:{port} is free")
