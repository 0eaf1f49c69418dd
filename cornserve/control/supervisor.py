"""Runs a local instance: gateway and controller as processes of their own, restarted when they die.

The instance ends as a whole. Executors outlive the controller, so that a new one can adopt them; therefore whoever
ends the instance sweeps them away. Apps stay in the store, and the next instance serves them again.
"""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2 as httpx

from cornserve.access import ADMIN_TOKEN, API_KEYS, Access, AccessError
from cornserve.concurrency import run_unless
from cornserve.control.cleanup import stop_all_executors
from cornserve.control.managed_process import ManagedProcess, ManagedProcessError, ProcessSpec
from cornserve.home import HOME_VARIABLE, Home
from cornserve.instance import HomeInUseError, Instance, lock_home
from cornserve.limits import Limits
from cornserve.media_allowlist import MediaAllowlist
from cornserve.observe.log_file import set_aside
from cornserve.observe.log_format import VARIABLE as LOG_FORMAT_VARIABLE
from cornserve.observe.log_format import LogFormat

READY_SECONDS = 60.0

PATIENCE_SECONDS = 5.0
"""How long what remains of an instance that was killed may take to end."""

NO_SECRETS = {API_KEYS: "", ADMIN_TOKEN: ""}
"""The environment of who needs none: executors inherit the controller's."""

Report = Callable[[str], None]


class InstanceStartError(Exception):
    """The instance cannot run; the message is one for people."""


@dataclass(frozen=True, slots=True)
class InstanceOptions:
    home: Home
    host: str = "127.0.0.1"
    port: int = 8000
    """0: any free one."""
    gpus: int | None = None
    """By default, all."""
    cpu_slots: int | None = None
    """How many executors may run without GPUs; by default, the launcher's choice."""
    log_format: LogFormat = LogFormat.TEXT
    access_log: bool = False
    """Whether the gateway logs every request."""
    api_keys: Path | None = None
    admin_token: Path | None = None
    limits: Limits = field(default_factory=Limits)
    media_allowlist: MediaAllowlist = field(default_factory=MediaAllowlist)

    @property
    def access(self) -> Access:
        """Raises `InstanceStartError` if there is none with which it may listen there."""
        try:
            access = Access.load(self.api_keys, self.admin_token)
            access.check_exposure(self.host)
        except AccessError as error:
            raise InstanceStartError(str(error)) from error
        return access

    @property
    def secrets(self) -> list[str]:
        """The arguments that name the files."""
        files = [("--api-keys", self.api_keys), ("--admin-token", self.admin_token)]
        return [part for flag, file in files if file is not None for part in (flag, str(file.absolute()))]


@dataclass(frozen=True, slots=True)
class StopSignals:
    """What the signals ask for: the first to stop, the second to do so without grace."""

    stop: asyncio.Event
    hurry: asyncio.Event

    def signal(self) -> None:
        (self.hurry if self.stop.is_set() else self.stop).set()


async def supervise(options: InstanceOptions, *, on_ready: Callable[[Instance], None], report: Report) -> None:
    """Runs an instance until SIGINT, SIGTERM or SIGHUP.

    Raises:
        InstanceStartError: it cannot run here; nothing is left behind.
    """
    home = options.home
    _ = options.access
    with _alone_in(home) as lock, _signals() as wishes:
        port = _free_port(options.host, options.port)
        instance = Instance.of_current_process(_url(options.host, port))
        children = [
            ManagedProcess(program, inherited=(lock,), hurry=wishes.hurry, report=report)
            for program in _programs(options, port)
        ]
        for child in children:
            set_aside(child.program.log)
        instance.write(home)
        try:
            await _serve(instance, children, wishes, on_ready, report)
        finally:
            if not await run_unless(wishes.hurry, stop_all_executors(home, report)):
                await stop_all_executors(home, report, drain_seconds=0)
            home.instance.unlink(missing_ok=True)


async def _serve(
    instance: Instance,
    children: list[ManagedProcess],
    wishes: StopSignals,
    on_ready: Callable[[Instance], None],
    report: Report,
) -> None:
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(child.run()) for child in children]
            if await run_unless(wishes.stop, _until_ready(instance.url)):
                on_ready(instance)
                await wishes.stop.wait()
            report("stopping")
            for task in running:
                task.cancel()
    except ExceptionGroup as errors:
        expected = errors.subgroup((ManagedProcessError, InstanceStartError))
        if expected is None:
            raise
        raise InstanceStartError(str(expected.exceptions[0])) from errors


def _programs(options: InstanceOptions, port: int) -> list[ProcessSpec]:
    home = options.home
    python = [sys.executable, "-m"]
    limits = [("--gpus", options.gpus), ("--cpu-slots", options.cpu_slots)]
    gateway = ["cornserve.gateway", "--home", str(home.path), "--host", options.host, "--port", str(port)]
    metrics_port = _free_port("127.0.0.1", 0)
    gateway += ["--controller-metrics", f"127.0.0.1:{metrics_port}", *options.secrets, *options.limits.cli_arguments]
    gateway += options.media_allowlist.cli_arguments
    controller = ["cornserve.control", "--home", str(home.path), "--metrics-port", str(metrics_port)]
    controller += options.limits.cli_arguments
    controller += [part for flag, limit in limits if limit is not None for part in (flag, str(limit))]
    if options.access_log:
        gateway.append("--access-log")
    # Apps' source may look for models in the home.
    environment = {HOME_VARIABLE: str(home.path), LOG_FORMAT_VARIABLE: options.log_format}
    return [
        ProcessSpec("gateway", [*python, *gateway], home.logs / "gateway.log", environment),
        ProcessSpec("controller", [*python, *controller], home.logs / "controller.log", environment | NO_SECRETS),
    ]


def check_nothing_runs(home: Home) -> None:
    """Raises `InstanceStartError` if an instance runs for the home."""
    running = Instance.find_running(home)
    if running is not None:
        raise InstanceStartError(
            f"Cornserve runs already for {home.path}, at {running.url} (process {running.pid}): "
            "stop it with `cornserve down`, or start another with its own --home and --port"
        )


@contextmanager
def _alone_in(home: Home) -> Iterator[int]:
    check_nothing_runs(home)
    with ExitStack() as held:
        try:
            lock = held.enter_context(lock_home(home, timeout=PATIENCE_SECONDS))
        except HomeInUseError as error:
            raise InstanceStartError(f"{error}: `cornserve down --keep-apps` ends what is left of it") from error
        except OSError as error:
            raise InstanceStartError(
                f"{home.path} cannot be used: {error.strerror}; choose another with --home"
            ) from error
        yield lock


@contextmanager
def _signals() -> Iterator[StopSignals]:
    wishes = StopSignals(asyncio.Event(), asyncio.Event())
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, wishes.signal)
    yield wishes
    for number in numbers:
        loop.remove_signal_handler(number)


async def _until_ready(url: str) -> None:
    try:
        async with asyncio.timeout(READY_SECONDS), httpx.AsyncClient(trust_env=False, timeout=1) as http:
            while True:
                try:
                    if (await http.get(f"{url}/readyz")).is_success:
                        return
                except httpx.TransportError:
                    pass
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise InstanceStartError(f"the gateway was not ready after {READY_SECONDS:g} seconds") from None


def _free_port(host: str, port: int) -> int:
    """Looks before anything is started, so that the commonest mistake is answered at once."""
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
            free: int = listener.getsockname()[1]
            return free
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise InstanceStartError(
                f"port {port} of {host} is taken: choose another with --port or CORNSERVE_PORT"
            ) from error
        raise InstanceStartError(f"cannot listen on {host}, port {port}: {error.strerror}") from error


def _url(host: str, port: int) -> str:
    """Where clients on this machine reach it."""
    reachable = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"
