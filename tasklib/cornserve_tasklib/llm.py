"""Language models."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cornserve.task import ExecutorSpec, Task, UnitTask
from cornserve_tasklib.chat import ChatRequest, ChatResponse


class LLMTask(UnitTask[ChatRequest, ChatResponse]):
    """A language model that answers chats, on vLLM."""

    executor = "llm"

    model_id: str
    """A Hugging Face id, or a directory."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    max_model_len: int | None = Field(default=None, ge=1)
    """Tokens of prompt and answer together; by default, what the model allows."""
    max_num_seqs: int | None = Field(default=None, ge=1)
    """Requests that are generated for at once; by default, vLLM's choice."""
    kv_cache_memory_bytes: int | None = Field(default=None, ge=1)
    """Of each GPU, or of the process on a CPU; by default, what the device leaves."""
    enforce_eager: bool = False
    """Neither compiles nor captures graphs: starts sooner, runs slower."""
    tensor_parallel_size: int = Field(default=1, ge=1)

    def components(self, request: ChatRequest) -> frozenset[str]:
        return frozenset({"prefill", "decode"})

    def executor_spec(self) -> ExecutorSpec:
        config = self.model_dump(mode="json")
        return ExecutorSpec(executor=self.executor, config=config, gpus=self.tensor_parallel_size)


class Chat(Task[ChatRequest, ChatResponse]):
    """The plain chat with one language model."""

    model_id: str

    def post_init(self) -> None:
        self.llm = LLMTask(model_id=self.model_id)

    def invoke(self, request: ChatRequest) -> ChatResponse:
        return self.llm.invoke(request)
