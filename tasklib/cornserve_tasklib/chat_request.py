"""Chat requests, with the field names of OpenAI's API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import ValidationInfo, field_validator, model_validator

from cornserve.task import Tensor
from cornserve_policies.input_size import InputSize
from cornserve_tasklib.enforced_schema import find_unenforced
from cornserve_tasklib.media import Image, Media, MediaPart
from cornserve_tasklib.media_options import MediaLoading, MediaOptions, MediaProcessing
from cornserve_tasklib.messages import AudioUrlPart, ChatMessage, InputAudioPart, VideoUrlPart
from cornserve_tasklib.sampling_fields import CHARACTERS_PER_TOKEN, SamplingFields
from cornserve_tasklib.structured_outputs import StructuredOutputs
from cornserve_tasklib.tools import NamedToolChoice, ResponseFormat, ToolChoice, Tools

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

RESERVED = frozenset(
    {"add_generation_prompt", "chat_template", "continue_final_message", "documents", "messages", "tokenize", "tools"}
)
"""Template variables that a request cannot set."""


class ChatRequest(SamplingFields):
    """A conversation for a language model to continue.

    ChatRequest.ask("What is the capital of France?", max_tokens=16)
    """

    messages: Annotated[list[ChatMessage], MinLen(1), MaxLen(4096)]
    """The messages of the conversation."""
    max_tokens: Annotated[int, Ge(1)] | None = None
    """The maximum number of generated tokens. By default, generation is limited by the model's context length."""
    max_completion_tokens: Annotated[int, Ge(1)] | None = None
    """OpenAI's newer name of `max_tokens`."""
    logprobs: bool = False
    """Whether the response includes the log probability of each token."""
    top_logprobs: Annotated[int, Ge(0), Le(20)] = 0
    """The number of likeliest tokens whose log probabilities are included at each position. Requires `logprobs`."""
    tools: Annotated[Tools, MinLen(1)] | None = None
    """The functions that the model may call. Requires a `tool_parser` of the task."""
    tool_choice: ToolChoice | None = None
    """One of "none", "auto" and "required", or the function to call. Defaults to "auto" if the request has tools."""
    parallel_tool_calls: bool = True
    """Whether the model may call several functions in a response."""
    response_format: ResponseFormat | None = None
    """The format of the generated text."""
    structured_outputs: StructuredOutputs | None = None
    """vLLM's constraint of the generated text."""
    reasoning_effort: ReasoningEffort | None = None
    """The amount of reasoning, for models whose chat template has `reasoning_effort` or `enable_thinking`. "max" is
    "xhigh"."""
    chat_template_kwargs: Annotated[dict[str, Any], MaxLen(64)] | None = None
    """Further variables of the model's chat template."""
    add_generation_prompt: bool = True
    """Whether the chat template starts a new assistant message."""
    continue_final_message: bool = False
    """Whether the model continues the last message. Requires `add_generation_prompt=False`."""
    mm_processor_kwargs: MediaProcessing | None = None
    """Arguments of the model's processor of media."""
    media_io_kwargs: MediaLoading | None = None
    """Arguments of the loaders of media."""

    @field_validator("chat_template_kwargs")
    @classmethod
    def _check_reserved_variables(cls, variables: dict[str, Any] | None) -> dict[str, Any] | None:
        if reserved := RESERVED & (variables or {}).keys():
            raise ValueError(f"reserved template variable {min(reserved)!r}: remove it")
        return variables

    @field_validator("tools", mode="before")
    @classmethod
    def _omit_empty_tools(cls, tools: object) -> object:
        return None if tools == [] else tools

    @field_validator("reasoning_effort")
    @classmethod
    def _normalize_largest_effort(cls, effort: ReasoningEffort | None) -> ReasoningEffort | None:
        return "xhigh" if effort == "max" else effort

    @field_validator("mm_processor_kwargs")
    @classmethod
    def _check_sound_of_videos(cls, options: MediaProcessing | None, info: ValidationInfo) -> MediaProcessing | None:
        if options is not None and options.use_audio_in_video:
            contents = [message.content for message in info.data.get("messages", ())]
            parts = [part for content in contents if isinstance(content, list) for part in content]
            has_audio = any(isinstance(part, AudioUrlPart | InputAudioPart) for part in parts)
            if has_audio and any(isinstance(part, VideoUrlPart) for part in parts):
                raise ValueError("use_audio_in_video: the chat contains videos and audio: remove the audio, or this")
        return options

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        self._check_token_limits()
        if self.top_logprobs and not self.logprobs:
            raise ValueError(f"top_logprobs: {self.top_logprobs} needs logprobs: true")
        if self.continue_final_message and self.add_generation_prompt:
            raise ValueError("continue_final_message: true needs add_generation_prompt: false")
        if self.tools is None and "tools" in self.model_fields_set and self.tool_choice in ("auto", "none"):
            object.__setattr__(self, "tool_choice", None)  # The request has an empty list of tools.
        if self.tool_choice is not None:
            self._check_tool_choice(self.tool_choice)
        if self.structured_outputs is not None:
            self._check_other_constraints()
        self._check_strict_tools()
        return self

    @model_validator(mode="after")
    def _add_sound_of_videos(self) -> Self:
        """Adds the sound of videos as audio, which the gateway reads from their files."""
        if self.mm_processor_kwargs is None or not self.mm_processor_kwargs.use_audio_in_video:
            return self
        self.messages[:] = [message.with_sounds() for message in self.messages]
        return self

    def _check_token_limits(self) -> None:
        limits = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(limits) > 1:
            raise ValueError(
                f"max_completion_tokens: {self.max_completion_tokens} differs from max_tokens, which is another name "
                f"of the limit and {self.max_tokens}: give one"
            )

    def _check_other_constraints(self) -> None:
        if self.response_format is not None and self.response_format.type != "text":
            raise ValueError("structured_outputs: response_format also constrains the text: remove one")
        if self.tools is not None and self.tool_choice != "none":
            raise ValueError(
                'structured_outputs: tool calls are not allowed: remove tools, or set tool_choice to "none"'
            )

    def _check_tool_choice(self, choice: str | NamedToolChoice) -> None:
        if self.tools is None and choice != "none":
            raise ValueError("tool_choice: is set without tools: add tools, or remove it")
        if isinstance(choice, NamedToolChoice) and choice.function.name not in {
            tool.function.name for tool in self.tools or ()
        }:
            raise ValueError(f"tool_choice: unknown tool {choice.function.name!r}: add it to tools")

    def _check_strict_tools(self) -> None:
        for index, tool in enumerate(self.tools or ()):
            parameters = tool.function.parameters
            if tool.function.strict and parameters and (found := find_unenforced(parameters)) is not None:
                raise ValueError(found.message(f"tools[{index}].function.parameters"))

    @property
    def token_limit(self) -> int | None:
        """The maximum number of generated tokens, or None."""
        return self.max_completion_tokens if self.max_tokens is None else self.max_tokens

    @property
    def size(self) -> InputSize:
        """An estimate of the size: 4 characters are about one token of English text."""
        characters = sum(len(text) for message in self.messages for text in message.texts)
        tokens = sum(medium.size.media for medium in self.media)
        return InputSize(characters // CHARACTERS_PER_TOKEN, tokens, self.token_limit or 0, 1 + len(self.media))

    @property
    def continues_from_tokens(self) -> bool:
        is_text = not (self.logprobs or self.tools or self.response_format or self.structured_outputs)
        return is_text and super().continues_from_tokens

    @property
    def media_options(self) -> MediaOptions:
        """The options for all media of the request. The gateway sets them in each `Image` and `Video`."""
        return MediaOptions.of_arguments(self.media_io_kwargs, self.mm_processor_kwargs)

    @property
    def media_parts(self) -> list[MediaPart]:
        """The parts with media of all messages, in order of appearance."""
        return [part for message in self.messages for part in message.media_parts]

    @property
    def media(self) -> list[Media]:
        """The media of all messages, in order of appearance."""
        return [part.media for part in self.media_parts]

    @property
    def images(self) -> list[Image]:
        """The images of all messages, in order of appearance."""
        return [medium for medium in self.media if isinstance(medium, Image)]

    def with_embeddings(self, embeddings: Sequence[Tensor | None]) -> ChatRequest:
        """Returns a copy in which embeddings replace the media. A medium stays as it is if its element is `None`.

        Raises `ValueError` unless there is one element for each medium.
        """
        parts = self.media_parts
        if len(embeddings) != len(parts):
            raise ValueError(f"got {len(embeddings)} embeddings for {len(parts)} media: give one for each")
        replaced = iter(
            [
                part
                if embedding is None
                else MediaPart(type="media", media=part.media.without_data, embedding=embedding)
                for part, embedding in zip(parts, embeddings, strict=True)
            ]
        )
        return self.model_copy(update={"messages": [message.with_media(replaced) for message in self.messages]})

    def with_default_options(self, defaults: MediaOptions) -> ChatRequest:
        """Returns a copy in which media have these options, unless they have others."""
        replaced = iter(
            [
                part.model_copy(update={"media": part.media.with_options(part.media.options.with_defaults(defaults))})
                for part in self.media_parts
            ]
        )
        return self.model_copy(update={"messages": [message.with_media(replaced) for message in self.messages]})

    @classmethod
    def ask(cls, question: str, *, max_tokens: int | None = None, temperature: float = 1.0) -> ChatRequest:
        """Returns a request with the question as its only message."""
        message = ChatMessage(role="user", content=question)
        return cls(messages=[message], max_tokens=max_tokens, temperature=temperature)
