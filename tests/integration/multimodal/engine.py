"""Language model engines in the test process."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from cornserve_executors.vllm import settings
from cornserve_tasklib import EngineOptions, LLMTask

if TYPE_CHECKING:
    from cornserve_executors.llm.engine import LLMEngine


def start_engine(
    model: Path, *, with_enc: bool, lora_modules: Mapping[str, str] = {}, kv_cache_mib: int = 4
) -> LLMEngine:
    """Starts an engine. By default, its KV cache holds little more than one context.

    The engine processes of a test process are forked from one that has imported vLLM, which takes 20 s.
    """
    settings.prepare_environment()
    from cornserve_executors.llm.engine import LLMEngine

    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["vllm.v1.engine.core", "vllm.v1.worker.cpu_worker"])

    options = EngineOptions(
        max_model_len=3968, kv_cache_memory_bytes=kv_cache_mib << 20, lora_modules=dict(lora_modules)
    )
    with patch("vllm.v1.engine.utils.get_mp_context", lambda: processes):
        return LLMEngine(LLMTask(model_id=str(model), options=options, with_enc=with_enc))


@contextmanager
def running_llm(model: Path, *, with_enc: bool) -> Iterator[LLMEngine]:
    engine = start_engine(model, with_enc=with_enc, kv_cache_mib=8)
    try:
        yield engine
    finally:
        engine.shutdown()
