"""Settings that all tasks on vLLM share."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, Field

from cornserve.task import ExecutorSpec


class EngineSettings(BaseModel):
    """Settings of a vLLM engine."""

    executor: ClassVar[str]

    model_id: str
    """A Hugging Face id, or the path of a model directory."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """The dtype of weights and activations. "auto" selects vLLM's choice on GPUs, and float32 on CPUs."""
    max_model_len: int | None = Field(default=None, ge=1)
    """The maximum number of tokens of prompt and response together. Defaults to the model's context length."""
    max_num_seqs: int | None = Field(default=None, ge=1)
    """The maximum number of requests in a batch. Defaults to vLLM's choice."""
    kv_cache_memory_bytes: int | None = Field(default=None, ge=1)
    """The size of the KV cache, per GPU. Defaults to the remaining memory of the GPU, and to 1 GiB on a CPU."""
    enforce_eager: bool = False
    """Whether to skip compilation and CUDA graphs, for a faster start and slower inference. Always true on CPUs."""
    tensor_parallel_size: int = Field(default=1, ge=1)
    """The number of GPUs that share the model."""

    def executor_spec(self) -> ExecutorSpec:
        config = self.model_dump(mode="json")
        return ExecutorSpec(executor=self.executor, config=config, gpus=self.tensor_parallel_size)
