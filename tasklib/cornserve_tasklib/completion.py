"""Completion requests: a language model continues a text, without a chat template."""

from __future__ import annotations

from typing import Annotated, Self

from annotated_types import Ge, Le, MinLen
from pydantic import Discriminator, Tag, model_validator

from cornserve_policies.input_size import InputSize
from cornserve_tasklib.sampling_fields import SamplingFields, Tokens, estimate_tokens
from cornserve_tasklib.structured_outputs import StructuredOutputs

Prompt = Annotated[
    Annotated[str, MinLen(1), Tag("prompt:text")] | Annotated[Tokens, Tag("prompt:tokens")],
    Discriminator(lambda prompt: "prompt:text" if isinstance(prompt, str) else "prompt:tokens"),
]


class CompletionRequest(SamplingFields):
    """A text for a language model to continue."""

    prompt: Prompt
    """A text, or a list of token ids."""
    max_tokens: Annotated[int, Ge(0)] = 16
    """The maximum number of generated tokens. 0 requires `echo`."""
    echo: bool = False
    """Whether the response starts with the prompt."""
    logprobs: Annotated[int, Ge(0), Le(20)] | None = None
    """The number of likeliest tokens whose log probabilities are included at each position. 0 includes only the log
    probability of the token itself; None includes no log probabilities."""
    add_special_tokens: bool = True
    """Whether the tokenizer adds the model's special tokens to a text."""
    structured_outputs: StructuredOutputs | None = None
    """vLLM's constraint of the generated text."""

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if self.max_tokens == 0 and not self.echo:
            raise ValueError("max_tokens: 0 needs echo: true: set it, or give at least 1")
        if self.echo and self.prompt_logprobs is not None and self.prompt_logprobs < (self.logprobs or 0):
            raise ValueError(f"prompt_logprobs: an echo needs at least those of logprobs: set it to {self.logprobs}")
        return self

    @property
    def token_limit(self) -> int:
        """The maximum number of generated tokens."""
        return self.max_tokens

    @property
    def size(self) -> InputSize:
        """The size, of which the tokens of a text are estimated."""
        return InputSize(text=estimate_tokens(self.prompt), output=self.max_tokens)

    @property
    def continues_from_tokens(self) -> bool:
        is_text = not self.echo and self.logprobs is None and self.structured_outputs is None
        return is_text and super().continues_from_tokens
