"""Shows the progress of an app in the terminal."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from cornserve.app.record import AppView, ReplicaState
from cornserve.cli.console import CliError, stderr
from cornserve.client import WaitTimeoutError
from cornserve.client.errors import AppNotLoadedError
from cornserve.client.progress import Progress

if TYPE_CHECKING:
    from rich.console import RenderableType


class ProgressDisplay:
    """Prints lines to standard error. On a terminal, shows the current step of each starting replica below them."""

    def __init__(self) -> None:
        self._progress = Progress()
        self._started = time.monotonic()
        self._spinner = Spinner("dots", style="cyan")

    @contextmanager
    def shown(self) -> Iterator[None]:
        console = stderr()
        if not console.is_terminal:
            yield
            return
        with Live(get_renderable=self._render, console=console, transient=True, refresh_per_second=8):
            yield

    def follow(self, views: Iterable[AppView], unfinished: str) -> Iterator[AppView]:
        """Yields the views of an app, and shows what changes between them.

        Raises `CliError` with the text `unfinished` when the wait for a view takes too long.
        """
        try:
            for view in views:
                for line in self._progress.update(view):
                    self.show(line)
                yield view
        except AppNotLoadedError:
            raise  # The timeout of the command has not ended.
        except WaitTimeoutError as error:
            raise CliError(unfinished) from error

    def show(self, line: str) -> None:
        stderr().print(Text.assemble((f"{self._seconds:7.1f} s  ", "dim"), line))

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._started

    def _render(self) -> RenderableType:
        starting = [replica for replica in self._progress.replicas.values() if replica.state is ReplicaState.STARTING]
        labels = [f"{replica.id}: {replica.message or 'starting'}" for replica in starting]
        table = Table.grid(padding=(0, 1))
        seconds = Text(f"{self._seconds:5.0f} s", style="dim")
        for label in labels or ["waiting"]:
            table.add_row(seconds, self._spinner, Text(label, style="cyan"))
        return table
