"""Language model engines in the test process."""

from __future__ import annotations

import os
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
    model: Path,
    fork_variables: Mapping[str, str],
    *,
    with_enc: bool,
    lora_modules: Mapping[str, str] = {},
    kv_cache_mib: int = 4,
) -> LLMEngine:
    """Starts an engine. By default, its KV cache holds little more than one context."""
    settings.prepare_environment()
    from cornserve_executors.llm.engine import LLMEngine

    options = EngineOptions(
        max_model_len=3968, kv_cache_memory_bytes=kv_cache_mib << 20, lora_modules=dict(lora_modules)
    )
    with patch.dict(os.environ, fork_variables):
        return LLMEngine(LLMTask(model_id=str(model), options=options, with_enc=with_enc))


@contextmanager
def running_llm(model: Path, fork_variables: Mapping[str, str], *, with_enc: bool) -> Iterator[LLMEngine]:
    engine = start_engine(model, fork_variables, with_enc=with_enc, kv_cache_mib=8)
    try:
        yield engine
    finally:
        engine.shutdown()
