"""The arguments of vLLM's engine for language models, and the KV connector that an executor needs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from vllm.config.structured_outputs import StructuredOutputsConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1

from cornserve_executors.base import ExecutorStartError
from cornserve_executors.llm.chat_media import model_fields
from cornserve_executors.llm.connector import EmbeddingsConnector
from cornserve_executors.llm.hidden_states import HiddenStatesConnector
from cornserve_executors.llm.kv_cache_connector import HandOverConnector, KvCacheConnector
from cornserve_executors.llm.lora import lora_args
from cornserve_executors.llm.thinker_states import STATES_READERS, AllStatesReader
from cornserve_executors.llm.worker_extension import WorkerExtension
from cornserve_executors.vllm import settings
from cornserve_executors.vllm.media_limits import media_limits
from cornserve_tasklib.llm import LLMSettings, LLMTask
from cornserve_tasklib.prefill_decode import DecodeTask, PrefillTask
from cornserve_tasklib.thinker import ThinkerTask

PROCESSOR_CACHE_GIB = 0.25
"""Size of vLLM's cache of processed media, in each of two processes. Media often recur in the next turn of a chat."""

CPU_WORKER = "cornserve_executors.llm.cpu_worker.SeededCPUWorker"
"""A name, because only vLLM's processes can import the class."""

WITHOUT_KV_CONNECTOR = ("qwen4_exp", "qwen4_exp_text")
"""Types of models whose attention vLLM does not run with a KV connector."""

CONFLICTS_WITH_CONNECTOR = ("speculative_config", "kv_offloading_size", "use_replayssm")
"""Arguments of vLLM's engine that need another KV connector, or none."""


def engine_args(config: LLMSettings) -> dict[str, Any]:
    """Returns the arguments of vLLM's `AsyncEngineArgs`. Text models ignore those that concern media.

    Raises `ExecutorStartError` for options that a thinker does not support.
    """
    args = (
        settings.engine_args(config)
        | lora_args(config.options.lora_modules)
        | {
            # With a reasoning parser, the engine applies a grammar only after the end of the reasoning.
            "reasoning_parser": config.reasoning_parser or "",
            # By default the first constrained request selects the backend for all later ones, and not all backends
            # support tools.
            "structured_outputs_config": StructuredOutputsConfig(backend="xgrammar"),
            # Requests are served in the order in which they are due. Those without targets are due in their order.
            "scheduling_policy": config.options.engine_args.get("scheduling_policy", "priority"),
            "worker_extension_cls": f"{WorkerExtension.__module__}.{WorkerExtension.__qualname__}",
            # An engine with an encoder accepts encoded media, too.
            "ec_transfer_config": {
                "ec_connector": EmbeddingsConnector.__name__,
                "ec_connector_module_path": EmbeddingsConnector.__module__,
                "ec_role": "ec_consumer",
            },
        }
    )
    if settings.on_cpu():
        args["worker_cls"] = CPU_WORKER
    if connector := _kv_connector(config, args):
        args["kv_transfer_config"] = connector
    if config.with_enc:
        return args | {"limit_mm_per_prompt": media_limits(config), "mm_processor_cache_gb": PROCESSOR_CACHE_GIB}
    return args | {"language_model_only": True, "mm_processor_cache_gb": 0}


def _kv_connector(config: LLMSettings, args: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns vLLM's `KVTransferConfig`, for executors that save or load KV caches or the states of a thinker."""
    reader = STATES_READERS.get(model_fields(config).get("model_type", "")) if isinstance(config, ThinkerTask) else None
    if reader is AllStatesReader and args.get("speculative_config"):
        raise ExecutorStartError(
            "speculative_config: the talker of this model would read the states of rejected tokens: remove the argument"
        )
    if isinstance(config, PrefillTask | DecodeTask):
        if args.get("speculative_config"):
            raise ExecutorStartError(
                "speculative_config: the KV cache of a draft model is not sent from prefill to decode: remove the "
                "argument"
            )
        return _transfer_config(KvCacheConnector, "kv_both")
    if reader is not None:
        return _transfer_config(HiddenStatesConnector, "kv_producer")
    return _transfer_config(HandOverConnector, "kv_both") if _can_hand_kv_over(config, args) else None


def _transfer_config(connector: type[KVConnectorBase_V1], role: str) -> dict[str, Any]:
    return {"kv_connector": connector.__name__, "kv_connector_module_path": connector.__module__, "kv_role": role}


def _can_hand_kv_over(config: LLMSettings, args: Mapping[str, Any]) -> bool:
    """Returns whether a whole executor has a KV connector: whether vLLM runs the model as it does without.

    A hand-over does not read the prefix cache, but it has not been tested with an engine without one.
    """
    is_single = type(config) is LLMTask and config.options.tensor_parallel_size == 1
    has_conflict = any(args.get(name) for name in CONFLICTS_WITH_CONNECTOR)
    if not is_single or has_conflict or args.get("enable_prefix_caching") is False:
        return False
    if "expandable_segments:True" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""):
        return False
    fields = model_fields(config)
    return not fields.get("is_encoder_decoder") and fields.get("model_type") not in WITHOUT_KV_CONNECTOR
