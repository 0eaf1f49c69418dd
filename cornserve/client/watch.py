"""Following an app through breaking connections, restarting gateways and new versions."""

from __future__ import annotations

from cornserve.app.record import AppView, Phase
from cornserve.client import calls
from cornserve.client.answers import Served
from cornserve.client.arguments import check_timeout
from cornserve.client.calls import Call
from cornserve.client.deadline import ADMIN_SECONDS, Deadline
from cornserve.client.errors import (
    ApiError,
    ClientError,
    DeletedError,
    DeploymentError,
    DisconnectedError,
    NotInTimeError,
    SilentError,
    UnreachableError,
)
from cornserve.client.events import Event

SILENCE_SECONDS = 5.0
"""A stream of events that is silent for so long is opened anew: it may have been lost without a sign."""

PAUSE_SECONDS = 0.05

RESTART_SECONDS = 20.0
"""How long nothing may listen where a gateway was: one that restarts comes back sooner."""

LOAD_SECONDS = ADMIN_SECONDS
"""As long as for the deployment itself: for that, the gateway has imported the same code."""


class Watch:
    """The events of one app."""

    def __init__(self, app: str, timeout: float | None) -> None:
        check_timeout(timeout)
        self.deadline = Deadline(timeout)
        self.is_over = False
        """The app was deleted."""
        self._app = app
        self._seen = -1
        self._absence: Deadline | None = None
        """Of the gateway, since nothing listens."""

    def call(self) -> Call:
        """Raises `NotInTimeError`."""
        self._check_time()
        return calls.events(self._app, max(PAUSE_SECONDS, min(SILENCE_SECONDS, self.deadline.left)))

    def take(self, event: Event) -> AppView | None:
        """The app, where that is news; `saw` then says that it was told."""
        self._absence = None
        self.is_over = event.name == "deleted"
        view = None if self.is_over or event.is_comment else AppView.model_validate_json(event.data)
        if view is not None and view.version > self._seen:
            return view
        self._check_time()
        return None

    def saw(self, view: AppView) -> None:
        self._seen = view.version

    def broke(self, error: ClientError) -> None:
        """Raises the error, unless connecting again may help."""
        if isinstance(error, ApiError) and error.status == 404 and self._seen >= 0:
            self.is_over = True
        elif not (isinstance(error, SilentError | DisconnectedError) or self._may_come_back(error)):
            raise error

    def _may_come_back(self, error: ClientError) -> bool:
        """Whether the gateway is away only for a moment. One that was never there need not be waited for."""
        if self._absence is None:
            self._absence = Deadline(RESTART_SECONDS)
        return isinstance(error, UnreachableError) and self._seen >= 0 and not self._absence.is_over

    def _check_time(self) -> None:
        if self.deadline.is_over:
            raise NotInTimeError(f"the app {self._app!r} was watched for {self.deadline.seconds:g} seconds")


class Loading:
    """The gateway loads an app a moment after the controller has written that it serves."""

    def __init__(self, view: AppView, deadline: Deadline) -> None:
        self._view = view
        self._deadline = Deadline(max(0.0, min(LOAD_SECONDS, deadline.left)))
        self.matters = view.phase is Phase.SERVING

    def is_over(self, models: list[Served]) -> bool:
        """Raises `NotInTimeError` if it takes too long."""
        if any(self._is_it(model) for model in models):
            return True
        if self._deadline.is_over:
            raise NotInTimeError(
                f"the gateway has not loaded generation {self._view.generation} of {self._view.name}: its log says why"
            )
        return False

    def _is_it(self, model: Served) -> bool:
        named = (model.id, model.uid) == (self._view.name, self._view.uid)
        return named and model.generation >= self._view.generation


def concerns(view: AppView, deployed: AppView) -> bool:
    """Whether the view tells of what was deployed, or of what has replaced it.

    Raises `DeletedError` if the name belongs to another app by now.
    """
    if view.uid != deployed.uid:
        raise DeletedError(deployed.name)
    return view.generation >= deployed.generation


def serving(view: AppView) -> AppView:
    """Raises `DeploymentError` if it has failed."""
    if view.phase is Phase.FAILED:
        raise DeploymentError(view)
    return view
