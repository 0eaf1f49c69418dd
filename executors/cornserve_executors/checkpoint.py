"""Reads selected tensors of a checkpoint in safetensors format."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from safetensors import safe_open
from transformers.utils import cached_file

from cornserve_executors.base import ExecutorStartError

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"


class SafetensorsCheckpoint:
    """A checkpoint in a directory or on Hugging Face's hub. Only the files that are needed are downloaded."""

    def __init__(self, model_id: str, revision: str | None = None) -> None:
        self._model_id = model_id
        self._revision = revision
        self._files = self._files_by_tensor()

    @property
    def tensor_names(self) -> Iterable[str]:
        return self._files.keys()

    def read_tensors(self, names: Iterable[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """Yields the named tensors. Opens only the files that contain them."""
        by_file: dict[str, list[str]] = defaultdict(list)
        for name in names:
            by_file[self._files[name]].append(name)
        for file, names_in_file in by_file.items():
            with safe_open(self._require_file(file), framework="pt") as tensors:
                for name in names_in_file:
                    yield name, tensors.get_tensor(name)

    def _files_by_tensor(self) -> dict[str, str]:
        index = self._find_file(INDEX)
        if index is not None:
            files: dict[str, str] = json.loads(index.read_text())["weight_map"]
            return files
        with safe_open(self._require_file(SINGLE), framework="pt") as tensors:
            return dict.fromkeys(tensors.keys(), SINGLE)

    def _require_file(self, name: str) -> Path:
        path = self._find_file(name)
        if path is None:
            raise ExecutorStartError(f"{self._model_id} has no weights: {name} not found")
        return path

    def _find_file(self, name: str) -> Path | None:
        return find_file(self._model_id, self._revision, name)


def find_file(model_id: str, revision: str | None, name: str) -> Path | None:
    """Returns a file of a model. Downloads it if the model is on the hub and the file is not in the cache."""
    path = cached_file(model_id, name, revision=revision, _raise_exceptions_for_missing_entries=False)
    return None if path is None else Path(path)
