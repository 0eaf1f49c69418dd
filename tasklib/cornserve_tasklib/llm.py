"""Language models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Protocol

from pydantic import Discriminator, Tag

from cornserve.task import ExecutorSpec, Task, UnitTask
from cornserve_policies.input_size import InputSize
from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.chat_response import ChatResponse
from cornserve_tasklib.completion import CompletionRequest
from cornserve_tasklib.encoder import Embeddings, EncoderOptions, EncoderTask
from cornserve_tasklib.engine import EngineOptions, EngineSettings
from cornserve_tasklib.media import VISION, Media, Modality
from cornserve_tasklib.media_options import MediaOptions
from cornserve_tasklib.parsers import ReasoningParser, ToolParser


def _kind(request: object) -> str:
    is_completion = "prompt" in request if isinstance(request, dict) else isinstance(request, CompletionRequest)
    return "request:completion" if is_completion else "request:chat"


LLMRequest = Annotated[
    Annotated[ChatRequest, Tag("request:chat")] | Annotated[CompletionRequest, Tag("request:completion")],
    Discriminator(_kind),
]
"""A `ChatRequest`, or a `CompletionRequest` if it has a `prompt`."""


class LLMSettings(EngineSettings):
    """Settings of an executor of a language model, or of a part of its work."""

    tool_parser: ToolParser | None = None
    """vLLM's parser of the model's tool calls ("hermes", "llama3_json", …). Without one, requests with `tools` are
    rejected."""
    reasoning_parser: ReasoningParser | None = None
    """vLLM's parser that separates the model's reasoning from its text ("qwen3", "deepseek_r1", …)."""
    chat_template: str | None = None
    """A Jinja template that replaces the model's chat template."""
    with_enc: bool = True
    """Whether a multimodal model's encoders are loaded. If not, media must be encoded by `EncoderTask`s."""
    lora: str | None = None
    """The LoRA adapter to apply, a name in `options.lora_modules`. Tasks with different adapters share an executor."""

    def post_init(self) -> None:
        if self.lora is not None:
            self.options.check_adapter(self.lora)

    def executor_spec(self) -> ExecutorSpec:
        """Returns the specification of the executor, without the adapter, which is part of each request."""
        spec = super().executor_spec()
        config = {name: value for name, value in spec.config.items() if name != "lora"}
        return spec.model_copy(update={"config": config})

    def can_continue(self, request: LLMRequest) -> bool:
        """Returns whether a response that another executor has begun can be continued exactly."""
        return request.can_be_repeated or self.continues_from_tokens(request)

    def continues_from_tokens(self, request: LLMRequest) -> bool:
        """Returns whether a response is continued with its tokens as a part of the prompt, and not generated again."""
        return self.reasoning_parser is None and request.continues_from_tokens

    def with_adapter(self, request: LLMRequest) -> LLMRequest:
        """Returns the request with the adapter, if the task has one."""
        return request if self.lora is None else request.with_lora(self.lora)


def with_embeddings(request: LLMRequest, embeddings: Sequence[Embeddings | None]) -> LLMRequest:
    """Returns the request with embeddings in place of its media.

    Args:
        embeddings: one element for each of `request.media`, in order of appearance. A medium stays as it is if its
            element is `None`. Empty: all stay as they are.

    Raises:
        ValueError: the number of embeddings differs from the number of media.
    """
    if not embeddings:
        return request
    if not isinstance(request, ChatRequest):
        raise ValueError("a completion has no media: omit the embeddings")
    return request.with_embeddings([None if encoded is None else encoded.embeddings for encoded in embeddings])


def encoders(request: LLMRequest) -> frozenset[str]:
    """Returns the components that encode the media of a request which are not encoded yet."""
    media = request.media if isinstance(request, ChatRequest) else []
    return frozenset(f"{medium.modality}_encoder" for medium in media if medium.data is not None)


class LLMTask(LLMSettings, UnitTask[LLMRequest, ChatResponse]):
    """Runs a language model on vLLM, for chats and completions."""

    executor = "llm"

    def components(self, request: LLMRequest) -> frozenset[str]:
        return frozenset({"llm"}) | encoders(request)

    def size(self, request: LLMRequest) -> InputSize:
        return request.size

    def invoke(self, request: LLMRequest, embeddings: Sequence[Embeddings | None] = ()) -> ChatResponse:
        """Records an invocation. The language model encodes media without embeddings.

        Args:
            embeddings: see `with_embeddings`.
        """
        return super().invoke(self.with_adapter(with_embeddings(request, embeddings)))

    def continues(self, request: LLMRequest) -> bool:
        return self.can_continue(request)


class LanguageModel(Protocol):
    """The task of a language model, in one executor or in several."""

    def invoke(self, request: LLMRequest, embeddings: Sequence[Embeddings | None] = ()) -> ChatResponse:
        """Returns the pending response. See `LLMTask.invoke`."""
        ...


class Mllm(Task[LLMRequest, ChatResponse]):
    """Runs a multimodal language model, with or without a separate encoder [C Listing 1].

    | `split_encoder` | `with_enc` | Path | Media are encoded by |
    |---|---|---|---|
    | False | True | monolith | the language model's executor |
    | True | False | E→L | encoder executors |
    | True | True | E→EL | encoder executors; the language model's executors can also serve the monolith |
    """

    model_id: str
    """A Hugging Face id, or the path of a model directory."""
    revision: str | None = None
    """See `LLMTask.revision`."""
    split_encoder: bool = False
    """Whether `EncoderTask`s encode the media."""
    encoder_modalities: tuple[Modality, ...] = ("image",)
    """The modalities with a separate encoder. The language model encodes media of others."""
    joint_encoder: bool = False
    """Whether the executors of the separate encoder encode all of these modalities. If not, images and videos, which
    one tower encodes, and audio have their own executors."""
    with_enc: bool = True
    """Whether the language model's executors load the encoder."""
    tool_parser: ToolParser | None = None
    """See `LLMTask.tool_parser`."""
    reasoning_parser: ReasoningParser | None = None
    """See `LLMTask.reasoning_parser`."""
    chat_template: str | None = None
    """See `LLMTask.chat_template`."""
    lora: str | None = None
    """See `LLMTask.lora`. The separate encoder is not changed."""
    options: EngineOptions = EngineOptions()
    """Options of the language model."""
    encoder_options: EncoderOptions = EncoderOptions()
    """Options of the separate encoder."""
    media_options: MediaOptions = MediaOptions()
    """The options of media that requests do not set, on all paths."""

    def post_init(self) -> None:
        if not (self.split_encoder or self.with_enc):
            raise ValueError("split_encoder and with_enc are both false: set one of them, so that media are encoded")
        self.llm = self.language_model(
            model_id=self.model_id,
            revision=self.revision,
            options=self.options,
            tool_parser=self.tool_parser,
            reasoning_parser=self.reasoning_parser,
            chat_template=self.chat_template,
            with_enc=self.with_enc,
            lora=self.lora,
        )
        self.encoders = [self._encoder_of(modality) for modality in self._encoded_together()]

    def language_model(self, **settings: Any) -> LanguageModel:
        """Returns the language model's task, which has the settings of an `LLMTask`."""
        return LLMTask(**settings)

    def _encoded_together(self) -> Sequence[Modality | tuple[Modality, ...]]:
        """Returns the modalities of each separate encoder."""
        if not self.split_encoder:
            return ()
        if self.joint_encoder:
            return (self.encoder_modalities,)
        vision = tuple(modality for modality in self.encoder_modalities if modality in VISION)
        others = [modality for modality in self.encoder_modalities if modality not in VISION]
        return [vision, *others] if vision else others

    def _encoder_of(self, modality: Modality | tuple[Modality, ...]) -> EncoderTask:
        return EncoderTask(
            model_id=self.model_id,
            revision=self.revision,
            modality=modality,
            dtype=self.encoder_options.dtype or self.options.dtype,
            max_batch_patches=self.encoder_options.max_batch_patches,
            gpus=self.encoder_options.gpus,
        )

    def invoke(self, request: LLMRequest) -> ChatResponse:
        if isinstance(request, ChatRequest) and self.media_options.key:
            request = request.with_default_options(self.media_options)
        media = request.media if self.split_encoder and isinstance(request, ChatRequest) else []
        return self.llm.invoke(request, embeddings=[self._encode(medium) for medium in media])

    def _encode(self, medium: Media) -> Embeddings | None:
        encoder = next((encoder for encoder in self.encoders if medium.modality in encoder.modalities), None)
        return None if encoder is None else encoder.invoke(medium)


class Chat(Task[LLMRequest, ChatResponse]):
    """Runs one language model, for chats and completions."""

    model_id: str
    """A Hugging Face id, or the path of a model directory."""
    revision: str | None = None
    """See `LLMTask.revision`."""
    tool_parser: ToolParser | None = None
    """See `LLMTask.tool_parser`."""
    reasoning_parser: ReasoningParser | None = None
    """See `LLMTask.reasoning_parser`."""
    chat_template: str | None = None
    """See `LLMTask.chat_template`."""
    lora: str | None = None
    """See `LLMTask.lora`."""
    options: EngineOptions = EngineOptions()
    """Options of the engine."""

    def post_init(self) -> None:
        self.llm = LLMTask(
            model_id=self.model_id,
            revision=self.revision,
            options=self.options,
            tool_parser=self.tool_parser,
            reasoning_parser=self.reasoning_parser,
            chat_template=self.chat_template,
            lora=self.lora,
        )

    def invoke(self, request: LLMRequest) -> ChatResponse:
        return self.llm.invoke(request)
