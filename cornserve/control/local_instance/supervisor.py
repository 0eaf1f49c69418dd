"""Runs a local instance: its gateways and its controller as child processes that are restarted when they die.

Executors outlive the controller so that the next controller can adopt them. The supervisor therefore stops them when
the instance stops. Apps stay in the store: the next instance serves them again.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field

from cornserve.blocking_apps import BlockingApps
from cornserve.concurrency import run_unless
from cornserve.control.local_instance.addresses import InstanceAddresses
from cornserve.control.local_instance.apps_file import keep_lost_apps
from cornserve.control.local_instance.cleanup import stop_all_executors
from cornserve.control.local_instance.leftovers import end_leftover_processes
from cornserve.control.local_instance.managed_process import ManagedProcess, ManagedProcessError
from cornserve.control.local_instance.options import InstanceOptions, InstanceStartError
from cornserve.control.local_instance.process_specs import process_specs
from cornserve.control.store.base import APPS, StoreError
from cornserve.control.store.sqlite import SqliteStore
from cornserve.home import PRIVATE_UMASK, Home
from cornserve.instance import HomeInUseError, Instance, lock_home
from cornserve.observe.log_file import rotate

READY_SECONDS = 60.0

ReportCallback = Callable[[str], None]


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
        addresses = stack.enter_context(InstanceAddresses.chosen(options))
        instance = Instance.of_current_process(
            addresses.url,
            addresses.gateway_urls,
            list(map(str, options.slot_types)),
            gpus=options.gpus,
            cpu_slots=options.cpu_slots,
            slab_mib=options.limits.slab_mib,
            transport=options.transport,
        )
        processes = [
            ManagedProcess(
                spec,
                inherited=(lock,),
                force_stop=signals.force,
                report=report,
                on_blocked=BlockingApps(home.blocking_apps).add,
            )
            for spec in process_specs(options, addresses)
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
            listing = await store.list(APPS)
            for record in listing.unreadable:
                report(f"{record.reason}; the other apps are served")
        finally:
            await store.close()
    except StoreError as error:
        raise InstanceStartError(str(error)) from error
    if not (listing.records or listing.unreadable):
        with _explained_file_errors(home):
            lost = keep_lost_apps(home.apps_file)
        if lost:
            report(lost)


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


def check_not_running(home: Home) -> None:
    """Raises `InstanceStartError` if an instance runs for the home, or if its file cannot be read."""
    repair = f"run `cornserve doctor --repair --home {home.path}`"
    try:
        if home.instance.is_dir():
            raise InstanceStartError(f"{home.instance} is a directory: {repair}")
        running = Instance.find_running(home)
    except OSError as error:
        raise InstanceStartError(
            f"cannot read {home.instance}: {error.strerror}: make it readable, or run the command as its user"
        ) from error
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
                lock = held.enter_context(lock_home(home))
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
            async with asyncio.timeout(READY_SECONDS):
                await process.ready.wait()
        except TimeoutError:
            problem = f"the {process.spec.name} was not ready after {READY_SECONDS:g} seconds"
            raise InstanceStartError(f"{problem}: see {process.spec.log}") from None
