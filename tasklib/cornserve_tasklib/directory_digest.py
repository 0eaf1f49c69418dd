"""A digest of the files of a model, by which executors and profiles know whether it is the same one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import file_digest, sha256
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final

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


def directory_digest(directory: Path) -> str:
    """Returns the digest of the names and contents of the files in a directory, without hidden ones. Blocks.

    It is empty if they cannot be read, or without any. Copies of a directory have the same digest. Of large files, and
    of many, it reads samples, which differ after a training of any tensor in a safetensors file, but not after a change
    of a few numbers.
    """
    digest, free = sha256(), MAX_FULLY_READ_BYTES
    try:
        files = sorted(islice(_files(directory), MAX_FILES + 1))
        if not 0 < len(files) <= MAX_FILES:
            return ""
        for name in files:
            size = (directory / name).stat().st_size
            is_read = size <= min(FULLY_READ_BYTES, free)
            free -= size if is_read else 0
            content = _content_digest(directory / name, size, is_read)
            digest.update(f"{name} {size} {content}\0".encode(errors="surrogateescape"))
    except OSError:
        return ""
    return digest.hexdigest()


def _files(directory: Path) -> Iterator[str]:
    for path in directory.rglob("*"):
        name = path.relative_to(directory)
        if path.is_file() and not any(part.startswith(".") for part in name.parts):
            yield str(name)


def _content_digest(path: Path, size: int, is_read_completely: bool) -> str:
    with path.open("rb") as file:
        if is_read_completely or size <= SAMPLE_BYTES:
            return file_digest(file, "sha256").hexdigest()
        digest = sha256()
        distances = [(size - SAMPLE_BYTES) * sample // (SAMPLES - 1) for sample in range(SAMPLES)]
        for start in (*distances, *_tensor_starts(file)[:MAX_TENSORS]):
            file.seek(min(start, size))
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
        return [8 + header_bytes + max(0, int(tensor["data_offsets"][0])) for tensor in header.values()]
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        return []
