"""Runs a local instance: the gateway and the controller as child processes that are restarted when they die.

Executors outlive the controller so that the next controller can adopt them. The supervisor therefore stops them when
the instance stops. Apps stay in the store: the next instance serves them again.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cornserve.access import ADMIN_TOKEN, API_KEYS, Access, AccessError
from cornserve.concurrency import run_unless
from cornserve.control.cleanup import stop_all_executors
from cornserve.control.leftovers import end_leftover_processes
from cornserve.control.managed_process import ManagedProcess, ManagedProcessError, ProcessSpec
from cornserve.control.store.base import APPS, StoreError
from cornserve.control.store.sqlite import SqliteStore
from cornserve.home import HOME_VARIABLE, PRIVATE_UMASK, Home
from cornserve.instance import HomeInUseError, Instance, lock_home
from cornserve.instance_secret import InstanceSecret, InstanceSecretError
from cornserve.limits import Limits
from cornserve.media_allowlist import MediaAllowlist
from cornserve.observe.log_file import rotate
from cornserve.observe.log_format import LOG_FORMAT_VARIABLE, LogFormat
from cornserve.wire.credentials import TlsContexts, TlsFilesError

READY_SECONDS = 60.0

LOCK_SECONDS = 5.0
"""Timeout for another command to release the home."""

NO_SECRETS = {API_KEYS: "", ADMIN_TOKEN: ""}
"""Removes the secrets from the controller's environment, which executors inherit."""

ReportCallback = Callable[[str], None]


class InstanceStartError(Exception):
    """The instance cannot run. The message is for users."""


@dataclass(frozen=True, slots=True)
class InstanceOptions:
    home: Home
    host: str = "127.0.0.1"
    port: int = 8000
    """0 selects a free port."""
    gpus: int | None = None
    """Number of GPUs; None for all."""
    cpu_slots: int | None = None
    """Number of executors that may run without GPUs; None for the launcher's default."""
    log_format: LogFormat = LogFormat.TEXT
    access_log: bool = False
    """Whether the gateway logs every request."""
    api_keys: Path | None = None
    admin_token: Path | None = None
    internal_tls: Path | None = None
    """The directory with the files for TLS between the instance's processes."""
    limits: Limits = field(default_factory=Limits)
    media_allowlist: MediaAllowlist = field(default_factory=MediaAllowlist)

    def read_access(self) -> Access:
        """Reads the secrets. Raises `InstanceStartError` if they are invalid or do not suffice for the host."""
        try:
            access = Access.load(self.api_keys, self.admin_token)
            access.check_exposure(self.host)
        except AccessError as error:
            raise InstanceStartError(str(error)) from error
        return access

    def prepare_home(self) -> None:
        """Makes the home private, and creates the instance's secret. Raises `InstanceStartError` if it cannot."""
        try:
            self.home.create_private()
            InstanceSecret.load_or_create(self.home.secret)
            if self.internal_tls is not None:
                TlsContexts.load(self.internal_tls)
        except (InstanceSecretError, TlsFilesError) as error:
            raise InstanceStartError(str(error)) from error
        except OSError as error:
            raise InstanceStartError(
                f"cannot use {self.home.path}: {error.strerror}: choose another directory with --home"
            ) from error

    @property
    def secret_arguments(self) -> list[str]:
        """The command line arguments that name the files with the secrets."""
        files = [("--api-keys", self.api_keys), ("--admin-token", self.admin_token)]
        return [part for flag, file in files if file is not None for part in (flag, str(file.absolute()))]


@dataclass(frozen=True, slots=True)
class StopSignals:
    """The first signal sets `stop`. The second sets `force`: processes are killed without a grace period."""

    stop: asyncio.Event = field(default_factory=asyncio.Event)
    force: asyncio.Event = field(default_factory=asyncio.Event)

    def on_signal(self) -> None:
        (self.force if self.stop.is_set() else self.stop).set()


async def supervise(options: InstanceOptions, *, on_ready: Callable[[Instance], None], report: ReportCallback) -> None:
    """Runs an instance until SIGINT, SIGTERM or SIGHUP.

    Raises:
        InstanceStartError: it cannot run. All of its processes have exited.
    """
    home = options.home
    options.read_access()
    os.umask(PRIVATE_UMASK)
    async with AsyncExitStack() as stack:
        lock = stack.enter_context(_locked(home, report))
        signals = stack.enter_context(_stop_signals())
        options.prepare_home()
        await _prepare_store(home, report)
        port = _free_port(options.host, options.port)
        instance = Instance.of_current_process(_url(options.host, port))
        processes = [
            ManagedProcess(spec, inherited=(lock,), force_stop=signals.force, report=report)
            for spec in _process_specs(options, port)
        ]
        for process in processes:
            rotate(process.spec.log)
        with _explained_file_errors(home):
            await stack.enter_async_context(instance.written(home))
        try:
            await _run_processes(instance, processes, signals, on_ready, report)
        finally:
            if not await run_unless(signals.force, stop_all_executors(home, report)):
                await stop_all_executors(home, report, drain_seconds=0)


async def _prepare_store(home: Home, report: ReportCallback) -> None:
    """Creates a missing store. Raises `InstanceStartError` if the store cannot be used."""
    try:
        store = await SqliteStore.open(home.store)
        try:
            for record in (await store.list(APPS)).unreadable:
                report(f"{record.reason}; the other apps are served")
        finally:
            await store.close()
    except StoreError as error:
        raise InstanceStartError(str(error)) from error


async def _run_processes(
    instance: Instance,
    processes: list[ManagedProcess],
    signals: StopSignals,
    on_ready: Callable[[Instance], None],
    report: ReportCallback,
) -> None:
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(process.run()) for process in processes]
            if await run_unless(signals.stop, _wait_until_ready(processes)):
                on_ready(instance)
                await signals.stop.wait()
            report("stopping")
            for task in running:
                task.cancel()
    except ExceptionGroup as errors:
        expected = errors.subgroup((ManagedProcessError, InstanceStartError))
        if expected is None:
            raise
        raise InstanceStartError(str(expected.exceptions[0])) from errors


def _process_specs(options: InstanceOptions, port: int) -> list[ProcessSpec]:
    home = options.home
    python = [sys.executable, "-m"]
    slots = [("--gpus", options.gpus), ("--cpu-slots", options.cpu_slots)]
    gateway = ["cornserve.gateway", "--home", str(home.path), "--host", options.host, "--port", str(port)]
    metrics_port = _free_port("127.0.0.1", 0)
    gateway += ["--controller-metrics", f"127.0.0.1:{metrics_port}", *options.secret_arguments]
    tls = [] if options.internal_tls is None else ["--tls", str(options.internal_tls.absolute())]
    gateway += [*tls, *options.limits.cli_arguments, *options.media_allowlist.cli_arguments]
    controller = ["cornserve.control", "--home", str(home.path), "--metrics-port", str(metrics_port)]
    controller += [*tls, *options.limits.cli_arguments]
    controller += [part for flag, count in slots if count is not None for part in (flag, str(count))]
    if options.access_log:
        gateway.append("--access-log")
    # The source of an app may look for models in the home.
    environment = {HOME_VARIABLE: str(home.path), LOG_FORMAT_VARIABLE: options.log_format}
    return [
        ProcessSpec(
            "gateway",
            [*python, *gateway],
            home.logs / "gateway.log",
            environment,
            blocked_seconds=options.limits.blocked_seconds,
        ),
        ProcessSpec(
            "controller",
            [*python, *controller],
            home.logs / "controller.log",
            environment | NO_SECRETS,
            blocked_seconds=options.limits.blocked_seconds,
        ),
    ]


def check_not_running(home: Home) -> None:
    """Raises `InstanceStartError` if an instance runs for the home."""
    running = Instance.find_running(home)
    if running is not None:
        raise InstanceStartError(
            f"Cornserve already runs for {home.path}, at {running.url} (process {running.pid}): "
            "stop it with `cornserve down`, or start another instance with its own --home and --port"
        )


@contextmanager
def _locked(home: Home, report: ReportCallback) -> Iterator[int]:
    """Locks the home. Ends the processes that a killed instance has left behind."""
    check_not_running(home)
    end_leftover_processes(home, report)
    with ExitStack() as held:
        try:
            with _explained_file_errors(home):
                lock = held.enter_context(lock_home(home, timeout=LOCK_SECONDS))
        except HomeInUseError as error:
            raise InstanceStartError(
                f"{error}: wait until it has ended, or run `cornserve down --keep-apps`"
            ) from error
        yield lock


@contextmanager
def _explained_file_errors(home: Home) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno == errno.ENOSPC
        remedy = "free space on its disk" if full else "choose another directory with --home"
        raise InstanceStartError(f"cannot use {home.path}: {error.strerror}: {remedy}") from error


@contextmanager
def _stop_signals() -> Iterator[StopSignals]:
    signals = StopSignals()
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, signals.on_signal)
    yield signals
    for number in numbers:
        loop.remove_signal_handler(number)


async def _wait_until_ready(processes: list[ManagedProcess]) -> None:
    for process in processes:
        try:
            await asyncio.wait_for(process.ready.wait(), READY_SECONDS)
        except TimeoutError:
            problem = f"the {process.spec.name} was not ready after {READY_SECONDS:g} seconds"
            raise InstanceStartError(f"{problem}: see {process.spec.log}") from None


def _free_port(host: str, port: int) -> int:
    """Returns a free port. Checking it first reports a port in use before any process starts."""
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
            free: int = listener.getsockname()[1]
            return free
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise InstanceStartError(
                f"port {port} of {host} is in use: choose another with --port or CORNSERVE_PORT"
            ) from error
        raise InstanceStartError(
            f"cannot listen on {host}, port {port}: {error.strerror}: choose others with --host and --port"
        ) from error


def _url(host: str, port: int) -> str:
    """Returns the URL for clients on this machine."""
    reachable = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"
