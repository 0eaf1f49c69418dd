"""Thinkers: the language models of Omni models, whose text a talker reads while it is generated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from cornserve.task import TensorStream, UnitTask
from cornserve_tasklib.chat_response import ChatResponse
from cornserve_tasklib.encoder import Embeddings
from cornserve_tasklib.llm import LanguageModel, LLMRequest, LLMTask, Mllm


class ThinkerResponse(ChatResponse):
    """The response of a thinker."""

    prompt: TensorStream = TensorStream()
    """The prompt of a chat with media, as the talker of a Qwen3-Omni reads it. A single tensor has a row for each token
    of a medium, its hidden state. The metadata is a `SpokenPrompt`."""

    tokens: TensorStream = TensorStream()
    """The generated tokens of the first choice, as they are generated. Each tensor is int64, of the shape [tokens]."""

    states: TensorStream = TensorStream()
    """The hidden states that the talker of a Qwen2.5-Omni reads. The first tensor has a row for each token of the
    prompt, and its metadata is a `SpokenPrompt`. Each following tensor has the rows of generated tokens, and its
    metadata is a `SpokenTokens`. The last token of a response has no row."""


class TokenSource(UnitTask[LLMRequest, ThinkerResponse]):
    """Publishes the tokens of the chat's text as the response, `max_tokens` of them, and hidden states of zero.

    They are the input of talkers that are measured alone. It has the tokenizer of the model, and no weights.
    """

    executor = "token_source"

    model_id: str
    """A Hugging Face id, or the path of a model directory."""
    revision: str | None = None
    """See `LLMTask.revision`."""


class ThinkerTask(LLMTask):
    """Runs the language model of an Omni model on vLLM. Another task can read the tokens while they are generated."""

    response_type: ClassVar[Any] = ThinkerResponse

    executor = "thinker"

    def input_source(self) -> TokenSource:
        return TokenSource(model_id=self.model_id, revision=self.revision)

    def invoke(self, request: LLMRequest, embeddings: Sequence[Embeddings | None] = ()) -> ThinkerResponse:
        """See `LLMTask.invoke`."""
        response = super().invoke(request, embeddings)
        assert isinstance(response, ThinkerResponse)
        return response


class MultimodalThinker(Mllm):
    """An `Mllm` whose response a talker reads."""

    def language_model(self, **settings: Any) -> LanguageModel:
        return ThinkerTask(**settings)

    def invoke(self, request: LLMRequest) -> ThinkerResponse:
        response = super().invoke(request)
        assert isinstance(response, ThinkerResponse)
        return response
