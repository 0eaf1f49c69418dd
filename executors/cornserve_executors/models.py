"""Checks of model directories and model ids."""

from __future__ import annotations

from pathlib import Path

from cornserve_executors.base import ExecutorStartError
from cornserve_tasklib.hub import MODEL_FILES, is_hub_id


def check_model(model_id: str, revision: str | None) -> None:
    """Raises `ExecutorStartError` unless `model_id` is a model directory, or a Hugging Face id that can be loaded.

    Blocks for seconds.
    """
    model = Path(model_id)
    if is_hub_id(model_id) and not model.exists():
        from cornserve_executors.hub_access import check_hub_access  # Slow to import.

        check_hub_access(model_id, revision)
        return
    if not model.is_dir():
        raise ExecutorStartError(f"model directory not found: {model}")
    if not any((model / name).is_file() for name in MODEL_FILES):
        raise ExecutorStartError(
            f"{model} is not a model directory: it contains no {' and no '.join(MODEL_FILES)}: download the model"
        )
