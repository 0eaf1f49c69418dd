"""Starts, watches and shuts down vLLM's asynchronous engine."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from pydantic import ValidationError
from transformers import PretrainedConfig
from vllm import ModelRegistry
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.exceptions import VLLMClientError
from vllm.renderers.chat_utils import ChatTemplateResolutionError
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine import exceptions as vllm_exceptions
from vllm.v1.engine.async_llm import AsyncLLM

from cornserve_executors.base import EngineDeadError, ExecutorStartError, InvalidRequestError, TransientStartError
from cornserve_executors.vllm.engine_fork import METHOD
from cornserve_executors.vllm.stats import VllmStats

log = logging.getLogger(__name__)

ENGINE_GONE = "vLLM's EngineCore process is gone"


class VllmEngine:
    def __init__(self, args: Mapping[str, Any]) -> None:
        """Loads the model. Blocks, and can run in any thread."""
        self._stats = VllmStats()
        method = os.environ[METHOD]
        vllm_config = _vllm_config(args)
        os.environ[METHOD] = method  # On CPUs, vLLM has changed it.
        try:
            self._vllm = AsyncLLM.from_vllm_config(
                vllm_config, disable_log_stats=True, stat_loggers=[lambda *_: self._stats]
            )
        except RuntimeError as error:  # The engine process has logged its own error.
            raise TransientStartError(f"vLLM's engine failed to start: {error}") from error

    @property
    def max_model_len(self) -> int:
        """The context length, in tokens."""
        length: int = self._vllm.model_config.max_model_len
        return length

    @property
    def max_num_seqs(self) -> int:
        """The number of sequences in a step."""
        count: int = self._vllm.vllm_config.scheduler_config.max_num_seqs
        return count

    async def wait_death(self) -> str:
        """Waits until the engine has died, and returns the reason.

        Must be called after the first request, which starts vLLM's output handler. The handler ends only then.
        """
        await asyncio.wait({self._vllm.output_handler})
        return ENGINE_GONE

    def metrics(self) -> Iterable[Metric]:
        yield from self._stats.metrics()
        config = self._vllm.vllm_config
        cache, scheduler = config.cache_config, config.scheduler_config
        limits = GaugeMetricFamily("cornserve_llm_engine_limit", "Limits of the engine and its step.", labels=["limit"])
        for name, value in (
            ("cache_tokens", (cache.num_gpu_blocks or 0) * cache.block_size),
            ("block_size", cache.block_size),
            ("max_num_seqs", scheduler.max_num_seqs),
            ("max_num_batched_tokens", scheduler.max_num_batched_tokens),
        ):
            limits.add_metric([name], value)
        yield limits

    def shutdown(self) -> None:
        """Kills the engine's processes: they have nothing to save, and end by themselves only after seconds. Blocks."""
        self._vllm.shutdown(timeout=0)


@contextmanager
def translate_errors() -> Iterator[None]:
    """Converts vLLM's errors to executor errors."""
    try:
        yield
    except (VLLMClientError, ChatTemplateResolutionError) as error:
        raise InvalidRequestError(error.args[0]) from error
    except vllm_exceptions.EngineDeadError as error:
        raise EngineDeadError(ENGINE_GONE) from error


def _vllm_config(args: Mapping[str, Any]) -> Any:
    try:
        engine_args = AsyncEngineArgs(**args)
        if os.environ[METHOD] == "fork":
            _import_model(engine_args)
        # The defaults of `max_num_seqs` and `max_num_batched_tokens` on GPUs are those of vLLM's server.
        return engine_args.create_engine_config(UsageContext.OPENAI_API_SERVER)
    except (ValueError, TypeError) as error:  # pydantic's error is a `ValueError`
        raise ExecutorStartError(f"vLLM rejects {args['model']}: {_first_sentence(error)}") from error


def _import_model(args: AsyncEngineArgs) -> None:
    """Imports the class of the model, which the engine process inherits.

    vLLM would first import it in another process, for 8 s, to inspect a model that is new on this machine.
    """
    try:
        config, _ = PretrainedConfig.get_config_dict(args.model, revision=args.revision)
        for architecture in config.get("architectures") or ():
            model = ModelRegistry.models.get(architecture)
            if model is not None:
                ModelRegistry.register_model(architecture, model.load_model_cls())
    except Exception:
        log.debug("the model is not imported", exc_info=True)  # vLLM imports it again, and explains the error.


def _first_sentence(error: Exception) -> str:
    """Returns the first sentence only: vLLM appends lists of hundreds of names, or advice about its own options.

    The name of an argument comes first if vLLM reports it.
    """
    message, argument = str(error), ""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        message, argument = first["msg"].removeprefix("Value error, "), "".join(f"{part}: " for part in first["loc"])
    return argument + (message.split(". ")[0].splitlines() or [type(error).__name__])[0]
