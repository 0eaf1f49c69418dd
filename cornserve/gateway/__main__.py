"""Runs a gateway: `python -m cornserve.gateway --home DIR`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import uvloop
from starlette.types import ASGIApp

from cornserve import file_limit
from cornserve.access import ADMIN_TOKEN, API_KEYS, READ_TOKEN, Access, AccessError
from cornserve.blocking_apps import BlockingApps, restore_current_app
from cornserve.browser_origins import BrowserOriginError, BrowserOrigins
from cornserve.control.local_instance.managed_process import EXIT_NO_RESTART
from cornserve.gateway.api import create_gateway
from cornserve.gateway.backend import Backend, kubernetes_backend, local_backend
from cornserve.gateway.http.server import BACKLOG, GRACE_SECONDS, HttpServer, server_config
from cornserve.gateway.live.prometheus import PrometheusServer, PrometheusSettingError
from cornserve.gateway.media.fetch import MediaFetcher
from cornserve.gateway.media.media_loader import MediaLoader
from cornserve.gateway.memory_tuning import reduce_garbage_collection, return_large_blocks_to_the_system
from cornserve.gateway.observe import access_log
from cornserve.gpu_prices import GpuPriceError, GpuPrices
from cornserve.heartbeat import start_heartbeats
from cornserve.home import PRIVATE_UMASK, Home
from cornserve.instance_secret import InstanceSecretError
from cornserve.limits import LimitError, Limits
from cornserve.media_allowlist import MediaAllowlist, MediaAllowlistError
from cornserve.observe import logs, tracing
from cornserve.observe.decision_file import write_decisions
from cornserve.reloaded_files import ReloadedFiles
from cornserve.signals import stop_signals
from cornserve.unknown_field_policy import UnknownFields
from cornserve.wire.credentials import ConnectionCredentials, TlsFilesError

log = logging.getLogger(__name__)


SETTING_ERRORS = (
    LimitError,
    MediaAllowlistError,
    AccessError,
    BrowserOriginError,
    GpuPriceError,
    PrometheusSettingError,
)
"""Raised for command-line arguments that are not valid."""


def main() -> int:
    options = _parser().parse_args()
    os.umask(PRIVATE_UMASK)
    home = Home(options.home)
    logs.configure()
    write_decisions(home.decisions, "gateway")
    access_log.log.setLevel(logging.INFO if options.access_log else logging.WARNING)
    try:
        limits = Limits.parse(options.limit)
        sources = MediaAllowlist.parse(options.media_from)
        secrets = (options.api_keys, options.admin_token, options.read_token)
        files = [file for file in secrets if file is not None]
        access = ReloadedFiles(partial(_load_access, options), files, AccessError, "secrets")
        origins = BrowserOrigins.parse(options.allow_origin)
        origins.check_access(access.current())
        prices = GpuPrices.parse(options.gpu_price)
        prometheus = options.prometheus and PrometheusServer.parse(options.prometheus, options.prometheus_label)
        credentials = ConnectionCredentials.load(options.secret or home.secret, options.tls)
        listeners = _listen(options.host, options.port, options.own_address)
    except (*SETTING_ERRORS, InstanceSecretError, TlsFilesError) as error:
        print(error, file=sys.stderr)
        return EXIT_NO_RESTART
    except OSError as error:
        print(f"cannot listen on {options.host}:{options.port}: {error.strerror}", file=sys.stderr)
        return EXIT_NO_RESTART
    file_limit.raise_file_limit()
    return_large_blocks_to_the_system()
    tracing.setup("cornserve-gateway")
    blocking_apps = BlockingApps(home.blocking_apps)
    if options.kubernetes is not None:
        home.create_private()
        restore_current_app(home.current_app, blocking_apps)
    backend = local_backend(home) if options.kubernetes is None else kubernetes_backend(options.kubernetes)
    try:
        create = partial(
            create_gateway,
            credentials=credentials,
            limits=limits,
            read_access=access.current,
            blocking_apps=blocking_apps,
            media=MediaLoader(MediaFetcher(limits, sources)),
            host=options.host,
            origins=origins,
            gateways=options.gateway,
            controller_metrics=options.controller_metrics,
            ignores_unknown_fields=options.unknown_fields == UnknownFields.WARN,
            serves_console=not options.no_console,
            prices=prices,
            prometheus=prometheus,
        )
        uvloop.run(serve(backend, listeners, limits, create, options.drain_seconds))
    except BaseException:
        log.exception("the gateway failed")
        os._exit(1)  # Threads of libraries would keep the process running.
    tracing.shutdown()
    return 0


def _load_access(options: argparse.Namespace) -> Access:
    access = Access.load(options.api_keys, options.admin_token, read_token=options.read_token)
    access.check_exposure(options.host)
    return access


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cornserve-gateway", description=__doc__)
    parser.add_argument("--home", type=Path, default=Home.default().path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--kubernetes", metavar="INSTANCE", help="run in a pod of this installation")
    parser.add_argument("--drain-seconds", type=float, default=GRACE_SECONDS, help="time of requests to end at a stop")
    parser.add_argument("--secret", type=Path, metavar="FILE", help="the instance's secret (default: in the home)")
    parser.add_argument("--tls", type=Path, metavar="DIR", help="use TLS for connections to executors")
    parser.add_argument("--own-address", metavar="HOST:PORT", help="also listen here, and share the port with others")
    parser.add_argument("--gateway", action="append", default=[], metavar="HOST:PORT", help="own address of a gateway")
    parser.add_argument("--controller-metrics", metavar="HOST:PORT", help="the address of the controller's metrics")
    parser.add_argument("--access-log", action="store_true", help="log each request to an app")
    parser.add_argument("--api-keys", type=Path, metavar="FILE", help=f"one key per line (default: {API_KEYS})")
    parser.add_argument(
        "--admin-token", type=Path, metavar="FILE", help=f"a file with one line (default: {ADMIN_TOKEN})"
    )
    parser.add_argument("--read-token", type=Path, metavar="FILE", help=f"a file with one line (default: {READ_TOKEN})")
    parser.add_argument("--no-console", action="store_true", help="do not serve the web console")
    parser.add_argument("--prometheus", metavar="URL", help="the server that scrapes the metrics")
    parser.add_argument(
        "--prometheus-label", action="append", default=[], metavar="NAME=VALUE", help="a label of all metrics"
    )
    parser.add_argument("--gpu-price", action="append", default=[], metavar="[TYPE=]DOLLARS", help="per hour")
    parser.add_argument("--limit", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--allow-origin", action="append", default=[], metavar="ORIGIN")
    parser.add_argument("--unknown-fields", type=UnknownFields, default=UnknownFields.REFUSE, choices=UnknownFields)
    parser.add_argument("--media-from", action="append", default=[], metavar="SOURCE")
    return parser


async def serve(
    opening: AbstractAsyncContextManager[Backend],
    listeners: list[socket.socket],
    limits: Limits,
    create: Callable[[Backend], ASGIApp],
    drain_seconds: float,
) -> None:
    """Serves until a stop signal, then finishes the requests in flight."""
    async with opening as backend:
        api = create(backend)
        server = HttpServer(server_config(api, limits, drain_seconds), drain_seconds)
        start_heartbeats(lambda: server.is_ready)
        reduce_garbage_collection()
        serving = asyncio.create_task(server.serve(sockets=listeners))
        stopping = asyncio.create_task(stop_signals().wait())
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        server.begin_shutdown()
        await serving
        stopping.cancel()


def _listen(host: str, port: int, own_address: str | None) -> list[socket.socket]:
    """Listens on the port, which gateways with own addresses share, and on the own address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    shares_port = own_address is not None
    listeners = [socket.create_server((host, port), family=family, backlog=BACKLOG, reuse_port=shares_port)]
    if own_address is not None:
        # The supervisor has reserved the own address.
        own_host, _, own_port = own_address.rpartition(":")
        listeners.append(socket.create_server((own_host, int(own_port)), backlog=BACKLOG, reuse_port=True))
    return listeners


if __name__ == "__main__":
    sys.exit(main())
