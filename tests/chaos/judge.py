"""What a client may see, given what was killed and when (DESIGN §5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tests.chaos.load import Outcome

RESTART_SECONDS = 30.0
"""How long a killed gateway may be away."""

DEATH_SECONDS = 1.0
"""How long after a kill the dead one's sockets may still be there, and others not know of it."""


class Victim(StrEnum):
    EXECUTOR = "executor"
    ENGINE = "engine"
    GATEWAY = "gateway"
    CONTROLLER = "controller"


@dataclass(frozen=True, slots=True)
class Kill:
    victim: Victim
    pid: int
    time: float


def verdicts(outcomes: Sequence[Outcome], kills: Sequence[Kill] = ()) -> list[str]:
    """What is wrong; nothing, if all is as promised."""
    found = [(outcome, wrong) for outcome in outcomes for wrong in _judge(outcome, kills)]
    return [f"{wrong}: {outcome}" for outcome, wrong in found]


def _judge(outcome: Outcome, kills: Sequence[Kill]) -> Iterator[str]:
    since = outcome.started - DEATH_SECONDS
    gateways = [it.time for it in kills if it.victim is Victim.GATEWAY]
    deaths = [it.time for it in kills if it.victim in (Victim.EXECUTOR, Victim.ENGINE)]
    during = [time for time in deaths if since <= time <= outcome.ended]
    answers = outcome.request.answers
    if answers and not any(answer.startswith(outcome.streamed) for answer in answers):
        yield "wrong words"
    if outcome.hung:
        yield "hangs"
    elif outcome.refused:
        if not any(time <= outcome.ended <= time + RESTART_SECONDS for time in gateways):
            yield "refused by a gateway that nobody has killed"
    elif outcome.broken:
        if not any(since <= time <= outcome.ended for time in gateways):
            yield "broken by a gateway that nobody has killed"
    elif outcome.error is not None:
        yield from _judge_error(outcome, len(during))
    elif not outcome.is_complete:
        yield "ends in the middle"
    elif answers and outcome.text not in answers:
        yield "wrong answer"
    elif outcome.request.stream and outcome.streamed != outcome.text:
        yield "something is missing, or came twice"


def _judge_error(outcome: Outcome, deaths: int) -> Iterator[str]:
    assert outcome.error is not None
    is_given_up = outcome.error["code"] == "executor_died"
    needed = 1 if outcome.items and not outcome.request.continues else 2
    if not is_given_up:
        yield "an error"
    elif deaths < needed:
        yield f"given up after {deaths} deaths"
