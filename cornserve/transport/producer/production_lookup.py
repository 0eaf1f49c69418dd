"""Finds productions for subscribers, and keeps subscribers of productions that have not begun."""

from __future__ import annotations

from collections.abc import Callable

from cornserve.transport.errors import DuplicateProductionError
from cornserve.transport.producer.publication import Publication, Subscriber
from cornserve.transport.tensor import ProductionId

_MAX_ENDED = 16_384
"""Ended productions that are remembered. A subscriber to an older one waits until it unsubscribes."""

_SUPERSEDED = "a later attempt has begun"


class ProductionRegistry:
    def __init__(self) -> None:
        self._publications: dict[ProductionId, Callable[[str], Publication]] = {}
        """Returns the publication of an output."""
        self._waiting: dict[tuple[str, int], set[Subscriber]] = {}
        """Subscribers by invocation, whichever attempt they wait for."""
        self._ended: dict[ProductionId, None] = {}
        self._latest: dict[tuple[str, int], int] = {}
        """The latest attempt of each invocation that is remembered."""

    def begin(self, production: ProductionId, publication: Callable[[str], Publication]) -> None:
        """Subscribes the waiting subscribers. Those of earlier attempts lose their tensors.

        Raises:
            DuplicateProductionError: the production has begun and has not ended.
        """
        if production in self._publications:
            raise DuplicateProductionError(
                f"attempt {production.attempt} of invocation {production.invocation} of request "
                f"{production.request_id} has tensors here already: give each attempt another number"
            )
        self._publications[production] = publication
        key = production.invocation_key
        self._latest[key] = max(production.attempt, self._latest.get(key, 0))
        for subscriber in self._waiting.pop(key, ()):
            self.subscribe(subscriber)

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
            self._waiting.setdefault(production.invocation_key, set()).add(subscriber)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        if subscriber.publication is not None:
            subscriber.publication.unsubscribe(subscriber)
        elif waiting := self._waiting.get(subscriber.production.invocation_key):
            waiting.discard(subscriber)
            if not waiting:
                del self._waiting[subscriber.production.invocation_key]

    def _remove_ended(self, production: ProductionId) -> None:
        del self._ended[production]
        if self._latest.get(production.invocation_key) == production.attempt and production not in self._publications:
            del self._latest[production.invocation_key]
