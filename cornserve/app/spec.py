"""The spec of an app, which users write. The `App` resource has the same fields, with names in camelCase.

The CRD is generated from the models: docstrings are its descriptions.
"""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256
from typing import Annotated, Self, TypedDict, Unpack

from pydantic import AwareDatetime, Field, model_validator

from cornserve.app.flat_spec import to_nested
from cornserve.app.path_weights import MAX_WEIGHT
from cornserve.app.plan import AppPlan
from cornserve.app.planning import AppProfile, PlanningInputs
from cornserve.app.settings import (
    ALL_EXECUTORS,
    DEFAULT_FILENAME,
    MAX_EXECUTOR_OVERRIDES,
    MAX_REPLICAS,
    AllowedPaths,
    AppPolicies,
    ConfigMapKeyRef,
    ExecutorName,
    ExecutorOverrides,
    Lora,
    ModelId,
    ModelStorage,
    RestartId,
    Revision,
    Rollout,
    SourceFilename,
)
from cornserve.app.spec_rules import SpecModel, SpecRule, exactly_one
from cornserve_tasklib.media_options import MediaOptions
from cornserve_tasklib.model_summary import ModelSummary

MAX_SOURCE_CHARACTERS = 512 * 1024
"""Maximum length of inline source in an `App` resource. A ConfigMap may have more."""

MAX_PATHS = 64
"""Maximum number of paths with a share."""

Weight = Annotated[int, Field(ge=0, le=MAX_WEIGHT)]

_UNPLANNED = "!has(self.plan) && !has(self.planning)"
"""The CEL condition that no plan determines the replicas."""
_NO_EXECUTOR_REPLICAS = "!has(self.executorReplicas) || self.executorReplicas.size() == 0"
"""The CEL condition that no executor has its number of replicas by hand."""
_NO_AUTOSCALING = "!has(self.policies) || !has(self.policies.autoscaling)"
"""The CEL condition that the app is not autoscaled."""
_ONE_SHARED_CELL = (
    "self.plan.cells.exists_one(cell, cell.count > 0)"
    " && self.plan.cells.exists(cell, cell.count == 1 && has(cell.isShared) && cell.isShared)"
)
"""The CEL condition that one cell of the plan runs, which is shared."""


class AppModel(SpecModel):
    """A model of a supported family."""

    id: ModelId
    """A Hugging Face id, such as `Qwen/Qwen2.5-VL-7B-Instruct`, or a model directory in the executors' containers."""
    revision: Revision | None = None
    """The branch, tag or commit of the model's repository."""
    summary: ModelSummary | None = None
    """The facts in the config files of a Hugging Face id when the app was deployed. `cornserve deploy` sets it. Without
    it, the name of the id decides the paths."""
    lora: Lora | None = None
    """The LoRA adapter that the app applies to the model, a name in the option `lora_modules` of `executors`. Apps with
    different adapters and equal options share executors."""
    drawer: ModelId | None = None
    """The image model with which the app draws when a chat asks for a picture: a Hugging Face id, or a model directory
    in the executors' containers."""
    drawer_summary: ModelSummary | None = None
    """The facts in the config files of the drawer's id, like `summary`."""
    media_options: MediaOptions | None = None
    """The frames and sizes in which the model receives media, unless a request sets others. Apps with different ones
    share executors."""
    storage: ModelStorage | None = None
    """The location of the model's files: exactly one of the fields. Without it, executors download the model. Only
    `download` applies to the drawer as well."""
    shares: dict[str, Weight] | None = Field(default=None, min_length=1, max_length=MAX_PATHS)
    """Integer weights of the requests that the paths of the model's family receive, by path name. By default, the first
    path receives all requests."""

    rules = (
        SpecRule(
            lambda model: model.shares is None or any(model.shares.values()),
            "!has(self.shares) || self.shares.exists(path, self.shares[path] > 0)",
            "all weights are 0: set at least one to a number greater than 0",
            field="shares",
        ),
    )


class AppSource(SpecModel):
    """Python source that defines exactly one `App` at its top level. Its name is the name of this object."""

    inline: str | None = Field(default=None, json_schema_extra={"maxLength": MAX_SOURCE_CHARACTERS})
    """The source."""
    config_map_key_ref: ConfigMapKeyRef | None = None
    """The ConfigMap that contains the source. Each change of the ConfigMap is a new version of the app."""
    allow_paths: AllowedPaths = Field(default_factory=list)
    """Files and directories of the gateways' and the controller's containers that the code may read and change,
    besides its temporary ones."""
    filename: SourceFilename = DEFAULT_FILENAME
    """The name of the file in stack traces and messages."""
    log_messages: bool = False
    """Whether logs contain the messages of errors of the code. They may quote requests."""

    rules = (exactly_one("inline", "config_map_key_ref"),)


class Restart(SpecModel):
    """A request for a restart, in the way of `kubectl rollout restart`."""

    id: RestartId = ""
    """Any text. Another one replaces the executors of the app, or starts a failed app again."""
    executors: dict[ExecutorName, RestartId] = Field(default_factory=dict, max_length=MAX_EXECUTOR_OVERRIDES)
    """Texts for single executors, by name, in addition to `id`. Another one replaces only this executor."""


class SpecChanges(TypedDict, total=False):
    """Fields of an `AppSpec` that change after its deployment."""

    model: AppModel | None
    replicas: int
    executor_replicas: dict[str, int]
    policies: AppPolicies
    executors: ExecutorOverrides
    held_until: datetime | None
    restart: Restart | None
    plan: AppPlan | None
    planning: PlanningInputs | None
    measured: AppProfile | None


class AppSpec(SpecModel):
    """The desired state of an app: exactly one of `model` and `source`, and its settings."""

    model: AppModel | None = None
    source: AppSource | None = None
    replicas: int = Field(default=1, ge=0, le=MAX_REPLICAS)
    """Number of replicas of each executor. With 0, the app is parked: it stays deployed, but nothing runs."""
    executor_replicas: dict[ExecutorName, Annotated[int, Field(ge=1, le=MAX_REPLICAS)]] = Field(
        default_factory=dict, max_length=MAX_EXECUTOR_OVERRIDES
    )
    """Numbers of replicas of single executors, by name. The others have `replicas`, or those of the plan. In an app
    with a plan, the number is that of all cells together: a shared cell keeps at least one replica, and each other
    cell those of the plan."""
    policies: AppPolicies = AppPolicies()
    """The policies of the app, by name. A change restarts nothing."""
    held_until: AwareDatetime | None = None
    """The time until which the load of the app changes neither its replicas nor its plan. `cornserve scale` sets it."""
    rollout: Rollout = Rollout()
    """The way in which a new version replaces the old one. By default, a rolling update."""
    restart: Restart | None = None
    executors: ExecutorOverrides = Field(
        default_factory=list,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    """Settings of the executors of the app, by name. `*` applies to all; the settings of a named executor win."""
    plan: AppPlan | None = None
    """Cells with their replicas, and the probabilities of paths. It replaces `replicas` and the shares of paths.
    `cornserve deploy APP --plan FILE` writes it."""
    planning: PlanningInputs | None = None
    """The inputs of the plan: a budget or a rate, the workload and the profile. Without a plan, the controller makes it
    from them and sets `plan`; with `policies.adaptation`, it makes another one when the mix of the request types has
    shifted."""
    measured: AppProfile | None = None
    """The profile that the controller has had measured, because `planning` does not contain a profile."""

    rules = (
        exactly_one("model", "source"),
        SpecRule(
            lambda spec: not spec.is_planned or spec.replicas == 1,
            f"{_UNPLANNED} || !has(self.replicas) || self.replicas == 1",
            "a plan has the replicas of the executors: remove the replicas or the plan",
            field="replicas",
        ),
        SpecRule(
            lambda spec: spec.plan is not None or spec.planning is None or not spec.executor_replicas,
            f"has(self.plan) || !has(self.planning) || {_NO_EXECUTOR_REPLICAS}",
            "the plan that is made has the replicas of the executors: remove the numbers of replicas until it exists",
            field="executor_replicas",
        ),
        SpecRule(
            lambda spec: spec.policies.adaptation is None or not spec.executor_replicas,
            f"!has(self.policies) || !has(self.policies.adaptation) || {_NO_EXECUTOR_REPLICAS}",
            "policies.adaptation changes the replicas of the executors: remove it, or the numbers of replicas",
            field="executor_replicas",
        ),
        SpecRule(
            lambda spec: spec.plan is not None or spec.planning is None or spec.policies.autoscaling is None,
            f"has(self.plan) || !has(self.planning) || {_NO_AUTOSCALING}",
            "the plan that is made may have several cells, which are not autoscaled: remove it until the plan exists",
            field="policies.autoscaling",
        ),
        SpecRule(
            lambda spec: spec.plan is None or spec.policies.autoscaling is None or spec.plan.is_one_shared_cell,
            f"!has(self.plan) || {_NO_AUTOSCALING} || {_ONE_SHARED_CELL}",
            "a plan is autoscaled if it runs one cell, with is_shared: deploy such a plan, use policies.adaptation, or "
            "remove it",
            field="policies.autoscaling",
        ),
    )

    @model_validator(mode="before")
    @classmethod
    def _read_flat_form(cls, spec: object) -> object:
        return to_nested(spec)

    def changed(self, **fields: Unpack[SpecChanges]) -> Self:
        """Returns the spec with other values of fields. Raises `ValidationError` if the spec is then not valid."""
        kept = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self).model_validate({**kept, **fields})

    def with_model(self, **fields: object) -> Self:
        """Returns the spec with other values of fields of its model, which are not checked."""
        assert self.model is not None
        return self.model_copy(update={"model": self.model.model_copy(update=fields)})

    def with_source(self, **fields: object) -> Self:
        """Returns the spec with other values of fields of its source, which are not checked."""
        assert self.source is not None
        return self.model_copy(update={"source": self.source.model_copy(update=fields)})

    @property
    def inline_source(self) -> str | None:
        """The source in the spec. None for a model, and for source in a ConfigMap."""
        return None if self.source is None else self.source.inline

    @property
    def allow_paths(self) -> list[str]:
        """The paths that the code of the app may read and change, besides its temporary ones."""
        return [] if self.source is None else self.source.allow_paths

    @property
    def source_filename(self) -> str:
        """The name of the file in stack traces of the app's code."""
        return DEFAULT_FILENAME if self.source is None else self.source.filename

    def restart_of(self, executor: str) -> str:
        """Returns the texts of the last restarts of an executor, or an empty text. Others replace the executor."""
        if self.restart is None:
            return ""
        single = self.restart.executors.get(executor)
        return f"{self.restart.id}/{single}" if single else self.restart.id

    @property
    def is_planned(self) -> bool:
        """Whether a plan determines the replicas."""
        return self.plan is not None or self.planning is not None

    @property
    def hold_seconds(self) -> float | None:
        """The time after a change of the size by users in which the load changes nothing. None if it never does."""
        settings = self.policies.adaptation or self.policies.autoscaling
        return None if settings is None else settings.hold_seconds

    def is_held(self, now: datetime) -> bool:
        """Whether the load of the app changes nothing, because users have changed its size."""
        return self.held_until is not None and now < self.held_until

    def replicas_of(self, executor: str) -> int:
        """Returns the number of replicas of an executor of an app without a plan."""
        return self.executor_replicas.get(executor, self.replicas) if self.replicas else 0

    def gpu_type_of(self, executor: str) -> str | None:
        """Returns the type of GPUs or slots in the settings of an executor, or else in those of all executors."""
        types = {override.name: override.gpu_type for override in self.executors}
        return types.get(executor) or types.get(ALL_EXECUTORS)

    @property
    def needs_plan(self) -> bool:
        """Whether the controller has to make the plan: it is missing, or was made from other inputs."""
        inputs = self.planning_inputs
        if inputs is None or self.plan is None:
            return inputs is not None
        return bool(self.plan.planned_from) and (self.plan.planned_from != self.planning_digest or self._lacks_profile)

    @property
    def needs_profile(self) -> bool:
        """Whether the controller has to have the options measured before it makes the plan."""
        return self._lacks_profile and self.needs_plan

    @property
    def planning_inputs(self) -> PlanningInputs | None:
        """The inputs of the plan, with the measured profile unless they contain one."""
        if self.planning is None or self.planning.profile is not None or self.measured is None:
            return self.planning
        return self.planning.model_copy(update={"profile": self.measured.profile})

    @property
    def planning_digest(self) -> str:
        """A hash of the inputs of the plan and of the latency targets, which limit the plan."""
        inputs, targets = self.planning_inputs, self.policies.targets
        assert inputs is not None
        if targets is None:
            return inputs.digest
        seconds = targets.model_dump_json(exclude={"admission"}, exclude_defaults=True)
        return sha256(f"{inputs.digest} {seconds}".encode()).hexdigest()[:12]

    @property
    def profile_digest(self) -> str:
        """A hash of the code and of the request types, on which measurements depend.

        All paths of a model are measured: its shares, which are stored with a plan, and restarts change nothing.
        """
        model = None if self.model is None else self.model.model_copy(update={"shares": None})
        code = self.model_copy(update={"model": model, "restart": None}).code
        workload = "" if self.planning is None else self.planning.workload_digest
        return sha256(f"{code} {workload}".encode()).hexdigest()[:12]

    @property
    def _lacks_profile(self) -> bool:
        if self.planning is None or self.planning.profile is not None:
            return False
        return self.measured is None or self.measured.measured_from != self.profile_digest

    @property
    def kubernetes_settings(self) -> list[str]:
        """The fields that are set and need Kubernetes."""
        fields = {
            "source.config_map_key_ref": self.source is not None and self.source.config_map_key_ref is not None,
            "model.storage": self.model is not None and self.model.storage is not None,
            "executors.pod_template": any(override.pod_template is not None for override in self.executors),
        }
        return [field for field, is_set in fields.items() if is_set]

    @property
    def code(self) -> str:
        """A hash of all that the executors and the gateways load.

        Generations with the same code are one version: nothing restarts.
        """
        sizes = {"replicas", "executor_replicas", "plan", "planning", "measured", "held_until"}
        changeable = sizes | {"policies", "rollout"}
        return sha256(self.model_dump_json(exclude=changeable, exclude_defaults=True).encode()).hexdigest()[:12]


REQUIRED_PLAN = SpecRule(
    lambda spec: spec.is_planned or spec.policies.adaptation is None,
    "has(self.plan) || has(self.planning) || !has(self.policies) || !has(self.policies.adaptation)",
    "an app adapts by the cells of a plan: set plan or planning, or use policies.autoscaling",
    field="policies.adaptation",
)
"""A rule of stored specs: a deployment without a plan keeps the plan that the app has."""
