"""Checks that a model can be downloaded, and describes why not. Importing this module takes half a second."""

from __future__ import annotations

from huggingface_hub import HfApi, constants, try_to_load_from_cache
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from cornserve_executors.base import ExecutorStartError
from cornserve_tasklib.hub import MODEL_FILES

TIMEOUT_SECONDS = 10.0


def check_hub_access(model: str, revision: str | None) -> None:
    """Raises `ExecutorStartError` for a model that is not in the cache, if the hub does not have it or does not answer.

    Libraries that load models try for a minute to reach the hub, after engines have been imported.
    """
    if any(isinstance(try_to_load_from_cache(model, name, revision=revision), str) for name in MODEL_FILES):
        return
    try:
        HfApi().model_info(model, revision=revision, timeout=TIMEOUT_SECONDS)
    except Exception as error:  # Transports raise many types.
        is_missing = isinstance(error, RepositoryNotFoundError | RevisionNotFoundError)
        if isinstance(error, HfHubHTTPError) and not is_missing:
            return  # The hub answers, and may serve a later attempt.
        problem = describe_hub_error(model, revision, error)
        raise ExecutorStartError(f"{problem} (also, no directory {model} exists)") from error


def describe_hub_error(model: str, revision: str | None, error: Exception) -> str:
    """Returns why a model cannot be downloaded and what to do about it, in one line."""
    name = model if revision is None else f"{model} (revision {revision})"
    return f"cannot download {name} from {constants.ENDPOINT} to {constants.HF_HUB_CACHE}: {_describe(error)}"


def _describe(error: Exception) -> str:
    match error:
        case GatedRepoError():
            return "access to it is restricted: accept its license on the hub, and give a token (HF_TOKEN)"
        case RevisionNotFoundError():
            return "the model has no such revision: give a branch, tag or commit of it"
        case RepositoryNotFoundError():
            return "the hub has no such model, or it is private: check the id, or give a token (HF_TOKEN)"
        case HFValidationError():
            return "it is not an id on the hub: give OWNER/NAME"
        case OfflineModeIsEnabled() | LocalEntryNotFoundError():
            return "it is not in the cache, and downloads are disabled (HF_HUB_OFFLINE)"
        case OSError() if error.errno is not None and error.filename is not None:
            return f"{error.filename}: {error.strerror}"
    reason = " ".join(str(error).split())
    return f"{type(error).__name__}: {reason}: check the network, HF_ENDPOINT and HTTPS_PROXY"
