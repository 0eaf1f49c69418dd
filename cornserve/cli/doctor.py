"""`cornserve doctor`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from cornserve.cli.check_result import CheckResult
from cornserve.cli.console import CliError, print_json, stderr, stdout
from cornserve.cli.gateway import selected_cluster
from cornserve.cli.options import HomePath, Json, home_directory

if TYPE_CHECKING:
    from cornserve.home import Home


def doctor(
    ctx: typer.Context,
    home: HomePath = None,
    host: Annotated[str, typer.Option("--host", help="Address on which `cornserve up` would listen.")] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            "--port", envvar="CORNSERVE_PORT", min=1, max=65535, help="Port on which `cornserve up` would listen."
        ),
    ] = 8000,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="First repair damaged files of the home: keep what is readable, and set the rest aside."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Check whether this machine meets the requirements of Cornserve, and suggest fixes.

    With --context or --namespace, check the cluster and the installation in the namespace.
    """
    cluster = selected_cluster(ctx)
    if cluster is not None and repair:
        raise typer.BadParameter("--repair repairs files of this machine: leave out --context and --namespace")
    if cluster is not None:
        from cornserve.cli.cluster_doctor.run import check_cluster

        _report(check_cluster(cluster.context, cluster.namespace), "in this cluster", json)
        return
    from cornserve.cli.doctor_checks import run_checks

    if repair:
        _repair(home_directory(home))
    _report(run_checks(home_directory(home), host, port), "on this machine", json)


def _report(checks: Iterable[CheckResult], place: str, json: bool) -> None:
    """Prints the results. Raises `typer.Exit` if Cornserve cannot run."""
    from rich.text import Text

    results = []
    for result in checks:
        results.append(result)
        if not json:
            mark = ("✓", "green") if result.ok else ("✗", "red" if result.is_essential else "yellow")
            stdout().print(Text.assemble(mark, f" {result.name:<11} ", (result.found, "dim")))
            if not result.ok:
                stdout().print(Text.assemble("  → ", result.remedy))
    failed = [result.name for result in results if result.is_essential and not result.ok]
    if json:
        print_json({"ok": not failed, "checks": [result._asdict() for result in results]})
    elif failed:
        stdout().print(f"\nCornserve cannot run {place} until these are fixed: {', '.join(failed)}")
    if failed:
        raise typer.Exit(1)


def _repair(home: Home) -> None:
    from cornserve.control.local_instance import repair
    from cornserve.control.store.base import StoreUnavailableError

    done = False
    try:
        for line in repair.repair(home):
            stderr().print(line, markup=False)
            done = True
    except StoreUnavailableError as error:
        raise CliError(str(error)) from error
    except OSError as error:
        raise CliError(
            f"cannot repair {error.filename or home.path}: {error.strerror}: make it readable and "
            "writable, and free space on its disk"
        ) from error
    if not done:
        stderr().print(f"nothing in {home.path} needs a repair", markup=False)
