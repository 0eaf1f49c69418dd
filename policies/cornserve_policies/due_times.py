"""Due times of invocations: earliest deadline first, with targets in proportion to the size [M §4.3].

The paper lets urgent requests go first, and leaves open which ones are urgent and how long others wait. Here, an
invocation is due at the arrival of its request plus a part of the latency target, in proportion to its tokens: small
inputs go first. Since the part is at most the whole target, an invocation waits for no request that arrives later than
the target after it.
"""

from __future__ import annotations

from typing import Final

DECAY: Final = 0.999
"""Factor by which the largest known size shrinks with each invocation. After 700 others, it counts half."""


class SizeTargets:
    """Due times of the invocations of one executor group.

    Args:
        target: the seconds after which the largest inputs are due.
    """

    __slots__ = ("_largest", "_target")

    def __init__(self, target: float) -> None:
        self._target = target
        self._largest = 0.0

    def due(self, arrived: float, tokens: int) -> float:
        """Returns the time at which an invocation is due, later than `arrived` and at most by the target.

        Args:
            arrived: the arrival of the request, in seconds.
            tokens: the size of the request's inputs for the group so far, this one included. 0: it is unknown, and
                counts as the largest one.
        """
        self._largest = max(self._largest * DECAY, float(tokens))
        return arrived + self._target * (tokens / self._largest if tokens else 1.0)
