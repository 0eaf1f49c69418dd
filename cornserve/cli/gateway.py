"""The gateway that a command calls: at a URL, or in a Kubernetes cluster."""

from __future__ import annotations

import os
from enum import Enum
from typing import TYPE_CHECKING

import typer

from cornserve.cli.console import CliError

if TYPE_CHECKING:
    from cornserve.client import Client
    from cornserve.client.address import ClusterSelection

CONTEXT = "CORNSERVE_CONTEXT"
"""Environment variable: the context of the kubeconfig that selects the cluster."""

NAMESPACE = "CORNSERVE_NAMESPACE"
"""Environment variable: the namespace of the installation in the cluster."""


def selected_cluster(ctx: typer.Context) -> ClusterSelection | None:
    """Returns what the options `--context` and `--namespace` select, or None without either."""
    from cornserve.client.address import ClusterSelection

    options = ctx.find_root().params
    selection = ClusterSelection(options.get("context"), options.get("namespace"))
    return None if selection == ClusterSelection(None, None) else selection


def open_client(ctx: typer.Context, url: str | None, *, retries: int = 2) -> Client:
    """Returns a client of the gateway that the options or the environment select. Raises `CliError`, `ClientError`."""
    from cornserve.client import Client

    cluster = selected_cluster(ctx)
    if cluster is None or _selects_url(ctx, url):
        return Client(url, retries=retries)
    return Client.for_cluster(context=cluster.context, namespace=cluster.namespace, retries=retries)


def check_serves(client: Client, app: str) -> None:
    """Raises `CliError` if the gateway does not accept requests for an app. An API key suffices for this."""
    models = client.models()
    if app not in models:
        others = f", or give one of: {', '.join(sorted(models))}" if models else ""
        raise CliError(
            f"no app {app!r} serves at {client.address.place}: see `cornserve status`, deploy it with "
            f"`cornserve deploy`{others}"
        )


def check_runs_here(ctx: typer.Context) -> None:
    """Raises `BadParameter` if a command that runs on this machine is given a cluster."""
    for name in _typed_cluster_options(ctx):
        raise typer.BadParameter(
            f"`cornserve {ctx.invoked_subcommand}` runs on this machine: leave out --{name}", ctx=ctx
        )


def _selects_url(ctx: typer.Context, url: str | None) -> bool:
    """Returns whether the URL has precedence over the cluster: options have precedence over the environment."""
    if url is None:
        return False
    url_is_typed = _is_typed(ctx.get_parameter_source("url"))
    typed = _typed_cluster_options(ctx)
    if url_is_typed and typed:
        raise typer.BadParameter(f"--url and --{typed[0]} select different gateways: give one of them")
    if url_is_typed or typed:
        return url_is_typed
    variable = CONTEXT if os.environ.get(CONTEXT) else NAMESPACE
    raise CliError(f"CORNSERVE_URL and {variable} are both set and select different gateways: unset one of them")


def _typed_cluster_options(ctx: typer.Context) -> list[str]:
    root = ctx.find_root()
    return [name for name in ("context", "namespace") if _is_typed(root.get_parameter_source(name))]


def _is_typed(source: Enum | None) -> bool:
    return source is not None and source.name == "COMMANDLINE"
