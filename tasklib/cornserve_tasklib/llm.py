"""Language models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Discriminator, Tag

from cornserve.task import Task, UnitTask
from cornserve_tasklib.chat import ChatRequest
from cornserve_tasklib.completion import CompletionRequest
from cornserve_tasklib.encoder import Embeddings, EncoderTask
from cornserve_tasklib.engine import EngineSettings
from cornserve_tasklib.response import ChatResponse


def _kind(request: object) -> str:
    is_completion = "prompt" in request if isinstance(request, dict) else isinstance(request, CompletionRequest)
    return "request:completion" if is_completion else "request:chat"


LLMRequest = Annotated[
    Annotated[ChatRequest, Tag("request:chat")] | Annotated[CompletionRequest, Tag("request:completion")],
    Discriminator(_kind),
]
"""A chat, or, where there is a `prompt`, a completion."""


class LLMTask(EngineSettings, UnitTask[LLMRequest, ChatResponse]):
    """A language model that answers chats and completes texts, on vLLM."""

    executor = "llm"

    tool_parser: str | None = None
    """vLLM's parser of the model's tool calls ("hermes", "llama3_json", …); without one, `tools` are refused."""
    reasoning_parser: str | None = None
    """vLLM's parser that tells what the model thinks from what it says ("qwen3", "deepseek_r1", …)."""
    chat_template: str | None = None
    """A Jinja template instead of the model's own."""
    with_enc: bool = True
    """Whether a multimodal model's encoders are loaded. Without, images have to be encoded elsewhere."""

    def components(self, request: LLMRequest) -> frozenset[str]:
        encodes = isinstance(request, ChatRequest) and any(image.data is not None for image in request.images)
        return frozenset({"prefill", "decode", "image_encoder"} if encodes else {"prefill", "decode"})

    def invoke(self, request: LLMRequest, embeddings: Sequence[Embeddings | None] = ()) -> ChatResponse:
        """Records the call.

        Args:
            embeddings: the request's images in encoded form, in order of appearance. None: this one is encoded by the
                language model itself. Without any, all are.
        Raises:
            ValueError: there are not as many as there are images.
        """
        if embeddings:
            if not isinstance(request, ChatRequest):
                raise ValueError("a completion has no images, and so takes no embeddings")
            request = request.with_embeddings([None if one is None else one.embeddings for one in embeddings])
        return super().invoke(request)

    def continues(self, request: LLMRequest) -> bool:
        return self.reasoning_parser is None and request.can_be_continued


class Mllm(Task[LLMRequest, ChatResponse]):
    """A multimodal language model, its encoder where it is wanted [C Listing 1].

    Without `split_encoder` it is the monolith, which encodes its images itself. With `split_encoder` an executor of its
    own does: E→L, or, with `with_enc`, E→EL, whose language model's executors can also serve monoliths.
    """

    model_id: str
    split_encoder: bool = False
    """Whether images are encoded by an executor of their own."""
    with_enc: bool = True
    """Whether the language model's executors could encode images, too."""
    tool_parser: str | None = None
    reasoning_parser: str | None = None

    def post_init(self) -> None:
        if not (self.split_encoder or self.with_enc):
            raise ValueError("split_encoder or with_enc: something has to encode the images")
        self.llm = LLMTask(
            model_id=self.model_id,
            tool_parser=self.tool_parser,
            reasoning_parser=self.reasoning_parser,
            with_enc=self.with_enc,
        )
        if self.split_encoder:
            self.encoder = EncoderTask(model_id=self.model_id)

    def invoke(self, request: LLMRequest) -> ChatResponse:
        images = request.images if self.split_encoder and isinstance(request, ChatRequest) else []
        return self.llm.invoke(request, embeddings=[self.encoder.invoke(image) for image in images])


class Chat(Task[LLMRequest, ChatResponse]):
    """The plain chat with one language model."""

    model_id: str
    tool_parser: str | None = None
    reasoning_parser: str | None = None

    def post_init(self) -> None:
        self.llm = LLMTask(model_id=self.model_id, tool_parser=self.tool_parser, reasoning_parser=self.reasoning_parser)

    def invoke(self, request: LLMRequest) -> ChatResponse:
        return self.llm.invoke(request)
