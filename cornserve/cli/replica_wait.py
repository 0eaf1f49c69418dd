"""Waits until all replicas of an app are ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cornserve.cli.console import CliError

if TYPE_CHECKING:
    from cornserve.app.record import AppView
    from cornserve.client import Client


def wait_for_replicas(client: Client, app: AppView, timeout: float | None, *, failure: str) -> AppView:
    """Returns the app when exactly its desired replicas run and all of them are ready.

    Args:
        app: the app. Earlier generations are ignored.
        timeout: in seconds.
        failure: the verb of the message if the newest generation fails, such as `has failed`.

    Raises:
        CliError: the newest generation fails, the app is deleted, or the timeout ends.
    """
    from cornserve.cli.progress_display import ProgressDisplay

    display = ProgressDisplay()
    unfinished = f"some replicas of {app.name} are not ready after {timeout} s: see `cornserve status {app.name}`"
    with display.shown():
        for view in display.follow(client.events(app.name, timeout=timeout, on_outage=display.show), unfinished):
            if view.uid != app.uid:
                break
            if view.generation >= app.generation and view.is_scaled:
                display.show(f"{view.name} has {_size(view)}")
                return view
            if view.generation >= app.generation and view.phase == "failed":
                raise CliError(f"{view.name} {failure}: {view.status.message}")
    raise CliError(f"{app.name} was deleted: deploy it again with `cornserve deploy`")


def _size(view: AppView) -> str:
    from cornserve_plan.plan import describe_cells

    plan = view.spec.plan
    numbers = [f"{number} of {name}" for name, number in sorted(view.spec.executor_replicas.items())]
    if plan is None:
        return ", ".join([f"{view.spec.replicas} replicas of each executor", *numbers])
    return ", ".join([f"cells for {plan.rate:.4g} requests/s: {describe_cells(plan.counts)}", *numbers])
