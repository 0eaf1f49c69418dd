"""Completion: a text that a language model goes on with, without a chat template."""

from __future__ import annotations

from typing import Annotated, Self

from annotated_types import Ge, Le, MinLen
from pydantic import Discriminator, Tag, model_validator

from cornserve_tasklib.sampling import SamplingRequest, Tokens

Prompt = Annotated[
    Annotated[str, MinLen(1), Tag("prompt:text")] | Annotated[Tokens, Tag("prompt:tokens")],
    Discriminator(lambda prompt: "prompt:text" if isinstance(prompt, str) else "prompt:tokens"),
]


class CompletionRequest(SamplingRequest):
    prompt: Prompt
    """A text, or the ids of its tokens."""
    max_tokens: Annotated[int, Ge(0)] = 16
    """At most so many tokens are generated; 0 only with `echo`."""
    echo: bool = False
    """Whether the answer begins with the prompt."""
    logprobs: Annotated[int, Ge(0), Le(20)] | None = None
    """Whether each token comes with its logarithmic probability, and those of so many likeliest tokens."""
    add_special_tokens: bool = True
    """Whether the tokenizer begins a text as the model expects."""

    @model_validator(mode="after")
    def _something_is_asked_for(self) -> Self:
        if self.max_tokens == 0 and not self.echo:
            raise ValueError("max_tokens: 0 needs echo: true")
        return self

    @property
    def token_limit(self) -> int:
        return self.max_tokens

    @property
    def can_be_continued(self) -> bool:
        return not self.echo and self.logprobs is None and super().can_be_continued
