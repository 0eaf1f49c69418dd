"""Watches an app across broken connections, gateway restarts and new generations."""

from __future__ import annotations

from collections.abc import Callable

from cornserve.app.record import AppView, Phase
from cornserve.client import calls
from cornserve.client.arguments import check_timeout
from cornserve.client.calls import ApiCall
from cornserve.client.deadline import ADMIN_SECONDS, Deadline
from cornserve.client.errors import (
    ApiStatusError,
    AppDeletedError,
    AppNotLoadedError,
    ClientError,
    DeploymentError,
    DisconnectedError,
    ResponseTimeoutError,
    UnreachableError,
    WaitTimeoutError,
)
from cornserve.client.responses import LoadedModel
from cornserve.client.sse import ServerSentEvent

SILENCE_SECONDS = 5.0
"""An event stream without any data for this time is opened again: its connection may have been lost silently."""

PAUSE_SECONDS = 0.05

RESTART_SECONDS = 20.0
"""Maximum time that the gateway may be unreachable. A restart takes less time."""

NO_RESPONSE_SECONDS = 60.0
"""Maximum time in which connections to the gateway may time out. A blocked gateway is restarted in a shorter time."""

LOAD_SECONDS = ADMIN_SECONDS
"""Maximum time that the gateway may take to load an app: the timeout of the deployment, which loads the same code."""


class AppWatch:
    """The state of one watch of an app's events. The client opens the event streams and calls the methods.

    Args:
        on_outage: receives a line of text when the gateway becomes unreachable, and when it is reachable again.
    """

    def __init__(self, app: str, timeout: float | None, on_outage: Callable[[str], object]) -> None:
        check_timeout(timeout)
        self.deadline = Deadline(timeout)
        self.is_over = False
        """Whether the app was deleted."""
        self._app = app
        self._on_outage = on_outage
        self._seen_version = -1
        self._outage: Deadline | None = None
        """The deadline for a gateway that does not respond to return, or None if it responds."""

    def call(self) -> ApiCall:
        """Returns the call that opens an event stream. Raises `WaitTimeoutError`."""
        self._check_deadline()
        return calls.events(self._app, max(PAUSE_SECONDS, min(SILENCE_SECONDS, self.deadline.left)))

    def new_view(self, event: ServerSentEvent) -> AppView | None:
        """Returns the app if the event has a new version of it. The caller must then call `mark_seen`."""
        if self._outage is not None:
            self._outage = None
            self._on_outage("connected to the gateway again")
        self.is_over = event.name == "deleted"
        view = None if self.is_over or event.is_comment else AppView.model_validate_json(event.data)
        if view is not None and view.version > self._seen_version:
            return view
        self._check_deadline()
        return None

    def mark_seen(self, view: AppView) -> None:
        self._seen_version = view.version

    def handle_error(self, error: ClientError) -> None:
        """Raises the error unless opening another event stream may succeed."""
        if isinstance(error, ApiStatusError) and error.status == 404 and self._seen_version >= 0:
            self.is_over = True
        elif not (isinstance(error, DisconnectedError) or self._may_return(error)):
            raise error

    def _may_return(self, error: ClientError) -> bool:
        """Returns whether the gateway may respond again: if it has not been silent or unreachable for too long."""
        match error:
            case ResponseTimeoutError() if self.deadline.is_over:
                return True  # `call` raises the error of the deadline.
            case ResponseTimeoutError():
                seconds, problem = NO_RESPONSE_SECONDS, "the gateway does not respond: waiting up to {:g} s"
            case UnreachableError() if self._seen_version >= 0:
                seconds = RESTART_SECONDS
                problem = "cannot connect to the gateway: waiting up to {:g} s for its restart"
            case _:
                return False
        if self._outage is None:
            self._outage = Deadline(seconds)
            self._on_outage(problem.format(seconds))
        return not self._outage.is_over

    def _check_deadline(self) -> None:
        if self.deadline.is_over:
            raise WaitTimeoutError(
                f"the watch of app {self._app!r} ended after {self.deadline.seconds:g} seconds: set a longer timeout"
            )


class AppLoadWait:
    """Waits until the gateway has loaded a serving app, which it does shortly after the app's phase has changed."""

    def __init__(self, view: AppView, deadline: Deadline) -> None:
        self._view = view
        self._limit = deadline
        self._deadline = Deadline(max(0.0, min(LOAD_SECONDS, deadline.left)))
        self.is_needed = view.phase is Phase.SERVING

    def is_over(self, models: list[LoadedModel]) -> bool:
        """Returns whether `models` contains the app.

        Raises `AppNotLoadedError` if loading takes too long, and `WaitTimeoutError` at the deadline of the caller.
        """
        if any(self._is_loaded_in(model) for model in models):
            return True
        if self._deadline.is_over:
            kind = WaitTimeoutError if self._limit.is_over else AppNotLoadedError
            raise kind(
                f"the gateway has not loaded generation {self._view.generation} of {self._view.name}: see its log"
            )
        return False

    def _is_loaded_in(self, model: LoadedModel) -> bool:
        same_app = (model.id, model.uid) == (self._view.name, self._view.uid)
        return same_app and model.generation >= self._view.generation


def is_deployed_generation(view: AppView, deployed: AppView) -> bool:
    """Returns whether `view` shows the deployed generation or a later one.

    Raises `AppDeletedError` if the app was deleted and its name belongs to another app.
    """
    if view.uid != deployed.uid:
        raise AppDeletedError(deployed.name)
    return view.generation >= deployed.generation


def require_serving(view: AppView) -> AppView:
    """Returns the app. Raises `DeploymentError` if it has failed."""
    if view.phase is Phase.FAILED:
        raise DeploymentError(view)
    return view
