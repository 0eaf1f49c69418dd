"""Reads the config files of models on the Hugging Face hub, without their weights."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from cornserve.exception_text import exception_text
from cornserve_tasklib.model_summary import CONFIG_FILES, ModelSummary, check_weights, summarize_files

if TYPE_CHECKING:
    from huggingface_hub import HfApi

TIMEOUT_SECONDS: Final = 3.0
"""The time after which a hub does not answer."""

LIMIT_SECONDS: Final = 15.0
"""The time that a hub has to send all config files."""


class UnknownHubModelError(Exception):
    """The files of a model cannot be read. The message is the reason, for users."""


def summarize_hub_model(model: str, revision: str | None) -> ModelSummary:
    """Returns what the config files of a model say: those on the hub or, if it does not answer, those in the cache.

    Raises:
        UnknownHubModelError: neither the hub nor the cache has them, or access is restricted.
        DefinitionError: they do not describe a model.
    """
    found: Future[ModelSummary] = Future()

    def read() -> None:
        try:
            found.set_result(_summarize(model, revision))
        except Exception as error:
            found.set_exception(error)

    # The timeouts of a download begin again with each part and each retry.
    threading.Thread(target=read, name="hub", daemon=True).start()
    try:
        return found.result(LIMIT_SECONDS)
    except TimeoutError:
        return _summarize(model, revision, unavailable="the hub does not send the files")


def _summarize(model: str, revision: str | None, unavailable: str = "") -> ModelSummary:
    """Reads the config files from the cache if there is a reason why the hub is unavailable."""
    # It takes half a second to import.
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import (
        GatedRepoError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )
    from huggingface_hub.utils.tqdm import tqdm

    hub = HfApi()
    try:
        unavailable = unavailable or _unavailable(hub, model, revision)
        directory = hub.snapshot_download(
            model,
            revision=revision,
            allow_patterns=[*CONFIG_FILES],
            etag_timeout=TIMEOUT_SECONDS,
            local_files_only=bool(unavailable),
            tqdm_class=cast(Any, partial(tqdm, disable=True)),
        )
    except GatedRepoError as error:
        raise UnknownHubModelError("access to it is restricted: give a token (HF_TOKEN)") from error
    except RevisionNotFoundError as error:
        raise UnknownHubModelError(f"it has no revision {revision}: give a branch, tag or commit") from error
    except RepositoryNotFoundError as error:
        raise UnknownHubModelError(f"{constants.ENDPOINT} has no such model, or it is private") from error
    except LocalEntryNotFoundError as error:
        reason = unavailable or f"{constants.ENDPOINT} does not answer"
        raise UnknownHubModelError(f"{reason}, and {constants.HF_HUB_CACHE} does not have it") from error
    except Exception as error:  # Transports raise many types.
        raise UnknownHubModelError(exception_text(error)) from error
    check_weights(model, _file_names(model, revision))
    return summarize_files(model, Path(directory))


def _unavailable(hub: HfApi, model: str, revision: str | None) -> str:
    """Returns why the hub cannot be used, or an empty text. Raises an error if it refuses the model."""
    from httpx2 import TransportError
    from huggingface_hub import constants
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        hub.model_info(model, revision=revision, timeout=TIMEOUT_SECONDS)
    except (GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError):
        raise
    except OfflineModeIsEnabled:
        return "downloads are disabled"
    except TransportError:
        return f"{constants.ENDPOINT} does not answer"
    except HfHubHTTPError as error:
        status = error.response.status_code
        advice = " (check HF_TOKEN)" if status == HTTPStatus.UNAUTHORIZED else ""
        return f"{constants.ENDPOINT} answers with the status {status}{advice}"
    return ""


def _file_names(model: str, revision: str | None) -> list[str]:
    """Returns the names of the files on the hub, as far as the cache knows them."""
    from huggingface_hub import get_cached_repo_tree
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    try:
        return [file.path for file in get_cached_repo_tree(model, revision=revision)]
    except CachedRepoTreeNotFoundError:  # Another program has downloaded it.
        return []
