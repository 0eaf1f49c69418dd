"""What all tasks on vLLM can set."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, Field

from cornserve.task import ExecutorSpec


class EngineSettings(BaseModel):
    executor: ClassVar[str]

    model_id: str
    """A Hugging Face id, or a directory."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    max_model_len: int | None = Field(default=None, ge=1)
    """Tokens of one request together; by default, what the model allows."""
    max_num_seqs: int | None = Field(default=None, ge=1)
    """Requests that are worked on at once; by default, vLLM's choice."""
    kv_cache_memory_bytes: int | None = Field(default=None, ge=1)
    """Of each GPU, or of the process on a CPU; by default, what the device leaves."""
    enforce_eager: bool = False
    """Neither compiles nor captures graphs: starts sooner, runs slower."""
    tensor_parallel_size: int = Field(default=1, ge=1)

    def executor_spec(self) -> ExecutorSpec:
        config = self.model_dump(mode="json")
        return ExecutorSpec(executor=self.executor, config=config, gpus=self.tensor_parallel_size)
