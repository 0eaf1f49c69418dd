"""`cornserve up`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from cornserve.cli.console import Problem, emit, stderr, stdout
from cornserve.cli.options import HomePath, Json, home_at

if TYPE_CHECKING:
    from cornserve.control.supervisor import Options
    from cornserve.home import Home
    from cornserve.instance import Instance


def up(
    home: HomePath = None,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", envvar="CORNSERVE_PORT", min=0, max=65535, help="The port; 0: any free one.")
    ] = 8000,
    gpus: Annotated[int | None, typer.Option("--gpus", min=0, help="GPUs to use. By default, all.")] = None,
    cpu_slots: Annotated[
        int | None, typer.Option("--cpu-slots", min=1, help="Executors that may run on the CPU at once.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return once it runs.")] = False,
    json: Json = False,
) -> None:
    """Run Cornserve on this machine.

    It stays in the foreground until Ctrl-C, which stops everything; the apps come back with the next `cornserve up`.
    """
    from cornserve.control.supervisor import Options, StartError

    options = Options(home_at(home), host, port, gpus, cpu_slots)
    try:
        if detach:
            _show_ready(_start(options), options.home, json, "`cornserve down` stops it.")
        else:
            _run(options, json)
    except StartError as error:
        raise Problem(str(error)) from error


def _start(options: Options) -> Instance:
    from cornserve.cli.detached import start

    with stderr().status("Starting Cornserve"):
        return start(options)


def _run(options: Options, json: bool) -> None:
    import asyncio

    from cornserve.control.supervisor import supervise

    ending = "Ctrl-C stops it; the apps come back with the next `cornserve up`."
    ready = partial(_show_ready, home=options.home, json=json, ending=ending)
    asyncio.run(supervise(options, on_ready=ready, report=_report))


def _report(message: str) -> None:
    with suppress(OSError):  # the terminal may be gone, and then most of all everything has to be ended
        stderr().print(message, markup=False, style="dim")


def _show_ready(instance: Instance, home: Home, json: bool, ending: str) -> None:
    if json:
        emit(asdict(instance) | {"home": str(home.path)}, lines=True)
        return
    say = stdout().print
    say(f"[bold green]Cornserve[/bold green] listens on [bold]{instance.url}[/bold]   [dim]{home.path}[/dim]")
    apps = _apps(instance)
    if apps:
        say(f"Apps from before start again: {', '.join(apps)}")
    if not _is_found_by_default(instance, home):
        say(f"Tell the other commands: [cyan]export CORNSERVE_URL={instance.url}[/cyan]")
    say("\nNext, in another terminal:")
    say("  [cyan]cornserve deploy[/cyan] MODEL-DIRECTORY | FILE.py   serve a model, or an app of your own")
    say("  [cyan]cornserve status[/cyan]                             see what runs")
    say(f"\n{ending}")


def _apps(instance: Instance) -> list[str]:
    from cornserve.client import Client

    with Client(instance.url) as client:
        return [app.name for app in client.apps()]


def _is_found_by_default(instance: Instance, home: Home) -> bool:
    from cornserve.client import DEFAULT_URL
    from cornserve.home import Home as Homes

    return home == Homes.default() or instance.url == DEFAULT_URL
