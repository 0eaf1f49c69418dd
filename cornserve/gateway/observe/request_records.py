"""The timelines of the last, of slow and of failed requests, without their content."""

from __future__ import annotations

import time
from bisect import insort
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, NamedTuple

from cornserve.app.overview import ReadGateways, RequestList, RequestSummary, RequestTimeline
from cornserve.gateway.observe.request_stats import RequestStats

MAX_REQUESTS: Final = 20
"""Requests of each kind that an app keeps."""

MAX_APPS: Final = 64
"""Apps whose requests are kept: those with the last requests."""

SLOW_SECONDS: Final = 3600.0
"""The age at which a slow request is dropped."""

MAX_LISTED: Final = 100


class EndedRequest(NamedTuple):
    """A request that has ended. Its timeline is created when it is read, because most are never read."""

    stats: RequestStats
    app: str
    id: str
    operation: str
    time: float
    seconds: float
    status: int
    error: str

    def summary(self) -> RequestSummary:
        return RequestSummary(**self._summary_fields())

    def timeline(self) -> RequestTimeline:
        return RequestTimeline(**self._summary_fields(), spans=self.stats.spans)

    def _summary_fields(self) -> dict[str, Any]:
        return {
            name: getattr(self if name in self._fields else self.stats, name) for name in RequestSummary.model_fields
        }


@dataclass(slots=True)
class _AppRequests:
    recent: deque[EndedRequest] = field(default_factory=lambda: deque(maxlen=MAX_REQUESTS))
    failed: deque[EndedRequest] = field(default_factory=lambda: deque(maxlen=MAX_REQUESTS))
    slow: list[EndedRequest] = field(default_factory=list)
    """The slowest requests, slowest first."""

    def add(self, request: EndedRequest, *, is_failed: bool) -> None:
        self.recent.append(request)
        if is_failed:
            self.failed.append(request)
            return
        self.drop_old(request.time)
        if len(self.slow) < MAX_REQUESTS or request.seconds > self.slow[-1].seconds:
            insort(self.slow, request, key=lambda each: -each.seconds)
            del self.slow[MAX_REQUESTS:]

    def drop_old(self, now: float) -> None:
        """Drops the slow requests that have arrived too long before a time."""
        self.slow = [each for each in self.slow if now - each.time < SLOW_SECONDS]


class RequestRecords:
    """Keeps `MAX_REQUESTS` requests of each kind for each app: at most about 10 MB.

    Args:
        clock: returns seconds since 1970.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._apps = OrderedDict[str, _AppRequests]()

    def add(
        self, stats: RequestStats, app: str, id: str, operation: str, arrived: float, status: int, error: str
    ) -> None:
        """Keeps a request that has ended.

        Args:
            arrived: seconds since 1970.
            error: the code of the error, or an empty text.
        """
        request = EndedRequest(stats, app, id, operation, arrived, stats.seconds, status, error)
        kept = self._apps.setdefault(app, _AppRequests())
        self._apps.move_to_end(app)
        if len(self._apps) > MAX_APPS:
            self._apps.popitem(last=False)
        kept.add(request, is_failed=status != 200)

    def forget_app(self, app: str) -> None:
        self._apps.pop(app, None)

    def select(self, app: str | None) -> RequestList:
        kept = self._read(app)
        return merged_requests(
            [
                RequestList(
                    gateways=ReadGateways(),
                    recent=_summaries(chain.from_iterable(each.recent for each in kept)),
                    slow=_summaries(chain.from_iterable(each.slow for each in kept)),
                    failed=_summaries(chain.from_iterable(each.failed for each in kept)),
                )
            ],
            ReadGateways(),
        )

    def find(self, id: str) -> list[RequestTimeline]:
        """Returns the kept requests with an id, which clients may have chosen."""
        found = (request for requests in self._read(None) for request in _unique(requests) if request.id == id)
        return [request.timeline() for request in found]

    def _read(self, app: str | None) -> list[_AppRequests]:
        """Returns the kept requests of an app or of all apps, without slow ones that are too old."""
        kept = [requests for name, requests in self._apps.items() if app in (None, name)]
        now = self._clock()
        for requests in kept:
            requests.drop_old(now)
        return kept


def merged_requests(lists: Iterable[RequestList], gateways: ReadGateways) -> RequestList:
    """Returns the requests of several gateways: the last first, and of the slow ones the slowest."""
    found = [*lists]
    return RequestList(
        gateways=gateways,
        recent=sorted((each for part in found for each in part.recent), key=_newest_first)[:MAX_LISTED],
        slow=sorted((each for part in found for each in part.slow), key=lambda each: -each.seconds)[:MAX_LISTED],
        failed=sorted((each for part in found for each in part.failed), key=_newest_first)[:MAX_LISTED],
    )


def _newest_first(request: RequestSummary) -> float:
    return -request.time


def _summaries(requests: Iterable[EndedRequest]) -> list[RequestSummary]:
    return [each.summary() for each in requests]


def _unique(requests: _AppRequests) -> Iterator[EndedRequest]:
    every = chain(requests.recent, requests.failed, requests.slow)
    return iter({id(request): request for request in every}.values())
