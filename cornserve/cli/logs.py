"""`cornserve logs`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cornserve.cli.console import emit
from cornserve.cli.options import AppName, Json, Url

if TYPE_CHECKING:
    from cornserve.client import Client, ReplicaLog

FOLLOW_SECONDS = 0.5
FOLLOW_LINES = 1000
"""A replica that writes more between two looks has lines that are not shown."""


def logs(
    app: AppName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is written, until Ctrl-C.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, max=10_000, help="Lines of each executor.")] = 100,
    url: Url = None,
    json: Json = False,
) -> None:
    """Show what the executors of an app wrote last."""
    from cornserve.client import Client

    with Client(url) as client:
        if json and not follow:
            emit({"replicas": _of(client, app, lines)})
            return
        try:
            for new in _news(client, app, lines) if follow else [_of(client, app, lines)]:
                _print(new, json)
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


def _of(client: Client, app: str, lines: int) -> list[ReplicaLog]:
    """Of a failed app, which has no executors any more, what its status keeps."""
    from cornserve.client import ReplicaLog

    replicas = client.logs(app, lines)
    if not replicas and (kept := client.app(app).status.logs):
        return [ReplicaLog(id="failed", lines=kept[-lines:])]
    return replicas


def _print(replicas: list[ReplicaLog], json: bool) -> None:
    for replica in replicas:
        for line in replica.lines:
            if json:
                emit({"replica": replica.id, "line": line}, lines=True)
            else:
                typer.echo(f"{replica.id} | {line}")


def _news(client: Client, app: str, lines: int) -> Iterator[list[ReplicaLog]]:
    """First the last lines, then what is new of every replica."""
    now = _of(client, app, max(lines, FOLLOW_LINES))
    yield [_with_lines(replica, replica.lines[-lines:]) for replica in now]
    while True:
        seen = {replica.id: replica.lines for replica in now}
        time.sleep(FOLLOW_SECONDS)
        now = _of(client, app, FOLLOW_LINES)
        yield [_with_lines(replica, added(seen.get(replica.id, []), replica.lines)) for replica in now]


def _with_lines(replica: ReplicaLog, lines: Sequence[str]) -> ReplicaLog:
    return replica.model_copy(update={"lines": lines})


def added(before: Sequence[str], now: Sequence[str]) -> Sequence[str]:
    """The lines of `now` behind those of `before`; both are the last lines of one growing log."""
    for overlap in range(min(len(before), len(now)), 0, -1):
        if before[-overlap:] == now[:overlap]:
            return now[overlap:]
    return now
