"""Apps that exist as long as a command needs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

from cornserve.cli.console import CliError, print_warning, stderr

if TYPE_CHECKING:
    from cornserve.app.record import AppView
    from cornserve.client import Client
    from cornserve.client.deploy_target import DeployTarget


@contextmanager
def temporary_app(
    client: Client,
    target: DeployTarget,
    what: str,
    timeout: float | None = None,
    check: Callable[[AppView], object] = lambda view: None,
) -> Iterator[str]:
    """Deploys an app, yields its name when it serves, and deletes it at the end.

    Raises `CliError` if it fails to start, or does not serve after `timeout` s.

    Args:
        what: the app, for users.
        check: is called with each view of the app while it starts. Its errors end the wait.
    """
    from cornserve.cli.progress_display import ProgressDisplay
    from cornserve.client import ApiStatusError, ClientError

    display, is_stored = ProgressDisplay(), False
    try:
        with display.shown():
            deployed = client.deploy(target, wait=False)
            is_stored = True
            following = client.follow(deployed, timeout=timeout, on_outage=display.show)
            for view in display.follow(following, f"{what} does not serve"):
                check(view)
        if view.phase != "serving":
            for line in view.status.logs:
                stderr().print(f"  | {line}", markup=False)
            raise CliError(f"{what} failed to start: {view.status.message}")
        yield view.name
    finally:
        try:
            client.delete(target.name)
        except ClientError as error:
            is_missing = isinstance(error, ApiStatusError) and error.status == HTTPStatus.NOT_FOUND
            if is_stored and not is_missing:
                name = target.name
                print_warning(f"the app {name} may still exist: {error}: delete it with `cornserve delete {name}`")
