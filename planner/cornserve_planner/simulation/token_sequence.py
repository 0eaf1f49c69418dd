"""A prompt and its output, as the engine of a language model processes them."""

from __future__ import annotations

from typing import Any, Protocol


class TokenSequence:
    """A prompt and its output.

    Args:
        prompt, output: numbers of tokens, at least 1.
        cached: tokens of the prompt whose keys and values arrive with it. They are lost if it is preempted.
        priority: smaller numbers first, as in vLLM.
        owner: not read here.
    """

    __slots__ = (
        "admission", "base", "cached", "computed", "end_step", "generated", "is_cancelled", "is_running", "order",
        "output", "owner", "priority", "prompt",
    )  # fmt: skip

    def __init__(self, prompt: int, output: int, *, cached: int = 0, priority: int = 0, owner: Any = None) -> None:
        self.prompt = prompt
        self.output = output
        self.cached = cached
        self.priority = priority
        self.owner = owner
        self.order = self.admission = 0
        self.generated = 0
        """Tokens of the output that existed when the sequence was last admitted."""
        self.computed = 0
        """Tokens of a prompt that is not complete whose keys and values exist."""
        self.base = 0
        """The tokens whose keys and values exist, minus the number of the next step, while it generates."""
        self.end_step = 0
        """The number of the step after its last one, while it generates."""
        self.is_running = self.is_cancelled = False

    @property
    def tokens(self) -> int:
        """The tokens to compute before the next one is generated."""
        return self.prompt + self.generated


class SequenceListener(Protocol):
    def first_output(self, owner: Any) -> None:
        """The first token of a sequence exists."""

    def ended(self, owner: Any) -> None:
        """All tokens of a sequence exist."""
