"""How a language model draws its tokens, with the names of OpenAI's API, and vLLM's where OpenAI has none."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Gt, Le, MaxLen, MinLen
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=())
"""What comes from clients is taken as it is meant or not at all: a "5" is no number, and neither are true and NaN."""

TokenId = Annotated[int, Ge(0), Le(2**31 - 1)]

Tokens = Annotated[list[TokenId], MinLen(1), MaxLen(1 << 20)]
"""A text as a tokenizer sees it."""

MAX_CHOICES = 128
"""Of one request, over all of its prompts."""


class SamplingRequest(BaseModel):
    """What `ChatRequest` and `CompletionRequest` have in common."""

    model_config = STRICT | ConfigDict(frozen=True)

    temperature: Annotated[float, Ge(0), Le(2)] = 1.0
    """0: greedy."""
    top_p: Annotated[float, Gt(0), Le(1)] = 1.0
    top_k: Annotated[int, Ge(0), Le(1_000_000)] = 0
    """Draws from the so many likeliest tokens; 0: from all."""
    min_p: Annotated[float, Ge(0), Le(1)] = 0.0
    """Draws from the tokens that are at least so likely, as a fraction of the likeliest."""
    presence_penalty: Annotated[float, Ge(-2), Le(2)] = 0.0
    frequency_penalty: Annotated[float, Ge(-2), Le(2)] = 0.0
    repetition_penalty: Annotated[float, Gt(0), Le(2)] = 1.0
    """Above 1, tokens of prompt and answer become less likely."""
    logit_bias: (
        Annotated[
            dict[Annotated[str, StringConstraints(pattern=r"^[0-9]{1,9}$")], Annotated[float, Ge(-100), Le(100)]],
            MaxLen(300),
        ]
        | None
    ) = None
    """What is added to tokens' logits, by their ids."""
    seed: Annotated[int, Ge(-(2**63)), Le(2**63 - 1)] | None = None
    stop: Annotated[list[Annotated[str, MinLen(1), MaxLen(1000)]], MaxLen(4)] = Field(default_factory=list)
    """The answer ends before the first of these strings."""
    stop_token_ids: Annotated[list[TokenId], MaxLen(128)] | None = None
    """The answer ends with the first of these tokens."""
    n: Annotated[int, Ge(1), Le(MAX_CHOICES)] = 1
    """So many answers are drawn."""
    ignore_eos: bool = False
    """Generates on until `max_tokens`, for benchmarks."""

    @field_validator("stop", mode="before")
    @classmethod
    def _stop_may_be_one_string(cls, stop: object) -> object:
        return [stop] if isinstance(stop, str) else stop

    @property
    def can_be_continued(self) -> bool:
        """Whether each token follows from the tokens before it and nothing else, so that another engine can go on."""
        has_penalties = (self.presence_penalty, self.frequency_penalty, self.repetition_penalty) != (0, 0, 1)
        return self.n == 1 and self.seed is None and not has_penalties
