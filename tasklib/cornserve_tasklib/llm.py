"""Language models."""

from __future__ import annotations

from typing import Annotated

from pydantic import Discriminator, Tag

from cornserve.task import Task, UnitTask
from cornserve_tasklib.answer import ChatResponse
from cornserve_tasklib.chat import ChatRequest
from cornserve_tasklib.completion import CompletionRequest
from cornserve_tasklib.engine import EngineSettings


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

    def components(self, request: LLMRequest) -> frozenset[str]:
        return frozenset({"prefill", "decode"})

    def continues(self, request: LLMRequest) -> bool:
        return self.reasoning_parser is None and request.can_be_continued


class Chat(Task[LLMRequest, ChatResponse]):
    """The plain chat with one language model."""

    model_id: str
    tool_parser: str | None = None
    reasoning_parser: str | None = None

    def post_init(self) -> None:
        self.llm = LLMTask(model_id=self.model_id, tool_parser=self.tool_parser, reasoning_parser=self.reasoning_parser)

    def invoke(self, request: LLMRequest) -> ChatResponse:
        return self.llm.invoke(request)
