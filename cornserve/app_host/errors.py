"""Errors of app hosts in the processes that start them."""

from __future__ import annotations


class ForkServerError(Exception):
    """The fork server cannot start a process. A later attempt may succeed."""


class AppLoadError(Exception):
    """An app could not be loaded, but another attempt may succeed. The message is for users."""


class KilledWhileLoadingError(AppLoadError):
    """SIGKILL, which usually comes from outside, ended the host while it loaded the app."""


class AppHostLostError(Exception):
    """The host has died or was killed, with all requests in it.

    Args:
        culprit_session: the session whose code ran at that time, 0 for code of no session, None if no code ran.
        reason: how the host ended, as a sentence without a subject.
        location: where the code was: `app.py:12 in invoke`, or empty if unknown.
        seconds: the time for which the code had run.
        is_kill: whether the host was killed by SIGKILL, which usually comes from outside.
    """

    def __init__(
        self, culprit_session: int | None, reason: str, location: str, seconds: float = 0.0, *, is_kill: bool = False
    ) -> None:
        self.culprit_session = culprit_session
        self.reason = reason
        self.location = location
        self.seconds = seconds
        self.is_kill = is_kill
        super().__init__(f"{reason}, at {location}" if location else reason)

    def copy(self) -> AppHostLostError:
        """Returns an equal error without a traceback, to raise it in another task."""
        return AppHostLostError(self.culprit_session, self.reason, self.location, self.seconds, is_kill=self.is_kill)
