"""LoRA adapters of an engine."""

from __future__ import annotations

from collections.abc import Mapping
from json import loads
from pathlib import Path
from typing import Any, get_args

from vllm.config.lora import MaxLoRARanks
from vllm.lora.request import LoRARequest
from vllm.v1.engine.async_llm import AsyncLLM

from cornserve_executors.base import ExecutorStartError

RANKS: tuple[int, ...] = get_args(MaxLoRARanks)
"""The maximum ranks that vLLM can be configured with."""

WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin", "adapter_model.pt")


def lora_args(modules: Mapping[str, str]) -> dict[str, Any]:
    """Returns the arguments of vLLM's `AsyncEngineArgs` for adapters, given by name and directory.

    Raises `ExecutorStartError` if a directory does not contain a LoRA adapter.
    """
    if not modules:
        return {}
    rank = max(_rank(name, Path(directory)) for name, directory in modules.items())
    return {
        "enable_lora": True,
        "max_lora_rank": min(allowed for allowed in RANKS if allowed >= rank),
        # On CPUs, vLLM applies the last slot to requests without an adapter that share a batch with others: it stays
        # empty (vLLM pull request 48421).
        "max_loras": len(modules) + 1,
    }


async def load_adapters(vllm: AsyncLLM, modules: Mapping[str, str]) -> dict[str, LoRARequest]:
    """Loads adapters into all workers. Returns vLLM's requests by name.

    Raises `ExecutorStartError` with the name of an adapter that the model cannot apply completely.
    """
    adapters = {}
    for number, (name, directory) in enumerate(modules.items(), start=1):
        reasons: list[str] = await vllm.collective_rpc("load_adapter", args=(name, number, directory))
        if any(reasons):
            raise _unusable(name, Path(directory), next(filter(None, reasons)))
        adapters[name] = LoRARequest(name, number, directory)
    return adapters


def _rank(name: str, directory: Path) -> int:
    """Returns the highest rank of an adapter's matrices."""
    config = _config(name, directory)
    if config.get("peft_type") != "LORA":
        raise _unusable(
            name, directory, f"its peft_type is {config.get('peft_type')!r}: give an adapter of type 'LORA'"
        )
    patterns = config.get("rank_pattern") or {}
    ranks: list[Any] = [config.get("r"), *(patterns.values() if isinstance(patterns, dict) else [patterns])]
    for rank in ranks:
        if type(rank) is not int or not 1 <= rank <= RANKS[-1]:
            raise _unusable(name, directory, f"its rank is {rank!r}: vLLM supports 1 to {RANKS[-1]}")
    if not any((directory / file).is_file() for file in WEIGHTS):
        raise _unusable(name, directory, f"it contains no {WEIGHTS[0]}: download the adapter again")
    highest: int = max(ranks)
    return highest


def _config(name: str, directory: Path) -> dict[str, Any]:
    file = directory / "adapter_config.json"
    if not directory.is_dir():
        raise _unusable(name, directory, "directory not found")
    try:
        config = loads(file.read_text())
    except OSError as error:
        reason = f"cannot read its {file.name} ({error.strerror}): give the directory of a LoRA adapter"
        raise _unusable(name, directory, reason) from error
    except ValueError as error:
        raise _unusable(name, directory, f"its {file.name} is not JSON ({error}): download it again") from error
    if not isinstance(config, dict):
        raise _unusable(name, directory, f"its {file.name} is not a JSON object: download it again")
    return config


def _unusable(name: str, directory: Path, reason: str) -> ExecutorStartError:
    return ExecutorStartError(f"lora_modules: cannot load the adapter {name!r} from {directory}: {reason}")
