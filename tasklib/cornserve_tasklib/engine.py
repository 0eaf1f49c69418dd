"""Settings that all tasks on vLLM share."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
    field_validator,
)

from cornserve.task import ExecutorSpec
from cornserve.validation_errors import describe_all
from cornserve_tasklib.hub import ModelId
from cornserve_tasklib.vllm_architectures import VLLM_VERSION, EngineArguments

Dtype = Literal["auto", "float32", "bfloat16", "float16"]

_UNAVAILABLE_ARGS: Final = frozenset(
    {
        *("model", "revision", "served_model_name", "runner", "convert", "hf_token"),
        *("allowed_local_media_path", "allowed_media_domains", "download_dir", "language_model_only"),
        *("mm_processor_kwargs", "media_io_kwargs"),
        *("limit_mm_per_prompt", "mm_processor_cache_gb", "mm_encoder_only", "enable_mm_embeds"),
        *("reasoning_parser", "reasoning_parser_plugin", "io_processor_plugin", "structured_outputs_config"),
        *("worker_cls", "worker_extension_cls", "scheduler_cls", "logits_processors", "model_class_overrides"),
        *("distributed_executor_backend", "pipeline_parallel_size", "device_ids", "nnodes", "node_rank"),
        *("master_addr", "master_port", "prefill_context_parallel_size", "renderer_num_workers"),
        *("ec_transfer_config", "kv_transfer_config", "kv_events_config", "weight_transfer_config"),
        *("disable_log_stats", "otlp_traces_endpoint", "enable_sleep_mode", "log_config_file"),
        *("enable_lora", "max_loras", "max_lora_rank", "max_cpu_loras", "lora_dtype", "lora_target_modules"),
        *("default_mm_loras", "fully_sharded_loras", "enable_tower_connector_lora", "specialize_active_lora"),
    }
)
"""Arguments that executors set, that name code to run, that need more GPUs than the spec names,
or that have no effect without further support."""

MAX_ADAPTERS: Final = 64
"""Maximum number of LoRA adapters of an executor. All of them are in its memory."""

_UNAVAILABLE_PREFIXES: Final = ("_", "data_parallel_")


def _is_available(argument: str) -> bool:
    return argument not in _UNAVAILABLE_ARGS and not argument.startswith(_UNAVAILABLE_PREFIXES)


def _check_absolute(path: str) -> str:
    if not PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise ValueError(f"{path!r} is not an absolute path: give a directory such as /models/sql-lora, without '..'")
    return path


AdapterName = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$", max_length=63)]
"""The name of a LoRA adapter."""

AdapterPath = Annotated[str, Field(max_length=4096), AfterValidator(_check_absolute)]
"""The absolute path of a directory with a LoRA adapter."""


class EngineOptions(BaseModel):
    """Options of a vLLM engine, with vLLM's names. An option without a value has vLLM's default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dtype: Dtype = "auto"
    """The dtype of weights and activations. "auto" selects vLLM's choice on GPUs, and float32 on CPUs."""
    quantization: str | None = Field(default=None, min_length=1)
    """The quantization method ("fp8", "awq", …). Defaults to that of the checkpoint."""
    max_model_len: int | None = Field(default=None, ge=1)
    """The maximum number of tokens of prompt and response together. Defaults to the model's context length."""
    max_num_seqs: int | None = Field(default=None, ge=1)
    """The maximum number of requests in a batch."""
    max_num_batched_tokens: int | None = Field(default=None, ge=1)
    """The maximum number of tokens in a batch."""
    enable_prefix_caching: bool | None = None
    """Whether requests with a common prefix share its KV cache."""
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    """The share of a GPU's memory that the engine uses."""
    kv_cache_memory_bytes: int | None = Field(default=None, ge=1)
    """The size of the KV cache, per GPU. Defaults to the remaining memory of the GPU, and to 1 GiB on a CPU."""
    tensor_parallel_size: int = Field(default=1, ge=1)
    """The number of GPUs that share the model."""
    enforce_eager: bool = False
    """Whether to skip compilation and CUDA graphs, for a faster start and slower inference. Always true on CPUs."""
    trust_remote_code: bool = False
    """Whether the executor runs Python code of the model's repository. The code has all permissions of the executor."""
    seed: int | None = Field(default=None, ge=0, lt=1 << 32)
    """The seed for requests without one."""
    lora_modules: dict[AdapterName, AdapterPath] = Field(default_factory=dict, max_length=MAX_ADAPTERS)
    """The directories of LoRA adapters, by name. `LLMTask.lora` selects one of them."""
    engine_args: dict[str, JsonValue] = Field(default_factory=dict)
    """Further arguments of vLLM's `AsyncEngineArgs` by name. Names, types and choices are checked at once, and other
    values when the executor starts."""

    @field_validator("engine_args")
    @classmethod
    def _check_engine_args(cls, args: dict[str, JsonValue]) -> dict[str, JsonValue]:
        for name in args:
            if name in cls.model_fields:
                raise ValueError(f"{name!r} is an option: set it outside of engine_args")
            if not _is_available(name):
                raise ValueError(f"{name!r} cannot be set: Cornserve sets it, or does not support it")
            if name not in EngineArguments.__annotations__:
                known = [*filter(_is_available, EngineArguments.__annotations__)]
                similar = "".join(f", did you mean {match!r}?" for match in get_close_matches(name, known, n=1))
                raise ValueError(f"vLLM {VLLM_VERSION} has no argument {name!r}{similar}")
        try:
            TypeAdapter(EngineArguments).validate_python(args)
        except ValidationError as error:
            raise ValueError(describe_all(error.errors())) from error
        return args

    def check_adapter(self, name: str) -> None:
        """Raises `ValueError` unless `lora_modules` contains the adapter."""
        if name not in self.lora_modules:
            known = ", ".join(self.lora_modules) or "it is empty"
            raise ValueError(f"lora: no adapter {name!r} in lora_modules ({known}): add its directory there")

    @property
    def given(self) -> dict[str, Any]:
        """The options that differ from the defaults, as JSON."""
        return self.model_dump(mode="json", exclude_defaults=True)


class EngineSettings(BaseModel):
    """Settings of an executor on vLLM."""

    executor: ClassVar[str]

    model_id: ModelId
    """A Hugging Face id, or the absolute path of a model directory."""
    revision: str | None = None
    """The branch, tag or commit of the model's repository on Hugging Face. Defaults to its main branch."""
    options: EngineOptions = EngineOptions()
    """Options of the engine."""

    def executor_spec(self) -> ExecutorSpec:
        config = self.model_dump(mode="json", exclude={"revision", "options"})
        if self.revision is not None:
            config["revision"] = self.revision
        if self.options.given:
            config["options"] = self.options.given
        return ExecutorSpec(executor=self.executor, config=config, gpus=self.options.tensor_parallel_size)
