"""The seconds of a step of a language model's engine, and the limits of a step."""

from __future__ import annotations

from dataclasses import dataclass

from cornserve_planner.errors import require_non_negative, require_positive


@dataclass(frozen=True, slots=True)
class StepModel:
    """The seconds of a step: `fixed + max(weights, per_token * tokens) + per_sequence * sequences +
    per_context_token * context`.

    Args:
        weights: seconds to read the weights, which each step needs, however few tokens it computes.
        per_context_token: seconds to read the keys and values of a token of context.
    """

    fixed: float
    weights: float = 0.0
    per_token: float = 0.0
    per_sequence: float = 0.0
    per_context_token: float = 0.0

    def __post_init__(self) -> None:
        for name in ("fixed", "weights", "per_token", "per_sequence", "per_context_token"):
            require_non_negative(name, getattr(self, name))
        require_positive("fixed + weights", self.fixed + self.weights)

    def seconds(self, tokens: int, sequences: int, context: int) -> float:
        """Returns the seconds of a step.

        Args:
            tokens: the tokens that the step computes.
            sequences: the sequences to which they belong.
            context: the tokens of these sequences whose keys and values exist after the step.
        """
        return (
            self.fixed
            + max(self.weights, self.per_token * tokens)
            + self.per_sequence * sequences
            + self.per_context_token * context
        )


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """The limits of an engine, with vLLM's names.

    Args:
        cache_blocks: blocks of the key-value cache, of `block_size` tokens each.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    cache_blocks: int
    block_size: int = 16

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "cache_blocks", "block_size"):
            require_positive(name, getattr(self, name))
        require_positive("max_num_batched_tokens - max_num_seqs", self.max_num_batched_tokens - self.max_num_seqs)

    def blocks(self, tokens: int) -> int:
        """Returns the blocks that hold the keys and values of a sequence."""
        return -(-tokens // self.block_size)

    def fits(self, prompt: int, output: int) -> bool:
        """Whether the cache holds a sequence alone. The keys and values of its last token are not needed."""
        return self.blocks(prompt + output - 1) <= self.cache_blocks
