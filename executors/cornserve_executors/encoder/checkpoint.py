"""A checkpoint of which only some tensors are read."""

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


class EncoderCheckpoint:
    """Of a directory, or of the hub: then only the files that are needed are fetched."""

    def __init__(self, model_id: str) -> None:
        self._model_id = model_id
        self._files = self._by_tensor()

    @property
    def names(self) -> Iterable[str]:
        """Of all tensors."""
        return self._files.keys()

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """Opens the files that hold these tensors, and reads nothing else of them."""
        by_file: dict[str, list[str]] = defaultdict(list)
        for name in names:
            by_file[self._files[name]].append(name)
        for file, inside in by_file.items():
            with safe_open(self._need(file), framework="pt") as tensors:
                for name in inside:
                    yield name, tensors.get_tensor(name)

    def _by_tensor(self) -> dict[str, str]:
        index = self._find(INDEX)
        if index is not None:
            files: dict[str, str] = json.loads(index.read_text())["weight_map"]
            return files
        with safe_open(self._need(SINGLE), framework="pt") as tensors:
            return dict.fromkeys(tensors.keys(), SINGLE)

    def _need(self, name: str) -> Path:
        path = self._find(name)
        if path is None:
            raise ExecutorStartError(f"{self._model_id} has no weights: there is no {name}")
        return path

    def _find(self, name: str) -> Path | None:
        path = cached_file(self._model_id, name, _raise_exceptions_for_missing_entries=False)
        return None if path is None else Path(path)
