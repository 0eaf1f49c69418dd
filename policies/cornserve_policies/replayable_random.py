"""Random choices that every replay of a request repeats, on every gateway."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import accumulate
from math import inf


class ReplayableRandom:
    """The random numbers of one request: the n-th is a hash of (request id, n) [C §5.3].

    Args:
        index: the index of the first number.
    """

    __slots__ = ("_request_id", "index")

    def __init__(self, request_id: str, index: int = 0) -> None:
        self._request_id = request_id
        self.index = index
        """The index of the next number. A replay resets it."""

    def uniform(self) -> float:
        """Returns the next number, in [0, 1)."""
        digest = blake2b(f"{self._request_id}/{self.index}".encode(), digest_size=8).digest()
        self.index += 1
        return (int.from_bytes(digest, "big") >> 11) / (1 << 53)

    def choose(self, weights: Sequence[float]) -> int:
        """Returns an index below `len(weights)`, with probability proportional to its weight."""
        if len(weights) == 1 and 0 < weights[0] < inf:  # most apps have one path: skip the hash
            self.index += 1
            return 0
        check_weights(weights)
        point = self.uniform() * sum(weights)
        # An index with weight zero is never chosen: its cumulative sum equals that of its predecessor.
        return next((i for i, upto in enumerate(accumulate(weights)) if point < upto), len(weights) - 1)


def check_weights(weights: Sequence[float]) -> None:
    """Raises ValueError unless all weights are finite, none is negative and at least one is positive."""
    if not (all(0 <= weight < inf for weight in weights) and sum(weights) > 0):
        raise ValueError(f"weights must be finite, none negative and one positive, not {list(weights)}")
