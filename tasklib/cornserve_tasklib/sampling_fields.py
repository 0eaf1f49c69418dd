"""Sampling parameters, with the names of OpenAI's API, or vLLM's for those that OpenAI does not provide.

The language model executor passes them to vLLM by name.
"""

from __future__ import annotations

from typing import Annotated, Self

from annotated_types import Ge, Gt, Le, MaxLen, MinLen
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationInfo, field_validator
from pydantic.json_schema import SkipJsonSchema

from cornserve.task.references import ReferenceDecoder

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=())
"""Rejects unknown fields and values of another type: "5", true and NaN are not numbers."""

TokenId = Annotated[int, Ge(0), Le(2**31 - 1)]

Tokens = Annotated[list[TokenId], MinLen(1), MaxLen(1 << 20)]
"""A tokenized text."""

CHARACTERS_PER_TOKEN = 4
"""The characters of a token of English text, by which sizes are estimated."""

MAX_CHOICES = 128
"""Maximum number of choices of a request, over all of its prompts."""


def estimate_tokens(text: str | list[int]) -> int:
    """Returns the number of tokens of a text, which is exact for a tokenized one."""
    return len(text) // CHARACTERS_PER_TOKEN if isinstance(text, str) else len(text)


def listed(given: object) -> object:
    """Returns a list with the given text. Other values do not change."""
    return [given] if isinstance(given, str) else given


class SamplingFields(BaseModel):
    """Fields that `ChatRequest` and `CompletionRequest` share."""

    model_config = STRICT | ConfigDict(frozen=True)

    temperature: Annotated[float, Ge(0), Le(2)] = 1.0
    """The randomness of sampling. 0 selects greedy decoding."""
    top_p: Annotated[float, Gt(0), Le(1)] = 1.0
    """Samples from the likeliest tokens whose probabilities add up to this value."""
    top_k: Annotated[int, Ge(-1), Le(1_000_000)] = 0
    """Samples from this number of likeliest tokens. 0 and -1 sample from all tokens."""
    min_p: Annotated[float, Ge(0), Le(1)] = 0.0
    """Samples from tokens with at least this probability, relative to the likeliest token."""
    presence_penalty: Annotated[float, Ge(-2), Le(2)] = 0.0
    """Subtracted from the logits of tokens that the response already contains."""
    frequency_penalty: Annotated[float, Ge(-2), Le(2)] = 0.0
    """Subtracted from the logit of a token for each of its occurrences in the response."""
    repetition_penalty: Annotated[float, Gt(0), Le(2)] = 1.0
    """Values above 1 make the tokens of the prompt and the response less likely."""
    logit_bias: (
        Annotated[
            dict[Annotated[str, StringConstraints(pattern=r"^[0-9]{1,9}$")], Annotated[float, Ge(-100), Le(100)]],
            MaxLen(300),
        ]
        | None
    ) = None
    """Values to add to the logits of tokens, by token id."""
    seed: Annotated[int, Ge(-(2**63)), Le(2**63 - 1)] | None = None
    """Makes sampling reproducible."""
    stop: Annotated[list[Annotated[str, MinLen(1), MaxLen(1000)]], MaxLen(4)] = Field(default_factory=list)
    """Generation stops before the first of these strings. A single string is also valid."""
    stop_token_ids: Annotated[list[TokenId], MaxLen(128)] | None = None
    """Generation stops after the first of these tokens."""
    n: Annotated[int, Ge(1), Le(MAX_CHOICES)] = 1
    """The number of choices to generate."""
    include_stop_str_in_output: bool = False
    """Whether the response contains the string of `stop` that has ended it."""
    min_tokens: Annotated[int, Ge(0), Le(1_000_000)] = 0
    """The number of tokens before which no end token and none of `stop` ends the response."""
    skip_special_tokens: bool = True
    """Whether the text leaves out special tokens, such as the end token."""
    ignore_eos: bool = False
    """Whether to continue after the model's end token until `max_tokens`, for benchmarks."""
    priority: Annotated[int, Ge(-(2**31)), Le(2**31 - 1)] = 0
    """Requests with a lower value run first, on an engine with vLLM's `scheduling_policy` "priority"."""
    cache_salt: Annotated[str, StringConstraints(pattern=r"^[^@/\\\x00]{1,128}$")] | None = None
    """A text that separates the KV cache: only requests with the same one share the cache of equal prompts."""
    prompt_logprobs: Annotated[int, Ge(0), Le(20)] | None = None
    """The number of likeliest tokens whose log probabilities the response contains for each position of the prompt, as
    in vLLM. The token of the prompt is always one of them."""
    lora: SkipJsonSchema[str | None] = None
    """The LoRA adapter that the executor applies. Only tasks of language models set it."""

    prompt_only: SkipJsonSchema[bool] = False
    """Whether the response has the prompt alone: its tokens, and with `echo` its text. Only the gateway sets it."""

    @field_validator("lora")
    @classmethod
    def _reject_adapter_from_client(cls, lora: str | None, info: ValidationInfo) -> str | None:
        if lora is not None and not isinstance(info.context, ReferenceDecoder):
            raise ValueError("a request cannot select an adapter: remove the field, and use the app of the adapter")
        return lora

    @field_validator("prompt_only")
    @classmethod
    def _reject_prompt_only_from_client(cls, prompt_only: bool, info: ValidationInfo) -> bool:
        if prompt_only and not isinstance(info.context, ReferenceDecoder):
            raise ValueError("a request cannot set it: use /tokenize")
        return prompt_only

    def with_lora(self, name: str) -> Self:
        """Returns a copy for the LoRA adapter `name`."""
        return self.model_copy(update={"lora": name})

    @field_validator("top_k")
    @classmethod
    def _normalize_unlimited_top_k(cls, top_k: int) -> int:
        return max(top_k, 0)

    _list_stop = field_validator("stop", mode="before")(listed)

    @property
    def can_be_repeated(self) -> bool:
        """Whether another executor generates the same response again."""
        return self.temperature == 0 or self.seed is not None

    @property
    def continues_from_tokens(self) -> bool:
        """Whether each token of a response depends only on the preceding ones, so that another executor can continue
        with those as a part of the prompt."""
        has_penalties = (self.presence_penalty, self.frequency_penalty, self.repetition_penalty) != (0, 0, 1)
        is_seeded = self.seed is not None and self.temperature != 0  # Greedy sampling does not use the seed.
        is_plain = self.n == 1 and not is_seeded and self.prompt_logprobs is None
        return is_plain and not has_penalties and not self.min_tokens
