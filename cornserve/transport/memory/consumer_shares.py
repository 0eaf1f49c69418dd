"""Limits the memory of the tensors for one consumer, so that one that hangs does not stop the tensors for others.

Each of n consumers uses one part in n of the common part of a slab. A tensor larger than this part may use half of it
while no other tensor for the consumer is there. The limit of a production that has begun to allocate does not apply any
more: it would wait for itself. The reserve has no such limit, so that the oldest request always continues.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class ConsumerUse:
    """The memory of the tensors for one consumer, in pages."""

    limit: int
    pages: int = 0
    productions: int = 0


class ConsumerShares:
    """
    Args:
        pages: the memory that consumers share.
        on_space: called when a consumer uses less, or another limit applies.
    """

    def __init__(self, pages: int, on_space: Callable[[], None]) -> None:
        self._pages = pages
        self._on_space = on_space
        self._uses: dict[str, ConsumerUse] = {}
        """The consumers of productions that have not ended."""

    def join(self, consumer: str, consumers: int, pages: int) -> None:
        """Adds a production that uses `pages`. `consumers`: the number of processes among which the gateway chooses."""
        limit = self._pages // consumers
        use = self._uses.setdefault(consumer, ConsumerUse(limit))
        use.limit = limit
        use.productions += 1
        use.pages += pages
        self._on_space()

    def leave(self, consumer: str, pages: int) -> None:
        use = self._uses[consumer]
        use.productions -= 1
        use.pages -= pages
        if not use.productions:
            del self._uses[consumer]
        self._on_space()

    def charge(self, consumer: str, pages: int) -> None:
        """Adds pages of a production that has joined; a negative number removes them."""
        self._uses[consumer].pages += pages
        if pages < 0:
            self._on_space()

    def allows(self, consumer: str, pages: int) -> bool:
        """Returns whether the consumer's first tensor of a production may use this memory now."""
        use = self._uses[consumer]
        return use.pages + pages <= use.limit or (not use.pages and pages <= self._pages // 2)


class ProductionShare:
    """The memory of one production in the share of its consumer. Without a consumer, it has no limit."""

    def __init__(self, shares: ConsumerShares) -> None:
        self._shares = shares
        self._consumer = ""
        self._pages = 0

    def bind(self, consumer: str, consumers: int) -> None:
        """Moves the memory to the share of a consumer."""
        self.close()
        self._consumer = consumer
        self._shares.join(consumer, consumers, self._pages)

    def allows(self, pages: int) -> bool:
        return not self._consumer or self._pages > 0 or self._shares.allows(self._consumer, pages)

    def charge(self, pages: int) -> None:
        """Adds pages that the production uses; a negative number removes them."""
        self._pages += pages
        if self._consumer:
            self._shares.charge(self._consumer, pages)

    def close(self) -> None:
        """Removes the memory from the share, because the production ends or changes its consumer."""
        if self._consumer:
            self._shares.leave(self._consumer, self._pages)
            self._consumer = ""
