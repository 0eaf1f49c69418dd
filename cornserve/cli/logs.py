"""`cornserve logs`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cornserve.cli.console import local_time, print_error, print_json
from cornserve.cli.gateway import open_client
from cornserve.cli.options import AppName, Json, Url
from cornserve_plan.printable import printable

if TYPE_CHECKING:
    from cornserve.client import Client, ReplicaLog

FOLLOW_SECONDS = 0.5
FOLLOW_LINES = 1000
"""Lines fetched per poll. If a replica writes more between two polls, the rest is not shown."""


def logs(
    ctx: typer.Context,
    app: AppName,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new lines as they are written, until Ctrl-C.")
    ] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, max=10_000, help="Number of lines per replica.")] = 100,
    replica: Annotated[
        str | None, typer.Option("--replica", help="Show only the log with this id, such as that of a replica.")
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Show the last log lines of the executors of an app, also of those that have exited, with the reason, and the
    prints and tracebacks of its own code."""
    with open_client(ctx, url) as client:
        if json and not follow:
            print_json({"replicas": _fetch(client, app, lines, replica)})
            return
        try:
            for replicas in _follow(client, app, lines, replica) if follow else [_fetch(client, app, lines, replica)]:
                _print(replicas, json)
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


def _fetch(client: Client, app: str, lines: int, only: str | None) -> list[ReplicaLog]:
    """Returns the logs of the replicas. A failed app has no replicas: returns the lines in its status.

    Args:
        only: the id of the only log.
    """
    from cornserve.client import ReplicaLog

    replicas = client.logs(app, lines, replica=only)
    if only is None and not any(replica.lines for replica in replicas) and (kept := client.app(app).status.logs):
        return [ReplicaLog(id="failed", lines=kept[-lines:]), *replicas]
    return replicas


def _print(replicas: list[ReplicaLog], json: bool) -> None:
    for replica in replicas:
        if replica.error is not None:
            print_error(f"{replica.id}: {replica.error}")
        for line in replica.lines:
            if json:
                print_json({"replica": replica.id, "line": line}, lines=True)
            else:
                typer.echo(printable(f"{replica.id} | {line}"))
        if replica.exit is not None and not json:
            typer.echo(printable(f"{replica.id} ended at {local_time(replica.exit.time)}: {replica.exit.message}"))


def _follow(client: Client, app: str, lines: int, only: str | None) -> Iterator[list[ReplicaLog]]:
    """Yields the last lines of each replica, then its new lines."""
    current = _fetch(client, app, max(lines, FOLLOW_LINES), only)
    yield [replica.model_copy(update={"lines": replica.lines[-lines:]}) for replica in current]
    seen: dict[str, Sequence[str]] = {}
    ended: set[str] = set()
    while True:
        seen |= {replica.id: replica.lines for replica in current}
        ended |= {replica.id for replica in current if replica.exit is not None}
        time.sleep(FOLLOW_SECONDS)
        # A replica that cannot be read now is shown again when it can.
        current = [replica for replica in _fetch(client, app, FOLLOW_LINES, only) if replica.error is None]
        yield [
            replica.model_copy(
                update={
                    "lines": new_lines(seen.get(replica.id, []), replica.lines),
                    "exit": None if replica.id in ended else replica.exit,
                }
            )
            for replica in current
        ]


def new_lines(before: Sequence[str], current: Sequence[str]) -> Sequence[str]:
    """Returns the lines of `current` after those of `before`. Both are the last lines of the same log."""
    for overlap in range(min(len(before), len(current)), 0, -1):
        if before[-overlap:] == current[:overlap]:
            return current[overlap:]
    return current
