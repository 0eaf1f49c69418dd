"""`cornserve up`."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cornserve.access import ADMIN_TOKEN
from cornserve.browser_origins import BrowserOriginError, BrowserOrigins
from cornserve.cli.console import CliError, print_json, print_warning, stderr, stdout
from cornserve.cli.options import HomePath, Json, home_directory
from cornserve.gpu_prices import GpuPriceError, GpuPrices
from cornserve.limits import LimitError, Limits
from cornserve.media_allowlist import MediaAllowlist, MediaAllowlistError
from cornserve.observe.log_format import LogFormat
from cornserve.pull_protocol import PullProtocol
from cornserve.unknown_field_policy import UnknownFields

if TYPE_CHECKING:
    from cornserve.access import Access
    from cornserve.control.launcher.local.slot_types import SlotType
    from cornserve.control.local_instance.options import InstanceOptions
    from cornserve.home import Home
    from cornserve.instance import Instance

NETWORK, ACCESS, SLOTS, REQUESTS, OBSERVATION = "Network", "Access", "GPUs and slots", "Requests", "Observation"
"""Groups of options in the help."""


def up(
    home: HomePath = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.", rich_help_panel=NETWORK)] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            "--port",
            envvar="CORNSERVE_PORT",
            min=0,
            max=65535,
            help="Port to listen on. 0: any free port.",
            rich_help_panel=NETWORK,
        ),
    ] = 8000,
    gateways: Annotated[
        int,
        typer.Option(
            "--gateways",
            min=1,
            max=64,
            help="Number of gateway processes that share the port.",
            rich_help_panel=NETWORK,
        ),
    ] = 1,
    gpus: Annotated[
        int | None, typer.Option("--gpus", min=0, help="Number of GPUs to use. By default, all.", rich_help_panel=SLOTS)
    ] = None,
    cpu_slots: Annotated[
        int | None,
        typer.Option(
            "--cpu-slots", min=1, max=4096, help="Number of executors that can run on the CPU.", rich_help_panel=SLOTS
        ),
    ] = None,
    slots: Annotated[
        list[str] | None,
        typer.Option(
            "--slots",
            metavar="TYPE=COUNT",
            help="Slots that replace GPUs, each bound to its own cores: small=2, big=1x2cores, or with dollars per "
            "hour big=1x2cores@0.5. Can be repeated.",
            rich_help_panel=SLOTS,
        ),
    ] = None,
    log_format: Annotated[
        LogFormat,
        typer.Option(
            "--log-format",
            envvar="CORNSERVE_LOG_FORMAT",
            help="Log format of all processes.",
            rich_help_panel=OBSERVATION,
        ),
    ] = LogFormat.TEXT,
    access_log: Annotated[
        bool,
        typer.Option(
            "--access-log",
            envvar="CORNSERVE_ACCESS_LOG",
            help="Log each request to an app.",
            rich_help_panel=OBSERVATION,
        ),
    ] = False,
    api_keys: Annotated[
        Path | None,
        typer.Option("--api-keys", help="File with the API keys for /v1, one per line.", rich_help_panel=ACCESS),
    ] = None,
    admin_token: Annotated[
        Path | None,
        typer.Option(
            "--admin-token", help="File with the token for /admin/v1 in its only line.", rich_help_panel=ACCESS
        ),
    ] = None,
    read_token: Annotated[
        Path | None,
        typer.Option(
            "--read-token",
            help="File with a token in its only line that reads what the admin token reads.",
            rich_help_panel=ACCESS,
        ),
    ] = None,
    internal_tls: Annotated[
        Path | None,
        typer.Option(
            "--internal-tls",
            metavar="DIR",
            help="Use TLS between the processes of the instance, with tls.crt, tls.key and ca.crt in this directory.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit", metavar="NAME=VALUE", help="Change a limit. Can be repeated.", rich_help_panel=REQUESTS
        ),
    ] = None,
    media_from: Annotated[
        list[str] | None,
        typer.Option(
            "--media-from",
            metavar="SOURCE",
            help="Source from which images can be fetched: public, none, a host or a network. Can be repeated. "
            "By default, public.",
            rich_help_panel=REQUESTS,
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-origin",
            metavar="ORIGIN",
            help="Web pages that may call the gateway from a browser (CORS): https://example.com, or * with API keys. "
            "Can be repeated.",
            rich_help_panel=ACCESS,
        ),
    ] = None,
    unknown_fields: Annotated[
        UnknownFields,
        typer.Option(
            help="Requests to /v1 with unknown fields: refuse them, or serve them and name the fields in the header "
            "x-cornserve-unknown-fields (warn).",
            rich_help_panel=REQUESTS,
        ),
    ] = UnknownFields.REFUSE,
    console: Annotated[
        bool,
        typer.Option("--console/--no-console", help="Serve the web console at /console.", rich_help_panel=OBSERVATION),
    ] = True,
    gpu_price: Annotated[
        list[str] | None,
        typer.Option(
            "--gpu-price",
            metavar="[TYPE=]DOLLARS",
            help="Dollars per hour of a GPU or slot, for costs of apps: 2.5, or L4=0.8 for a type. Can be repeated.",
            rich_help_panel=SLOTS,
        ),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Prometheus server that scrapes the instance: the console then shows more than an hour.",
            rich_help_panel=OBSERVATION,
        ),
    ] = None,
    transport: Annotated[
        PullProtocol,
        typer.Option(
            help="Protocol for tensors from other nodes. auto: the best one for the network devices of both nodes. "
            "TCP replaces one that does not work. ucx without a device for RDMA is for tests: other processes on its "
            "network can write the memory of executors.",
            rich_help_panel=NETWORK,
        ),
    ] = PullProtocol.AUTO,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Run in the background, and return when the gateway is ready.")
    ] = False,
    json: Json = False,
) -> None:
    """Run Cornserve on this machine.

    The command runs in the foreground. Ctrl-C stops all processes. The next `cornserve up` starts the apps again.
    """
    from cornserve.control.local_instance.options import InstanceOptions, InstanceStartError

    if internal_tls is not None and transport is PullProtocol.UCX:
        raise CliError("UCX does not encrypt: with --internal-tls, leave out --transport ucx")
    options = InstanceOptions(
        home_directory(home),
        host,
        port,
        gateways,
        gpus,
        cpu_slots,
        _slot_types(slots or [], gpus, cpu_slots),
        log_format,
        access_log,
        api_keys,
        admin_token,
        read_token,
        internal_tls,
        _limits(limit or []),
        _media_allowlist(media_from or []),
        _origins(allow_origin or []),
        unknown_fields,
        console,
        _gpu_prices(gpu_price or []),
        _prometheus(prometheus),
        transport,
    )
    _check_prices(options)
    _warn_of_missing_gpus(gpus)
    try:
        if detach:
            _show_ready(_start(options), options, json, "Next:", "Stop it with `cornserve down`.")
        else:
            _run(options, json)
    except InstanceStartError as error:
        raise CliError(str(error)) from error


def _warn_of_missing_gpus(wanted: int | None) -> None:
    if not wanted:
        return
    from cornserve.control.launcher.local.device_slots import visible_gpus

    found = len(visible_gpus())
    if found < wanted:
        executors = f"use {found}" if found else "run on the CPU"
        plural = "" if found == 1 else "s"
        print_warning(f"--gpus {wanted}: this machine has {found or 'no'} GPU{plural}, so executors {executors}")


def _start(options: InstanceOptions) -> Instance:
    from cornserve.cli.detached import start_detached

    with stderr().status("Starting Cornserve"):
        return start_detached(options)


def _run(options: InstanceOptions, json: bool) -> None:
    import asyncio

    from cornserve.control.local_instance.supervisor import supervise

    ending = "Stop it with Ctrl-C. The next `cornserve up` starts the apps again."
    ready = partial(_show_ready, options=options, json=json, heading="Next, in another terminal:", ending=ending)
    asyncio.run(supervise(options, on_ready=ready, report=_reporter(options.log_format)))


def _reporter(log_format: LogFormat) -> Callable[[str], None]:
    from cornserve.observe import logs

    if log_format is not LogFormat.JSON:
        return _report
    logs.configure(log_format)
    return logging.getLogger("cornserve.supervisor").info


def _report(message: str) -> None:
    with suppress(OSError):  # The terminal may be closed, but the shutdown must continue.
        stderr().print(message, markup=False, style="dim")


def _show_ready(instance: Instance, options: InstanceOptions, json: bool, heading: str, ending: str) -> None:
    """Prints the URL of the instance, and the next commands below `heading`."""
    from rich.markup import escape

    home = options.home
    if json:
        print_json(instance.model_dump() | {"home": str(home.path)}, lines=True)
        return
    print_line = stdout().print
    gateways = f" ({options.gateways} gateways)" if options.gateways > 1 else ""
    print_line(
        f"[bold green]Cornserve[/bold green] listens on [bold]{instance.url}[/bold]{gateways}   "
        f"[dim]{escape(str(home.path))}[/dim]"
    )
    apps = _apps(instance, options.read_access())
    if apps:
        print_line(f"Restarting apps: {', '.join(apps)}")
    if options.read_access().admin_token and not os.environ.get(ADMIN_TOKEN):
        print_line(f"Set the admin token for other commands: [cyan]{ADMIN_TOKEN}[/cyan]")
    if not _is_found_by_default(instance, home):
        print_line(f"Set the URL for other commands: [cyan]export CORNSERVE_URL={instance.url}[/cyan]")
    print_line(f"\n{heading}")
    print_line("  [cyan]cornserve deploy[/cyan] MODEL-DIRECTORY | FILE.py   serve a model or an app")
    print_line("  [cyan]cornserve status[/cyan]                             show all apps")
    if options.console:
        print_line(f"  [cyan]{instance.url}/console[/cyan]   the web console, in a browser")
    print_line(f"\n{ending}")


def _limits(settings: list[str]) -> Limits:
    try:
        return Limits.parse(settings)
    except LimitError as error:
        raise typer.BadParameter(str(error), param_hint="--limit") from error


def _slot_types(settings: list[str], gpus: int | None, cpu_slots: int | None) -> tuple[SlotType, ...]:
    from cornserve.control.launcher.local.slot_types import SlotTypeError, parse_slot_types

    if settings and (gpus or cpu_slots is not None):
        raise typer.BadParameter("replaces --gpus and --cpu-slots: remove them", param_hint="--slots")
    try:
        return parse_slot_types(settings)
    except SlotTypeError as error:
        raise typer.BadParameter(str(error), param_hint="--slots") from error


def _gpu_prices(settings: list[str]) -> GpuPrices:
    try:
        return GpuPrices.parse(settings)
    except GpuPriceError as error:
        raise typer.BadParameter(str(error), param_hint="--gpu-price") from error


def _check_prices(options: InstanceOptions) -> None:
    try:
        _ = options.known_prices
    except GpuPriceError as error:
        raise typer.BadParameter(str(error), param_hint="--gpu-price") from error


def _prometheus(url: str | None) -> str | None:
    """Returns a valid address."""
    if url is None:
        return None
    from cornserve.gateway.live.prometheus import PrometheusServer, PrometheusSettingError

    try:
        return PrometheusServer.parse(url).url
    except PrometheusSettingError as error:
        raise typer.BadParameter(str(error), param_hint="--prometheus") from error


def _origins(settings: list[str]) -> BrowserOrigins:
    try:
        return BrowserOrigins.parse(settings)
    except BrowserOriginError as error:
        raise typer.BadParameter(str(error), param_hint="--allow-origin") from error


def _media_allowlist(settings: list[str]) -> MediaAllowlist:
    try:
        return MediaAllowlist.parse(settings)
    except MediaAllowlistError as error:
        raise typer.BadParameter(str(error), param_hint="--media-from") from error


def _apps(instance: Instance, access: Access) -> list[str]:
    """Returns the names of the apps, or an empty list if a client in this environment cannot read them."""
    from cornserve.client import Client, ClientError

    try:
        with Client(instance.url, admin_token=access.admin_token) as client:
            return [app.name for app in client.apps()]
    except ClientError:  # The instance runs nevertheless.
        return []


def _is_found_by_default(instance: Instance, home: Home) -> bool:
    from cornserve.client.address import default_url
    from cornserve.home import Home as HomeClass

    return home == HomeClass.default() or instance.url == default_url()
