"""Chat: what a language model is asked, with the names of OpenAI's API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Self

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import field_validator, model_validator

from cornserve.task import Tensor
from cornserve_tasklib.image import Image, ImagePart
from cornserve_tasklib.messages import ChatMessage
from cornserve_tasklib.sampling import SamplingRequest
from cornserve_tasklib.tools import NamedToolChoice, ResponseFormat, ToolChoice, Tools

RESERVED = frozenset(
    {"add_generation_prompt", "chat_template", "continue_final_message", "documents", "messages", "tokenize", "tools"}
)
"""What templates are given anyway."""


class ChatRequest(SamplingRequest):
    """A conversation, and how to go on with it.

    ChatRequest.ask("What is the capital of France?", max_tokens=16)
    """

    messages: Annotated[list[ChatMessage], MinLen(1), MaxLen(4096)]
    max_tokens: Annotated[int, Ge(1)] | None = None
    """At most so many tokens are generated; by default, as many as the model's context holds."""
    max_completion_tokens: Annotated[int, Ge(1)] | None = None
    """The newer name of `max_tokens`."""
    logprobs: bool = False
    """Whether each token comes with its logarithmic probability."""
    top_logprobs: Annotated[int, Ge(0), Le(20)] = 0
    """And with those of so many likeliest tokens."""
    tools: Annotated[Tools, MinLen(1)] | None = None
    tool_choice: ToolChoice | None = None
    """By default "auto" where there are tools."""
    parallel_tool_calls: bool = True
    """Whether the model may ask for several calls at once."""
    response_format: ResponseFormat | None = None
    chat_template_kwargs: Annotated[dict[str, Any], MaxLen(64)] | None = None
    """Further variables of the model's template."""
    add_generation_prompt: bool = True
    """Whether the template opens an answer."""
    continue_final_message: bool = False
    """Goes on with the last message instead of answering it."""

    @field_validator("chat_template_kwargs")
    @classmethod
    def _none_is_reserved(cls, variables: dict[str, Any] | None) -> dict[str, Any] | None:
        if reserved := RESERVED & (variables or {}).keys():
            raise ValueError(f"{min(reserved)!r} cannot be given as a variable of the template")
        return variables

    @model_validator(mode="after")
    def _fields_fit_together(self) -> Self:
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise ValueError("max_tokens and max_completion_tokens are two names of one limit: give one of them")
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs: true")
        if self.continue_final_message and self.add_generation_prompt:
            raise ValueError("continue_final_message needs add_generation_prompt: false")
        if self.tool_choice is not None:
            self._check_tool_choice(self.tool_choice)
        return self

    def _check_tool_choice(self, choice: str | NamedToolChoice) -> None:
        if self.tools is None and choice != "none":
            raise ValueError("tool_choice needs tools")
        if isinstance(choice, NamedToolChoice) and choice.function.name not in {
            tool.function.name for tool in self.tools or ()
        }:
            raise ValueError(f"tool_choice: there is no tool {choice.function.name!r}")

    @property
    def token_limit(self) -> int | None:
        return self.max_completion_tokens if self.max_tokens is None else self.max_tokens

    @property
    def can_be_continued(self) -> bool:
        is_text = not (self.logprobs or self.tools or self.response_format)
        return is_text and super().can_be_continued

    @property
    def image_parts(self) -> list[ImagePart]:
        """Of all messages, in order of appearance."""
        return [part for message in self.messages for part in message.images]

    @property
    def images(self) -> list[Image]:
        """In order of appearance."""
        return [part.image for part in self.image_parts]

    def with_embeddings(self, embeddings: Sequence[Tensor | None]) -> ChatRequest:
        """This one, with images in encoded form: with None, an image stays as it is."""
        parts = self.image_parts
        if len(embeddings) != len(parts):
            raise ValueError(f"there are {len(embeddings)} embeddings for {len(parts)} images: one is needed for each")
        replaced = iter(
            [
                part if embedding is None else ImagePart(type="image", image=part.image.seen, embedding=embedding)
                for part, embedding in zip(parts, embeddings, strict=True)
            ]
        )
        return self.model_copy(update={"messages": [message.with_images(replaced) for message in self.messages]})

    @classmethod
    def ask(cls, question: str, *, max_tokens: int | None = None, temperature: float = 1.0) -> ChatRequest:
        """A conversation of one question."""
        message = ChatMessage(role="user", content=question)
        return cls(messages=[message], max_tokens=max_tokens, temperature=temperature)
