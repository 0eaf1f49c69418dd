"""The memory of replicas that are measured together, before they start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cornserve.control.launcher.local.warm_processes import find_engine
from cornserve.memory_limit import available_memory_bytes, memory_limit_bytes
from cornserve.profiler.errors import ProfilingError
from cornserve.profiler.results import OptionResults
from cornserve.task.spec import ExecutorSpec

GIB = 1 << 30

PROCESS_BYTES = 128 << 20
"""Assumed for an executor without an engine, such as a source of tensors."""

ENGINE_BYTES = 640 << 20
"""Assumed for the code of an engine, besides the weights."""

KV_CACHE_BYTES = 1 << 30
"""The KV cache of vLLM on a CPU by default."""

WEIGHT_SUFFIXES = (".safetensors", ".bin", ".gguf")
"""The formats of weights. A directory with the same weights in several has the first one loaded."""

TENSOR_SHARE = 8
"""An eighth of the memory is left for tensors, which take it while requests are in flight."""


class NotEnoughMemoryError(ProfilingError):
    """A replica of an option does not fit the machine's memory. The message is for users."""


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes that the measurement of an option needs.

    Args:
        option: the name of the option.
        replica_bytes: the need of each replica.
        source_bytes: the need of the replicas that produce its inputs.
        is_measured: whether a replica has been measured before. Else the bytes are an estimate.
    """

    option: str
    replica_bytes: int
    source_bytes: int
    is_measured: bool

    @classmethod
    def of(cls, option: str, spec: ExecutorSpec, sources: int, earlier: OptionResults | None) -> MemoryNeed:
        """
        Args:
            sources: the number of replicas that produce inputs.
            earlier: results of the option, also under other conditions.
        """
        measured = None if earlier is None else earlier.memory
        replica_bytes = _estimate(spec) if measured is None else measured.peak
        return cls(option, replica_bytes, sources * PROCESS_BYTES, measured is not None)

    def replicas(self, most: int) -> int:
        """Returns the number of replicas, at most `most`, that fit the memory that is available now.

        Raises `NotEnoughMemoryError` if one does not.
        """
        available = available_memory_bytes() - memory_limit_bytes() // TENSOR_SHARE
        fitting = (available - self.source_bytes) // self.replica_bytes
        if fitting < 1:
            origin = "was measured" if self.is_measured else "is estimated from its weights and its KV cache"
            needed = describe_memory(self.total_bytes(1))
            raise NotEnoughMemoryError(
                f"{self.option} cannot be measured: a replica needs {needed} ({origin}), but "
                f"{describe_memory(max(0, available))} of memory are available besides that of tensors: delete an app, "
                "or use a smaller KV cache"
            )
        return min(most, fitting)

    def total_bytes(self, replicas: int) -> int:
        return replicas * self.replica_bytes + self.source_bytes


def describe_memory(size: int) -> str:
    """Returns a size that is not known exactly, for users."""
    return f"{size / GIB:.1f} GiB"


def _estimate(spec: ExecutorSpec) -> int:
    engine = find_engine(spec.executor)
    if engine is None:
        return PROCESS_BYTES
    found = ENGINE_BYTES + _weight_bytes(str(spec.config.get("model_id", "")))
    if engine.endswith(":import_vllm"):
        options = spec.config.get("options")
        size = options.get("kv_cache_memory_bytes") if isinstance(options, dict) else None
        found += size if isinstance(size, int) else KV_CACHE_BYTES
    return found


def _weight_bytes(model: str) -> int:
    """Returns the size of the weights in a model directory; 0 for a Hugging Face id, whose files may be missing."""
    directory = Path(model)
    if not directory.is_absolute() or not directory.is_dir():
        return 0
    files = [path for path in directory.rglob("*") if path.is_file()]
    sizes = (sum(path.stat().st_size for path in files if path.suffix == suffix) for suffix in WEIGHT_SUFFIXES)
    return next((size for size in sizes if size), 0)
