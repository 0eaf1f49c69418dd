"""Which productions there are, and who waits for one that has not begun.

Consumers may be quicker than the producer: their subscription waits until the invocation starts here. For one that has
ended, or of which a later attempt has begun, nobody waits.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from cornserve.transport.publication import Publication, Subscription

_REMEMBERED = 16_384
"""Productions that have ended. A consumer that comes even later waits until it is cancelled."""

_SUPERSEDED = "a later attempt is under way"


class Name(NamedTuple):
    request_id: str
    invocation: int
    attempt: int

    @property
    def of(self) -> tuple[str, int]:
        """What it is an attempt at."""
        return self.request_id, self.invocation


class Producing(Protocol):
    def publication(self, output: str) -> Publication: ...


class Board:
    def __init__(self) -> None:
        self._productions: dict[Name, Producing] = {}
        self._waiting: dict[Name, dict[Subscription, str]] = {}
        self._ended: dict[Name, None] = {}
        self._latest: dict[tuple[str, int], int] = {}
        """The last attempt of each invocation that is remembered."""

    def begin(self, name: Name, production: Producing) -> None:
        if name in self._productions:
            raise ValueError(f"{name} is produced already")
        self._productions[name] = production
        self._latest[name.of] = max(name.attempt, self._latest.get(name.of, 0))
        for earlier in range(name.attempt):
            self._end_waiting(name._replace(attempt=earlier), _SUPERSEDED)
        for subscription, output in self._waiting.pop(name, {}).items():
            production.publication(output).subscribe(subscription)

    def end(self, name: Name) -> None:
        del self._productions[name]
        self._ended[name] = None
        if len(self._ended) > _REMEMBERED:
            self._forget(next(iter(self._ended)))

    def subscribe(self, name: Name, output: str, subscription: Subscription) -> None:
        if name.attempt < self._latest.get(name.of, 0):
            subscription.consumer.on_lost(_SUPERSEDED)
        elif production := self._productions.get(name):
            production.publication(output).subscribe(subscription)
        elif name in self._ended:
            subscription.consumer.on_lost("its producer has ended")
        else:
            self._waiting.setdefault(name, {})[subscription] = output

    def unsubscribe(self, name: Name, subscription: Subscription) -> None:
        if subscription.publication is not None:
            subscription.publication.unsubscribe(subscription)
        elif name in self._waiting:
            self._waiting[name].pop(subscription, None)
            if not self._waiting[name]:
                del self._waiting[name]

    def _forget(self, name: Name) -> None:
        del self._ended[name]
        if self._latest.get(name.of) == name.attempt and name not in self._productions:
            del self._latest[name.of]

    def _end_waiting(self, name: Name, reason: str) -> None:
        for subscription in self._waiting.pop(name, {}):
            subscription.consumer.on_lost(reason)
