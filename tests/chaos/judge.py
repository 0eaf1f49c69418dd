"""Checks the outcomes of requests against the guarantees, given the killed processes and the times of the kills."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tests.chaos.load import Outcome

RESTART_SECONDS = 30.0
"""The maximum time that a killed gateway takes to restart."""

DEATH_SECONDS = 1.0
"""The maximum time after a kill until the sockets are closed and other processes have noticed it."""


class Victim(StrEnum):
    EXECUTOR = "executor"
    ENGINE = "engine"
    GATEWAY = "gateway"
    CONTROLLER = "controller"
    APP_HOST = "app host"
    """A process that runs the code of an app for a gateway."""
    FORK_SERVER = "fork server"
    """The process from which a gateway forks its app hosts."""


@dataclass(frozen=True, slots=True)
class Kill:
    victim: Victim
    pid: int
    time: float


def violations(outcomes: Sequence[Outcome], kills: Sequence[Kill] = ()) -> list[str]:
    """Returns all violations of the guarantees."""
    return [f"{violation}: {outcome}" for outcome in outcomes for violation in _check(outcome, kills)]


def _check(outcome: Outcome, kills: Sequence[Kill]) -> Iterator[str]:
    since = outcome.started - DEATH_SECONDS
    gateways = [kill.time for kill in kills if kill.victim is Victim.GATEWAY]
    deaths = [kill.time for kill in kills if kill.victim in (Victim.EXECUTOR, Victim.ENGINE)]
    during = [time for time in deaths if since <= time <= outcome.ended]
    expected = outcome.request.expected
    if expected and not any(text.startswith(outcome.streamed) for text in expected):
        yield "wrong stream items"
    hosts = [kill.time for kill in kills if kill.victim in (Victim.APP_HOST, Victim.FORK_SERVER)]
    if outcome.hung:
        yield "hangs"
    elif outcome.refused:
        if not any(time <= outcome.ended <= time + RESTART_SECONDS for time in gateways):
            yield "refused although no gateway was killed"
    elif outcome.broken:
        if not any(since <= time <= outcome.ended for time in gateways):
            yield "broken although no gateway was killed"
    elif outcome.error is not None:
        if not (_is_code_killed(outcome) and sum(since <= time <= outcome.ended for time in hosts) > 1):
            yield from _check_error(outcome, len(during))
    elif not outcome.is_complete:
        yield "incomplete"
    elif expected and outcome.text not in expected:
        yield "wrong response"
    elif outcome.request.stream and outcome.streamed != outcome.text:
        yield "missing or duplicate stream items"


def _is_code_killed(outcome: Outcome) -> bool:
    """Returns whether the request failed because app hosts were killed twice, while they loaded or ran its code."""
    assert outcome.error is not None
    is_host = outcome.error["code"] in ("task_error", "not_ready")
    return is_host and "was killed by SIGKILL" in outcome.error["message"]


def _check_error(outcome: Outcome, deaths: int) -> Iterator[str]:
    assert outcome.error is not None
    is_aborted = outcome.error["code"] == "executor_died"
    needed = 1 if outcome.items and not outcome.request.continues else 2
    if not is_aborted:
        yield "unexpected error"
    elif deaths < needed:
        yield f"aborted after {deaths} deaths"
