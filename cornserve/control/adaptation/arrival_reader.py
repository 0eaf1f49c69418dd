"""Reads the numbers of arrived requests from all gateways of the instance."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cornserve.app.arrivals import ARRIVALS_PATH, GatewayArrivals
from cornserve.gateway_reader import FindGateways, read_gateways
from cornserve.http_reader import HttpReader, ReadError
from cornserve.observe.error_log import ErrorLog

log = logging.getLogger(__name__)

RESPONSE_SECONDS: Final = 2.0
"""The time after which a gateway does not answer."""

LATE_ROUNDS: Final = 2.0
"""Counts that have grown for more than this multiple of the time between two rounds are not the arrivals of one."""

Counts = Mapping[str, Mapping[str, int]]
"""Requests of each type, or loads of each executor group, by app."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The requests that have arrived since the last round."""

    apps: Counts
    is_complete: bool
    """Whether the arrivals of all gateways since the last round are known."""
    invocations: Counts = field(default_factory=dict)
    """Invocations by app and executor group."""
    tokens: Counts = field(default_factory=dict)
    """Tokens of the inputs of these invocations, by app and executor group."""
    type_invocations: Mapping[str, Counts] = field(default_factory=dict)
    """Invocations of requests of each type, by app, type and deployment option."""
    met: Counts = field(default_factory=dict)
    """Requests that have met each latency target, by app."""
    missed: Counts = field(default_factory=dict)
    """Requests that have missed each latency target, or were refused by it, by app."""
    late_us: Counts = field(default_factory=dict)
    """Microseconds that requests with a missed target took longer than others, by app and executor group."""


class ArrivalReader:
    """Reads the arrivals since the last round. A gateway that does not answer is left out.

    Args:
        token: the token for the gateways' counts.
    """

    def __init__(self, find_gateways: FindGateways, token: str) -> None:
        self._find_gateways = find_gateways
        self._reader = HttpReader(RESPONSE_SECONDS, token)
        self._last: Mapping[str, GatewayArrivals] = {}
        """The answer of each gateway in the last round, by URL."""
        self._last_round: float | None = None
        self._search_errors = ErrorLog(log, "cannot find the gateways: %s")
        self._errors: dict[str, ErrorLog] = {}

    async def read(self, now: float) -> Arrivals:
        """Asks all gateways at once.

        Args:
            now: seconds.
        """
        try:
            urls = await self._find_gateways()
            self._search_errors.clear()
        except OSError as error:
            self._search_errors.report(str(error))
            return Arrivals({}, is_complete=False)
        answers = await read_gateways(self._reader, urls, ARRIVALS_PATH, GatewayArrivals.model_validate_json)
        self._log_errors(answers)
        known = {url: answer for url, answer in answers.items() if not isinstance(answer, ReadError)}
        seconds = 0.0 if self._last_round is None else now - self._last_round
        apps, met, missed, late_us, invocations, tokens = (defaultdict[str, Counter[str]](Counter) for _ in range(6))
        by_type: dict[str, dict[str, Counter[str]]] = {}
        is_complete = len(known) == len(urls) and bool(urls)
        for url, answer in known.items():
            before = _before(self._last.get(url), answer, seconds)
            if before is None:
                is_complete = False
                continue
            _add_increase(apps, before.apps, answer.apps)
            _add_increase(met, before.met, answer.met)
            _add_increase(missed, before.missed, answer.missed)
            _add_increase(late_us, before.late_us, answer.late_us)
            _add_increase(invocations, before.invocations, answer.invocations)
            _add_increase(tokens, before.tokens, answer.tokens)
            for app, types in answer.type_invocations.items():
                sums = by_type.setdefault(app, defaultdict(Counter))
                _add_increase(sums, before.type_invocations.get(app, {}), types)
        self._last, self._last_round = known, now
        return Arrivals(apps, is_complete, invocations, tokens, by_type, met, missed, late_us)

    def forget(self) -> None:
        """Begins again: the next round has no arrivals."""
        self._last, self._last_round = {}, None

    async def close(self) -> None:
        await self._reader.close()

    def _log_errors(self, answers: Mapping[str, GatewayArrivals | ReadError]) -> None:
        known = self._errors
        self._errors = {
            url: known.get(url) or ErrorLog(log, f"the gateway {url} does not count arrivals: %s") for url in answers
        }
        for url, answer in answers.items():
            if isinstance(answer, ReadError):
                self._errors[url].report(str(answer))
            else:
                self._errors[url].clear()


def _before(last: GatewayArrivals | None, answer: GatewayArrivals, seconds: float) -> GatewayArrivals | None:
    """Returns the counts of a gateway at the last round, or None if they are unknown.

    Args:
        seconds: the time since the last round.
    """
    if last is not None and last.process == answer.process:
        return last
    if answer.seconds > LATE_ROUNDS * seconds:
        return None
    return GatewayArrivals(process=answer.process, seconds=0.0, apps={})


def _add_increase(sums: dict[str, Counter[str]], before: Counts, now: Counts) -> None:
    """Adds the growth of the counts of each app."""
    for app, counts in now.items():
        sums[app].update(_increase(before.get(app, {}), counts))


def _increase(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """Returns the growth of counts. A gateway counts from 0 again after it has removed an app or a group."""
    known = ((kind, count, before.get(kind, 0)) for kind, count in now.items())
    return {kind: count - last if count >= last else count for kind, count, last in known}
