"""The models of `App.spec`. The CRD is generated from them, and the docstrings are its descriptions."""

from __future__ import annotations

from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from cornserve.app.plan import AppPlan
from cornserve.app.planning import AppProfile, PlanningInputs
from cornserve.app.record import MAX_PATHS
from cornserve.app.settings import (
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
)
from cornserve.kubernetes_resources.cel import exactly_one, rule, rules
from cornserve_tasklib.media_options import MediaOptions
from cornserve_tasklib.model_summary import ModelSummary

MAX_SOURCE_CHARACTERS = 512 * 1024
MAX_WEIGHT = 1_000_000

Weight = Annotated[int, Field(ge=0, le=MAX_WEIGHT)]

_ONE_STORAGE = exactly_one("persistentVolumeClaim", "image", "hostPath", "download")
_ANY_WEIGHT = rule("self.exists(path, self[path] > 0)", "at least one weight must be greater than 0")
_PLAN_OR_REPLICAS = rule(
    "!has(self.plan) && !has(self.planning) || !has(self.replicas) || self.replicas == 1",
    "a plan has the replicas of the executors: remove the replicas or the plan",
    field=".replicas",
)
_PLAN_OR_EXECUTOR_REPLICAS = rule(
    "!has(self.plan) && !has(self.planning) || !has(self.executorReplicas) || self.executorReplicas.size() == 0",
    "a plan has the replicas of the executors: remove the numbers of replicas or the plan",
    field=".executorReplicas",
)
_ANY_TARGET = rule(
    "!has(self.targets) || has(self.targets.ttftSeconds) || has(self.targets.endToEndSeconds) || "
    "has(self.targets.tbtSeconds) && !(has(self.targets.admission) && self.targets.admission)",
    "set ttftSeconds, tbtSeconds or endToEndSeconds; admission needs ttftSeconds or endToEndSeconds",
    field=".targets",
)
_PLAN_OR_AUTOSCALING = rule(
    "!has(self.plan) && !has(self.planning) || !has(self.policies) || !has(self.policies.autoscaling)",
    "a plan determines the replicas: use policies.adaptation, or remove the plan",
    field=".policies.autoscaling",
)
_PLAN_FOR_ADAPTATION = rule(
    "has(self.plan) || has(self.planning) || !has(self.policies) || !has(self.policies.adaptation)",
    "an app adapts by the cells of a plan: set plan or planning, or use policies.autoscaling",
    field=".policies.adaptation",
)

_RATE_FOR_OBJECTIVE = rule(
    "!has(self.objective) || has(self.rate)",
    "an objective is the cost that a rate minimizes: set rate, or remove the objective",
    field=".objective",
)

_PROFILE_FOR_COUNTS = rule(
    "!has(self.gpuCounts) || self.gpuCounts.size() == 0 || has(self.profile)",
    "options are measured on the GPUs of their executors: set profile, or remove the numbers of GPUs",
    field=".gpuCounts",
)


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelSection(_Section):
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
    storage: ModelStorage | None = Field(default=None, json_schema_extra=rules(_ONE_STORAGE))
    """The location of the model's files: exactly one of the fields. Without it, executors download the model."""
    shares: dict[str, Weight] | None = Field(
        default=None, min_length=1, max_length=MAX_PATHS, json_schema_extra=rules(_ANY_WEIGHT)
    )
    """Integer weights of the requests that the paths of the model's family receive, by path name. By default, the first
    path receives all requests."""


class SourceSection(_Section):
    """Python source that defines exactly one `App` at its top level. Its name is the name of this object."""

    inline: str | None = Field(default=None, max_length=MAX_SOURCE_CHARACTERS)
    """The source."""
    config_map_key_ref: ConfigMapKeyRef | None = None
    """The ConfigMap that contains the source. Each change of the ConfigMap is a new version of the app."""
    allow_paths: AllowedPaths = Field(default_factory=list)
    """Files and directories of the gateways' and the controller's containers that the code may read and change,
    besides its temporary ones."""


class RestartSection(_Section):
    """A request for a restart, in the way of `kubectl rollout restart`."""

    id: RestartId
    """Any text. Another one replaces the executors of the app, or starts a failed app again."""


class AppResourceSpec(_Section):
    """The desired state of an app: exactly one of `model` and `source`, and its settings."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            exactly_one("model", "source"),
            _PLAN_OR_REPLICAS,
            _PLAN_OR_EXECUTOR_REPLICAS,
            _PLAN_OR_AUTOSCALING,
            _PLAN_FOR_ADAPTATION,
        )
    )

    model: ModelSection | None = None
    source: SourceSection | None = Field(
        default=None, json_schema_extra=rules(exactly_one("inline", "configMapKeyRef"))
    )
    replicas: int = Field(default=1, ge=0, le=MAX_REPLICAS)
    """Number of replicas of each executor. With 0, the app is parked: it stays deployed, but nothing runs."""
    executor_replicas: dict[ExecutorName, Annotated[int, Field(ge=1, le=MAX_REPLICAS)]] = Field(
        default_factory=dict, max_length=MAX_EXECUTOR_OVERRIDES
    )
    """Numbers of replicas of single executors, by name. The others have `replicas`."""
    policies: AppPolicies | None = Field(default=None, json_schema_extra=rules(_ANY_TARGET))
    """The policies of the app, by name. A change restarts nothing."""
    held_until: AwareDatetime | None = None
    """The time until which the load of the app changes neither its replicas nor its plan. `cornserve scale` sets it."""
    rollout: Rollout | None = None
    """The way in which a new version replaces the old one. By default, a rolling update."""
    restart: RestartSection | None = None
    executors: ExecutorOverrides = Field(
        default_factory=list,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    """Settings of the executors of the app, by name. `*` applies to all; the settings of a named executor win."""
    plan: AppPlan | None = None
    """Cells with their replicas, and the probabilities of paths. It replaces all numbers of replicas and the shares of
    paths. `cornserve deploy APP --plan FILE` writes it."""
    planning: PlanningInputs | None = Field(
        default=None,
        json_schema_extra=rules(exactly_one("gpus", "gpusOf", "rate"), _RATE_FOR_OBJECTIVE, _PROFILE_FOR_COUNTS),
    )
    """The inputs of the plan: a budget or a rate, the workload and the profile. Without a plan, the controller makes it
    from them and sets `plan`; with `policies.adaptation`, it makes another one when the mix of the request types has
    shifted."""
    measured: AppProfile | None = None
    """The profile that the controller has had measured, because `planning` does not contain a profile."""
