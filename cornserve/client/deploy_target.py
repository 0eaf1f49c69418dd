"""Deploy targets: an app, a Python file or its text, a model directory, or a Hugging Face id."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from pydantic import JsonValue, ValidationError

from cornserve.app.app import App, check_name
from cornserve.app.declared_name import declared_name
from cornserve.app.path_weights import weights_of
from cornserve.app.plan import AppPlan
from cornserve.app.settings import DEFAULT_FILENAME, AppPolicies, ExecutorOverride
from cornserve.app.source import SourceError, load_app_source, unload_app
from cornserve.app.spec import AppModel, AppSource, AppSpec
from cornserve.client.errors import DeployTargetError
from cornserve.task.errors import DefinitionError
from cornserve.task.unit import unit_tasks
from cornserve.validation_errors import describe_all
from cornserve_plan.bounded_file import read_bounded
from cornserve_plan.fields import Binding
from cornserve_policies.registry import DEFAULT_ROUTING
from cornserve_tasklib.hub import is_hub_id
from cornserve_tasklib.media_options import MediaOptions
from cornserve_tasklib.model_summary import ModelSummary

if TYPE_CHECKING:
    from cornserve.app.step_limits import StepLimits

MAX_SOURCE_MIB = 16

MakeSpec = Callable[[str], AppSpec]
MakeSourceSpec = Callable[[str, Path], AppSpec]


class DeployOptions(TypedDict, total=False):
    """The options of a deployment. An `AppSpec` has its own, except for the name and the plan."""

    name: str | None
    """The app's name; by default, the name in the source, or the name of the adapter or the model."""
    replicas: int | None
    """Replicas of each executor; by default, 1 for a new app, else the current number."""
    routing: str
    """The policy that selects replicas."""
    binding: Binding
    """See `AppPolicies.binding`."""
    shares: Mapping[str, float] | None
    """Shares of the requests among the paths of the model's family, such as `{"e-l": 1}`; by default, the first
    path receives all."""
    options: Mapping[str, JsonValue] | None
    """Options of the model's executors, such as `{"max_model_len": 32768}`, or `{"llm.dtype": "float16"}` for one
    executor."""
    revision: str | None
    """The branch, tag or commit of the repository of a Hugging Face id."""
    lora: str | None
    """The LoRA adapter that the app applies to the model, a name in the option `lora_modules`."""
    drawer: str | None
    """The image model with which the app draws when a chat asks for a picture: a directory or Hugging Face id."""
    media_options: MediaOptions | None
    """The frames and sizes in which the model receives media, unless a request sets others."""
    allow_paths: Sequence[str]
    """Paths that the code of an app with source may read and change, besides its temporary files."""
    log_messages: bool
    """Whether logs contain the messages of errors of the code, which may quote requests."""
    plan: AppPlan | Path | str | None
    """A plan file, or a plan, by which the app is deployed instead of by `replicas`."""


class DeployTarget(NamedTuple):
    name: str
    spec: AppSpec
    example_command: str
    """The command line of a request to the app."""
    warning: str = ""
    """An uncertainty about the target, for users."""


def resolve_target(
    what: App | AppSpec | DeployTarget | Path | str,
    *,
    name: str | None = None,
    replicas: int | None = None,
    routing: str = DEFAULT_ROUTING,
    binding: Binding = "early",
    shares: Mapping[str, float] | None = None,
    options: Mapping[str, JsonValue] | None = None,
    revision: str | None = None,
    lora: str | None = None,
    drawer: str | None = None,
    media_options: MediaOptions | None = None,
    allow_paths: Sequence[str] = (),
    log_messages: bool = False,
    plan: AppPlan | Path | str | None = None,
    step_limits: Mapping[str, StepLimits] | None = None,
) -> DeployTarget:
    """Resolves a target. Raises `DeployTargetError` if it cannot be deployed. May import the app, which is slow.

    A planned model has all paths of its family, unless shares are given.

    Args:
        step_limits: the limits of the engines' steps of an `AppPlan`, by deployment option.
    """
    source_settings = {"allow_paths": list(allow_paths), "log_messages": log_messages}
    target = _resolve(
        what, name, replicas, routing, binding, shares, options, revision, lora, drawer, media_options, source_settings
    )
    if plan is None:
        return target
    from cornserve.app.load import with_all_paths
    from cornserve.app.step_limits import with_step_limits
    from cornserve.client.plan_reader import read_plan
    from cornserve_tasklib.prefill_decode import DecodeTask

    known, limits = (plan, step_limits or {}) if isinstance(plan, AppPlan) else read_plan(plan)
    try:
        splits = any(option.task == DecodeTask.__name__ for option in known.options.values())
        spec = target.spec if shares is not None else with_all_paths(target.spec, also_split=splits)
        spec, known = with_step_limits(spec, known, limits)
        planned = AppSpec.model_validate({**spec.model_dump(exclude_unset=True), "plan": known})
    except ValidationError as error:
        raise DeployTargetError(describe_all(error.errors())) from error
    except DefinitionError as error:
        raise DeployTargetError(str(error)) from error
    return target._replace(spec=planned)


def _resolve(
    what: App | AppSpec | DeployTarget | Path | str,
    name: str | None,
    replicas: int | None,
    routing: str,
    binding: Binding,
    shares: Mapping[str, float] | None,
    options: Mapping[str, JsonValue] | None,
    revision: str | None,
    lora: str | None,
    drawer: str | None,
    media_options: MediaOptions | None,
    source_settings: Mapping[str, Any],
) -> DeployTarget:
    model_options = {
        "revision": revision,
        "lora": lora,
        "media_options": media_options,
        "shares": shares,
        "drawer": drawer,
    }

    def source_spec(text: str, file: Path | None = None) -> AppSpec:
        for option, value in model_options.items():
            if value is not None:
                raise DeployTargetError(
                    f"{option}: cannot be set for an app with source: remove it, or set it in the source"
                )
        fields = {"inline": text, "filename": source_filename(file), **source_settings}
        # Fields with their defaults are not sent, so that an earlier gateway accepts them.
        sent = {name: value for name, value in fields.items() if value != AppSource.model_fields[name].get_default()}
        return AppSpec(source=AppSource.model_validate(sent), **settings)

    def model_spec(id: str) -> AppSpec:
        for field in filter(source_settings.get, source_settings):
            raise DeployTargetError(f"{field}: only the code of an app with source uses it: remove it")
        fields = {option: value for option, value in model_options.items() if value is not None}
        if shares is not None:
            fields["shares"] = _weights(shares)
        if drawer is not None:
            fields["drawer"] = _drawer(drawer)
        return AppSpec(model=AppModel.model_validate({"id": id, **fields}), **settings)

    try:
        settings: dict[str, Any] = {
            "policies": AppPolicies(routing=routing, binding=binding),
            "executors": _executor_overrides(options or {}),
            # A redeployment keeps the number of replicas unless one is given.
            **({} if replicas is None else {"replicas": replicas}),
        }
        match what:
            case DeployTarget():
                return what
            case AppSpec():
                return _spec(what, "the source", name)
            case App():
                from cornserve.client.source_capture import capture_source

                return _spec(source_spec(capture_source(what)), "the source", name)
            case str() if "\n" in what:
                return _spec(source_spec(what), "the source", name)
            case _:
                return _path_or_hub_id(str(what), name, source_spec, model_spec)
    except ValidationError as error:
        raise DeployTargetError(describe_all(error.errors())) from error
    except DefinitionError as error:
        raise DeployTargetError(str(error)) from error


def _weights(shares: Mapping[str, float]) -> dict[str, int]:
    try:
        return weights_of(shares)
    except ValueError as error:
        raise DeployTargetError(str(error)) from error


def _executor_overrides(options: Mapping[str, JsonValue]) -> list[ExecutorOverride]:
    """Groups options such as `max_model_len`, for all executors, and `llm.max_model_len` by executor."""
    from cornserve_tasklib.model_options import ALL_ENGINES

    by_executor: dict[str, dict[str, JsonValue]] = {}
    for name, value in options.items():
        executor, _, option = name.rpartition(".")
        by_executor.setdefault(executor or ALL_ENGINES, {})[option] = value
    return [ExecutorOverride(name=executor, options=values) for executor, values in by_executor.items()]


def _path_or_hub_id(what: str, name: str | None, source_spec: MakeSourceSpec, model_spec: MakeSpec) -> DeployTarget:
    try:
        path = Path(what).expanduser()
        is_directory, exists = path.is_dir(), path.exists()
    except (OSError, RuntimeError) as error:  # RuntimeError: "~" of an unknown user.
        raise DeployTargetError(f"cannot access {what}: {getattr(error, 'strerror', None) or error}") from error
    if what.endswith(".py"):
        return _spec(source_spec(_text(path), path), path, name)
    if is_directory:
        return _spec(model_spec(str(path.resolve())), path, name)
    if exists or not is_hub_id(what) or "/" not in what:  # a name without "/" is more likely a missing file
        problem = f"cannot deploy {what}" if exists else f"{what} does not exist"
        raise DeployTargetError(
            f"{problem}: give a Python file (.py), a model directory or a Hugging Face id (OWNER/NAME)"
        )
    return _spec(model_spec(what), path, name)


def _drawer(what: str) -> str:
    path = Path(what)
    if path.expanduser().is_dir():
        return str(path.expanduser().resolve())
    if not is_hub_id(what) or "/" not in what:
        raise DeployTargetError(f"cannot draw with {what}: give a model directory or a Hugging Face id (OWNER/NAME)")
    return what


def source_filename(file: Path | None) -> str:
    """Returns the name of a file for stack traces, or the default if it has characters that they cannot have."""
    is_known = file is not None and re.fullmatch(r"[A-Za-z0-9_. +-]{1,128}", file.name) is not None
    return file.name if file is not None and is_known else DEFAULT_FILENAME


def _text(path: Path) -> str:
    try:
        return read_bounded(path, MAX_SOURCE_MIB)
    except (OSError, ValueError) as error:  # ValueError: not text, or an invalid path.
        raise DeployTargetError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}: give a readable Python file (.py)"
        ) from error


def _spec(spec: AppSpec, origin: Path | str, name: str | None) -> DeployTarget:
    """Returns the target for a spec. `origin` names the source of the spec in error messages."""
    from cornserve.client.example_command import example_command

    if spec.model is not None:
        name = name or default_app_name(spec.model.lora or spec.model.id)
        check_name(name)
        return _model_target(name, spec.model, spec)
    source = spec.inline_source
    if source is None:
        raise DeployTargetError("source.config_map_key_ref: can be set only in an App resource: give the source")
    if name is not None:
        check_name(name)
        _check_same_name(name, declared_name(source), origin)
    module = f"cornserve_deploy_{uuid.uuid4().hex}"
    try:
        app = load_app_source(source, module, filename=origin.name if isinstance(origin, Path) else "app.py")
    except SourceError as error:
        if name is not None and isinstance(error.__cause__, ModuleNotFoundError):
            # The module may be installed where the gateway runs.
            return DeployTarget(name, spec, example_command(name))
        raise
    unload_app(module)
    if name is not None:
        _check_same_name(name, app.name, origin)
    _check_model_ids(app, Path())
    if isinstance(origin, Path):
        _check_model_ids(app, origin.parent)
    return DeployTarget(app.name, spec, example_command(app.name, app.request_types))


def _model_target(name: str, model: AppModel, spec: AppSpec) -> DeployTarget:
    """Returns the target for a model, whose config files decide its paths. Raises `DefinitionError`."""
    from cornserve.app.load import model_paths
    from cornserve.client.example_command import example_command
    from cornserve.client.hub_models import UnknownHubModelError, summarize_hub_model

    unread: dict[str, str] = {}

    def summary(id: str, revision: str | None) -> ModelSummary | None:
        try:
            return summarize_hub_model(id, revision)
        except UnknownHubModelError as error:
            unread[id] = str(error)
            return None

    if model.drawer is not None and not Path(model.drawer).is_absolute():
        spec = spec.with_model(drawer_summary=summary(model.drawer, None))
    if not Path(model.id).is_absolute():
        spec = spec.with_model(summary=summary(model.id, model.revision))
    elif not Path(model.id).is_dir():  # It exists where the executors run.
        return DeployTarget(name, spec, example_command(name))
    for id, reason in unread.items():
        _check_not_relative(id, reason, Path())
    paths = model_paths(spec)
    types = [kind for path in paths.values() for kind in path.request_types()]
    warnings = [
        f"no directory {id} exists, and the config files of this id cannot be read, so its name decides what it is"
        f"{f' (path {next(iter(paths))})' if id == model.id else ''}: {reason}"
        for id, reason in unread.items()
    ]
    return DeployTarget(name, spec, example_command(name, types), "; ".join(warnings))


def _check_model_ids(app: App, directory: Path) -> None:
    """Raises `DeployTargetError` if an app's code names a model by a path relative to the directory."""
    from cornserve.client.hub_models import UnknownHubModelError, summarize_hub_model

    units = [unit for path in app.paths for unit in unit_tasks(path)]
    models = {
        id: getattr(unit, "revision", None)
        for unit in units
        if isinstance(id := getattr(unit, "model_id", None), str) and is_hub_id(id)
    }
    for id, revision in models.items():
        if (directory / id).is_dir() or ("/" in id and (directory / id).parent.is_dir()):
            try:
                summarize_hub_model(id, revision)
            except UnknownHubModelError as error:
                _check_not_relative(id, str(error), directory)
            except DefinitionError:
                pass  # The hub has it, and the executor of the task may know how to load it.


def _check_not_relative(id: str, reason: str, directory: Path) -> None:
    """Raises `DeployTargetError` for an id that looks like a path relative to a directory.

    Args:
        reason: the reason for which the files of the id cannot be read on the hub.
    """
    path = directory / id
    unread = f"as a Hugging Face id its config files cannot be read: {reason}"
    if path.is_dir():
        raise DeployTargetError(f"{id} is a relative path, and {unread}: give the absolute path {path.resolve()}")
    if path.parent.is_dir():
        raise DeployTargetError(
            f"{id} does not exist in the directory {path.parent}, and {unread}: correct the path or the id"
        )


def _check_same_name(name: str, defined: str | None, origin: Path | str) -> None:
    if defined not in (None, name):
        raise DeployTargetError(
            f"{origin} defines the app {defined!r}, not {name!r}: change the name there, or omit the name"
        )


def default_app_name(model: str) -> str:
    """Returns an app name from the last part of a directory or Hugging Face id."""
    last = model.rstrip("/").rpartition("/")[2].lower()
    return re.sub(r"[^a-z0-9._-]+", "-", last)[:63].strip("._-")
