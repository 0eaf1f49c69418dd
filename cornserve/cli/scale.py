"""`cornserve scale`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from cornserve.cli.console import CliError, print_json, stderr
from cornserve.cli.gateway import open_client
from cornserve.cli.options import Json, Url, WaitTimeout, check_rate, complete_app_names
from cornserve.cli.replica_wait import wait_for_replicas


def scale(
    ctx: typer.Context,
    app: Annotated[str, typer.Argument(metavar="APP", help="Name of the app.", autocompletion=complete_app_names)],
    replicas: Annotated[
        int | None,
        typer.Argument(metavar="[REPLICAS]", min=0, max=64, help="Replicas of each executor. 0: park the app."),
    ] = None,
    executor: Annotated[
        list[str] | None,
        typer.Option(
            "--executor",
            metavar="NAME=N",
            help="Replicas of one executor, in an app with a plan those of all its cells: --executor llm=3.",
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate", callback=check_rate, help="For an app with a plan: serve this many requests/s on the fewest GPUs."
        ),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option("--gpus", min=1, help="For an app with a plan: serve the most requests/s on this many GPUs."),
    ] = None,
    hold: Annotated[
        float | None,
        typer.Option(
            "--hold",
            metavar="SECONDS",
            min=0,
            help="For an app that follows its load: the time in which the load changes nothing, from now on, also "
            "without another size. By default, `hold_seconds` of --adapt or --autoscale. 0: follow the load at once.",
        ),
    ] = None,
    approve: Annotated[
        bool,
        typer.Option("--approve", help="Run the cells or the plan that the app's adaptation to its load proposes."),
    ] = False,
    timeout: WaitTimeout = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the replicas are ready.")] = True,
    url: Url = None,
    json: Json = False,
) -> None:
    """Set the number of replicas of each executor of an app, or the cells of an app with a plan.

    Surplus replicas move streams to the others where these continue them exactly, finish their other requests and stop.
    Other replicas continue to run. The size of an app that follows its load holds for some time, which the command
    prints.
    """
    given = [number for number in (replicas, rate, gpus) if number is not None]
    sizes = len(given) + approve + bool(executor)
    if sizes > 1 or (not sizes and hold is None):
        raise CliError(
            "give --executor or the number of replicas, or for an app with a plan one of --rate, --gpus and --approve"
        )
    if approve and hold is not None:
        raise CliError("--hold: an approved change follows the load: remove --hold or --approve")
    from cornserve.cli.adaptation_report import hold_lines

    executors = dict(map(_executor_replicas, executor)) if executor else None
    with open_client(ctx, url) as client:
        view = (
            client.approve(app)
            if approve
            else client.scale(app, replicas, executors=executors, rate=rate, gpus=gpus, hold_seconds=hold)
        )
        moved_before = view.moved_streams
        if wait:
            view = wait_for_replicas(client, view, timeout, failure="cannot be scaled")
    if json:
        print_json(view)
        return
    if not wait:
        stderr().print(f"{app} is being scaled: see `cornserve status {app}`")
    # The replica of the gateway that answers later may have counted fewer.
    if (moved := view.moved_streams - moved_before) > 0:
        stderr().print(f"{moved} running responses moved to other replicas")
    for line in hold_lines(view, datetime.now(UTC)):
        stderr().print(line, soft_wrap=True)


def _executor_replicas(setting: str) -> tuple[str, int]:
    name, _, number = setting.partition("=")
    try:
        return name, int(number)
    except ValueError:
        raise CliError(f"--executor: {setting!r} is not NAME=N, such as llm=3") from None
