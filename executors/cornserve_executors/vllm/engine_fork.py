"""Lets vLLM fork its engine process from the executor, so that it does not import vLLM again, which takes seconds."""

from __future__ import annotations

import os
import stat
import sys

from cornserve.observe import tracing
from cornserve_executors.vllm import settings
from cornserve_tasklib.engine import EngineSettings

METHOD = "VLLM_WORKER_MULTIPROC_METHOD"
"""The variable with the method by which vLLM starts processes."""


def fork_if_safe(config: EngineSettings) -> None:
    """Makes vLLM fork, unless the environment sets a method.

    CUDA, gRPC, and OpenMP with several threads do not support forks.
    """
    threads = os.environ.get("OMP_NUM_THREADS", str(settings.threads()))
    is_single = threads == "1" and config.options.tensor_parallel_size == 1
    if settings.on_cpu() and is_single and not _uses_grpc() and METHOD not in os.environ:
        os.environ[METHOD] = "fork"
        os.register_at_fork(after_in_child=_replace_sockets)


def _uses_grpc() -> bool:
    """Returns whether this process may have threads of gRPC. vLLM imports gRPC without using it."""
    return tracing.tracer is not None or "cornserve_executors.base.health" in sys.modules


def _replace_sockets() -> None:
    """Replaces the sockets of a child by /dev/null, so that callers notice the end of the executor.

    Closed numbers would be used again, while objects that the child has inherited may still close them.
    """
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            is_socket = stat.S_ISSOCK(os.fstat(number).st_mode)
        except OSError:  # the directory that was listed
            continue
        if is_socket:
            os.dup2(null, number, inheritable=False)
    os.close(null)
