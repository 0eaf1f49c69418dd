"""The blocks of the key-value cache that generating sequences need in the next steps.

A sequence whose keys and values fill its blocks needs another one for its next token. With `base` tokens at step 0,
this is the case in the steps `n` for which `base + n` is a multiple of the block size.
"""

from __future__ import annotations


class BlockNeeds:
    """Counts the generating sequences by the steps in which they need a block."""

    __slots__ = ("_by_step", "_sequences", "_size")

    def __init__(self, block_size: int) -> None:
        self._size = block_size
        self._sequences = 0
        self._by_step = [0] * block_size
        """The sequences that need a block in the steps with a number `n`, at `n % block_size`."""

    def add(self, base: int) -> None:
        """Adds a sequence. `base`: the tokens whose keys and values exist, minus the number of the step."""
        self._sequences += 1
        self._by_step[-base % self._size] += 1

    def remove(self, base: int) -> None:
        self._sequences -= 1
        self._by_step[-base % self._size] -= 1

    def at(self, step: int) -> int:
        """Returns the blocks that all sequences need in a step."""
        return self._by_step[step % self._size]

    def within(self, step: int, steps: int) -> int:
        """Returns the blocks that all sequences need in a number of steps, from `step` on."""
        rounds, rest = divmod(steps, self._size)
        needs, size = self._by_step, self._size
        return rounds * self._sequences + sum(needs[(step + index) % size] for index in range(rest))

    def steps_with(self, free: int, step: int, most: int) -> int:
        """Returns for how many steps, at most `most`, a number of free blocks is enough for all sequences."""
        size, needs, sequences = self._size, self._by_step, self._sequences
        if -(-most // size) * sequences <= free:
            return most
        rounds, rest = divmod(free, sequences)
        steps = rounds * size
        while steps < most and (needed := needs[(step + steps) % size]) <= rest:
            rest -= needed
            steps += 1
        return min(steps, most)
