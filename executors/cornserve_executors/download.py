"""Downloads a model to the Hugging Face cache: `python -m cornserve_executors.download MODEL --revision REVISION`.

Processes that share the cache download each file once: huggingface_hub locks the files. A model that is complete in the
cache is not downloaded again, even if its branch has moved, so that all replicas run the same version.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, get_cached_repo_tree, snapshot_download
from huggingface_hub.errors import CachedRepoTreeNotFoundError, IncompleteSnapshotError, LocalEntryNotFoundError
from tqdm import tqdm  # type: ignore[import-untyped]

from cornserve.observe import logs
from cornserve.task.spec import ExecutorSpec
from cornserve_executors.base import exit_reason
from cornserve_executors.hub_access import describe_hub_error

log = logging.getLogger("cornserve.download")

PROGRESS_SECONDS = 10.0

_UNUSED = ["original/*", "onnx/*", "*.onnx", "*.h5", "*.msgpack", "*.tflite", "*.gguf"]
"""Copies of the weights in formats that executors do not read."""

_UNUSED_WITH_SAFETENSORS = ["*.bin", "*.pt", "*.pth"]


class DownloadError(Exception):
    """The model cannot be downloaded. The message is for users."""


def main() -> int:
    options = _options()
    logs.configure()
    model, revision = options.model, options.revision
    if options.spec is not None:
        model, revision = options.spec.config.get("model_id"), options.spec.config.get("revision")
    if model is None or Path(model).is_absolute():
        log.info("the executor needs no download: its model is %s", model or "not from the hub")
        return 0
    try:
        log.info("the model is at %s", download(model, revision))
    except DownloadError as error:
        exit_reason.report(str(error), options.termination_log)
        return 1
    return 0


def download(model: str, revision: str | None = None) -> str:
    """Returns the directory of the model in the cache (`HF_HOME`), after downloading what is missing there. Blocks.

    Raises `DownloadError`.
    """
    try:
        try:
            tree = get_cached_repo_tree(model, revision=revision)
            ignored = _ignored_files(file.path for file in tree)
            return snapshot_download(model, revision=revision, ignore_patterns=ignored, local_files_only=True)
        except (CachedRepoTreeNotFoundError, LocalEntryNotFoundError, IncompleteSnapshotError):
            siblings = HfApi().model_info(model, revision=revision).siblings
            ignored = _ignored_files(sibling.rfilename for sibling in siblings or ())
            return snapshot_download(
                model, revision=revision, ignore_patterns=ignored, tqdm_class=_ProgressLog, max_workers=4
            )
    except Exception as error:  # the libraries below raise many types
        raise DownloadError(describe_hub_error(model, revision, error)) from error


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="cornserve-download", description=__doc__)
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("model", nargs="?", help="the id of the model on the hub")
    model.add_argument("--spec", type=ExecutorSpec.model_validate_json, help="the executor that needs it, as JSON")
    parser.add_argument("--revision", help="a branch, tag or commit of the model, with MODEL")
    parser.add_argument("--termination-log", type=Path, default=exit_reason.TERMINATION_LOG, metavar="FILE")
    return parser.parse_args()


def _ignored_files(files: Iterable[str]) -> list[str]:
    has_safetensors = any(file.endswith(".safetensors") and "/" not in file for file in files)
    return [*_UNUSED, *(_UNUSED_WITH_SAFETENSORS if has_safetensors else ())]


class _ProgressLog(tqdm):  # type: ignore[misc]
    """Logs the bytes on the disk every `PROGRESS_SECONDS`. A progress bar would be unreadable in a log."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._counts_files = kwargs.pop("name", None) != "huggingface_hub.snapshot_download"
        self._next_at = time.monotonic() + PROGRESS_SECONDS
        super().__init__(*args, **{**kwargs, "disable": False})

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        if self._counts_files or time.monotonic() < self._next_at:
            return
        self._next_at = time.monotonic() + PROGRESS_SECONDS
        log.info("downloaded %sB of %sB", tqdm.format_sizeof(self.n), tqdm.format_sizeof(self.total or 0))


if __name__ == "__main__":
    sys.exit(main())
