"""`cornserve models check`."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from http import HTTPStatus
from importlib.util import find_spec
from json import dumps, loads
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from cornserve.cli.console import CliError, print_json, print_rows, stderr
from cornserve.cli.engine_options import EngineOption, Revision, TrustRemoteCode, engine_options
from cornserve.cli.gateway import open_client
from cornserve.cli.options import Json, Url, WaitTimeout
from cornserve.cli.temporary_app import temporary_app

if TYPE_CHECKING:
    from cornserve.app.record import AppView
    from cornserve.cli.model_comparison import Chat, ChatOutput, Comparison, DirectOutputs
    from cornserve.client import Client
    from cornserve.client.deploy_target import DeployTarget
    from cornserve.task import Task
    from cornserve_tasklib.media import Modality

EXAMPLES = [
    "cornserve models check ./Qwen2.5-VL-3B-Instruct",
    "cornserve models check Qwen/Qwen3-0.6B --option dtype=float32",
]

_DIRECT_VLLM = "cornserve_executors.llm.direct_vllm"

_SLOT_ATTEMPTS, _SLOT_SECONDS = 3, 4
"""Attempts to start a path, and the seconds between them: executors of the path before hold slots until they end."""

_LOG_LINES = 20
"""The last lines of vLLM's output that an error has."""


def check_model(
    ctx: typer.Context,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model directory, or a Hugging Face id.")],
    option: EngineOption = None,
    trust_remote_code: TrustRemoteCode = False,
    revision: Revision = None,
    timeout: WaitTimeout = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Compare the responses of a model on each of its paths with those of vLLM called directly.

    vLLM runs in this command first, and then each path in a temporary app, as far as slots are free. In float32, the
    tokens are equal. In other types, the log probabilities of the same tokens differ by 0.25 at most. Ends with status
    1 if a comparison fails.
    """
    from cornserve.app.load import model_paths
    from cornserve.cli.model_comparison import ComparisonResult
    from cornserve.client.deploy_target import resolve_target
    from cornserve_tasklib.model_families import alternatives

    if model.endswith(".py"):
        raise CliError(f"{model} is an app: give a model directory or a Hugging Face id (OWNER/NAME)")
    options = engine_options(option or [], [], trust_remote_code)
    target = resolve_target(model, name=f"check-{uuid4().hex[:8]}", options=options, revision=revision)
    if target.warning:
        stderr().print(f"warning: {target.warning}", markup=False)
    paths = model_paths(target.spec)
    first = next(iter(paths))
    task = _language_model(model, first, paths[first])
    with open_client(ctx, url) as client:
        client.models()  # An instance that does not run is an error before vLLM starts.
        results = [*_compared_paths(client, target, [*alternatives(paths, first)], task, timeout)]
    if json:
        print_json([asdict(result) for result in results])
    else:
        rows = ((found.path, found.chat, found.result, found.details) for found in results)
        print_rows(("path", "chat", "result", "details"), rows)
    different = sum(found.result is ComparisonResult.DIFFERENT for found in results)
    if different:
        raise CliError(f"{different} of {len(results)} comparisons of {model} differ from vLLM")


class _NoFreeSlotsError(Exception):
    """The executors of a path do not fit. The message is for users."""


def _compared_paths(
    client: Client, target: DeployTarget, paths: Sequence[str], task: dict[str, Any], timeout: float | None
) -> Iterator[Comparison]:
    """Yields the comparisons of the paths. Raises `CliError`.

    Args:
        task: the settings of the executor that runs the whole model.
    """
    from cornserve.cli.model_comparison import Comparison, ComparisonResult, compare, comparison_chats

    chats = comparison_chats(_modalities(target))
    direct = _direct_outputs(task, [*chats.values()])
    for path in paths:
        served = target._replace(spec=target.spec.with_model(shares={path: 1}))
        try:
            found = _served_outputs(client, served, f"path {path}", [*chats.values()], timeout)
        except _NoFreeSlotsError as error:
            yield from (Comparison(path, chat, ComparisonResult.SKIPPED, str(error)) for chat in chats)
            continue
        outputs = zip(chats, direct["outputs"], found, strict=True)
        yield from (compare(path, chat, expected, output, direct["dtype"]) for chat, expected, output in outputs)


def _served_outputs(
    client: Client, target: DeployTarget, what: str, chats: Sequence[Chat], timeout: float | None
) -> list[ChatOutput]:
    """Returns the output of a temporary app for each chat. Raises `_NoFreeSlotsError`."""
    attempts = _SLOT_ATTEMPTS
    while True:
        try:
            with temporary_app(client, target, what, timeout, _check_slots) as app:
                return [_served(client, app, chat) for chat in chats]
        except _NoFreeSlotsError:
            attempts -= 1
            if not attempts:
                raise
        time.sleep(_SLOT_SECONDS)


def _language_model(model: str, name: str, path: Task[Any, Any]) -> dict[str, Any]:
    """Returns the settings of the executor that runs the whole model. Raises `CliError` for a model without chats."""
    from cornserve.task.unit import unit_tasks
    from cornserve_tasklib.llm import LLMTask

    settings = [unit.spec.config for unit in unit_tasks(path) if isinstance(unit, LLMTask)]
    if len(settings) != 1:
        raise CliError(f"{model} has the path {name}, and only chats are compared: try it with `cornserve deploy`")
    return settings[0]


def _modalities(target: DeployTarget) -> list[Modality]:
    """Returns the modalities in chats of the model, as far as its config files are known."""
    from cornserve_tasklib.model_catalog import chat_media
    from cornserve_tasklib.model_summary import summarize_directory

    model = target.spec.model
    assert model is not None
    summary = model.summary
    if summary is None and Path(model.id).is_dir():
        summary = summarize_directory(Path(model.id))
    return [] if summary is None else chat_media(summary)


def _direct_outputs(task: dict[str, Any], chats: Sequence[Chat]) -> DirectOutputs:
    """Returns the output of vLLM for each chat. Raises `CliError` if it does not run."""
    if find_spec("vllm") is None:
        raise CliError(
            "vLLM is not installed here: install cornserve[cpu] or cornserve[gpu], and run the command there"
        )
    with TemporaryDirectory() as directory, stderr().status("Generating with vLLM alone"):
        result, log = Path(directory, "outputs.json"), Path(directory, "log")
        command = [sys.executable, "-P", "-m", _DIRECT_VLLM, str(result)]
        with log.open("wb") as output:
            done = subprocess.run(
                command, input=dumps({"task": task, "chats": chats}).encode(), stdout=output, stderr=output, check=False
            )
        if done.returncode:
            for line in log.read_text(errors="replace").splitlines()[-_LOG_LINES:]:
                stderr().print(f"  | {line}", markup=False)
            raise CliError("vLLM alone does not run this model")
        outputs: DirectOutputs = loads(result.read_bytes())
        return outputs


def _check_slots(view: AppView) -> None:
    """Raises `_NoFreeSlotsError` if an executor waits for slots that other apps have."""
    from cornserve.app.record import FailureReason

    for group in view.status.groups:
        for replica in group.replicas:
            if replica.reason == FailureReason.INSUFFICIENT_CAPACITY:
                raise _NoFreeSlotsError(replica.message)


def _served(client: Client, app: str, chat: Chat) -> ChatOutput:
    from cornserve.client import ApiStatusError

    try:
        response = client.invoke(app, chat)
    except ApiStatusError as error:
        if error.status != HTTPStatus.BAD_REQUEST:
            raise
        return {"error": error.message}
    return {"tokens": response["token_ids"], "logprobs": [token["logprob"] for token in response["logprobs"]]}
