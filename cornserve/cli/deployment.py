"""A deployment as it happens: what each new view of the app tells, and how it is shown."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from cornserve.app.record import AppView, ReplicaState, ReplicaStatus
from cornserve.cli.console import stderr

if TYPE_CHECKING:
    from rich.console import RenderableType


class Deployment:
    """Remembers the last view, and tells what is new in the next."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.replicas: dict[str, ReplicaStatus] = {}
        self._message = ""

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def take(self, view: AppView) -> Iterator[str]:
        """Lines for people: what happened between the last view and this one."""
        replicas = {replica.id: replica for group in view.status.groups for replica in group.replicas}
        if not replicas and not view.settled and view.status.message not in ("", self._message):
            yield view.status.message
        self._message = view.status.message
        before, self.replicas = self.replicas, replicas
        for replica in replicas.values():
            last = before.get(replica.id)
            if last is None or (last.state, last.message) != (replica.state, replica.message):
                yield from _what_happened(replica)


def _what_happened(replica: ReplicaStatus) -> Iterator[str]:
    match replica.state:
        case ReplicaState.STARTING if replica.message:
            yield f"{replica.id}: {replica.message}"
        case ReplicaState.READY:
            yield f"{replica.id}: ready"
        case ReplicaState.DRAINING:
            yield f"{replica.id}: finishes its requests and ends"
        case ReplicaState.FAILED:
            yield f"{replica.id}: failed: {replica.message}"


class Display:
    """Lines on standard error; on a terminal, below them, what every replica is busy with now."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._spinner = Spinner("dots", style="cyan")

    @contextmanager
    def shown(self) -> Iterator[None]:
        console = stderr()
        if not console.is_terminal:
            yield
            return
        with Live(get_renderable=self._now, console=console, transient=True, refresh_per_second=8):
            yield

    def show(self, line: str) -> None:
        stderr().print(Text.assemble((f"{self._deployment.seconds:7.1f} s  ", "dim"), line))

    def _now(self) -> RenderableType:
        busy = [it for it in self._deployment.replicas.values() if it.state is ReplicaState.STARTING]
        table = Table.grid(padding=(0, 1))
        seconds = Text(f"{self._deployment.seconds:5.0f} s", style="dim")
        for label in [f"{it.id}: {it.message or 'starting'}" for it in busy] or ["waiting"]:
            table.add_row(seconds, self._spinner, Text(label, style="cyan"))
        return table
