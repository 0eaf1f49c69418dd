"""Finds productions for subscribers, and keeps subscribers of productions that have not begun."""

from __future__ import annotations

from collections.abc import Callable

from cornserve.transport.producer.publication import Publication, Subscriber
from cornserve.transport.tensor import ProductionId

_MAX_ENDED = 16_384
"""Ended productions that are remembered. A subscriber to an older one waits until it unsubscribes."""

_SUPERSEDED = "a later attempt has begun"


class ProductionRegistry:
    def __init__(self) -> None:
        self._publications: dict[ProductionId, Callable[[str], Publication]] = {}
        """Returns the publication of an output."""
        self._waiting: dict[ProductionId, set[Subscriber]] = {}
        self._ended: dict[ProductionId, None] = {}
        self._latest: dict[tuple[str, int], int] = {}
        """The latest attempt of each invocation that is remembered."""

    def begin(self, production: ProductionId, publication: Callable[[str], Publication]) -> None:
        """Subscribes the waiting subscribers. Those of earlier attempts lose their tensors."""
        if production in self._publications:
            raise ValueError(f"{production} has begun already")
        self._publications[production] = publication
        key = production.invocation_key
        self._latest[key] = max(production.attempt, self._latest.get(key, 0))
        for earlier in range(production.attempt):
            for subscriber in self._waiting.pop(production._replace(attempt=earlier), ()):
                subscriber.lose(_SUPERSEDED)
        for subscriber in self._waiting.pop(production, ()):
            publication(subscriber.output).subscribe(subscriber)

    def end(self, production: ProductionId) -> None:
        del self._publications[production]
        self._ended[production] = None
        if len(self._ended) > _MAX_ENDED:
            self._remove_ended(next(iter(self._ended)))

    def subscribe(self, subscriber: Subscriber) -> None:
        production = subscriber.production
        if production.attempt < self._latest.get(production.invocation_key, 0):
            subscriber.lose(_SUPERSEDED)
        elif publication := self._publications.get(production):
            publication(subscriber.output).subscribe(subscriber)
        elif production in self._ended:
            subscriber.lose("its producer has ended")
        else:
            self._waiting.setdefault(production, set()).add(subscriber)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        if subscriber.publication is not None:
            subscriber.publication.unsubscribe(subscriber)
        elif waiting := self._waiting.get(subscriber.production):
            waiting.discard(subscriber)
            if not waiting:
                del self._waiting[subscriber.production]

    def _remove_ended(self, production: ProductionId) -> None:
        del self._ended[production]
        if self._latest.get(production.invocation_key) == production.attempt and production not in self._publications:
            del self._latest[production.invocation_key]
