"""The stored record of an app: its spec, which users write, and its status, which only the controller writes."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Self

from annotated_types import Ge
from pydantic import AllowInfNan, AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from cornserve.app.adaptation_status import AdaptationStatus
from cornserve.app.plan import AppPlan
from cornserve.app.planning import AppProfile, PlanningInputs
from cornserve.app.route_plan import RoutePlan
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
from cornserve.task.spec import ExecutorSpec
from cornserve_tasklib.media_options import MediaOptions
from cornserve_tasklib.model_summary import ModelSummary

MAX_PATHS = 64
"""Maximum number of paths with a share."""
MAX_EXITS = 10
"""Number of exits of replicas that each executor group and each app keeps."""


class AppSpec(BaseModel):
    """The specification of an app: Python source, or a model of a supported family."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str | None = None
    """Python source that defines exactly one `App` at its top level."""
    source_config_map: ConfigMapKeyRef | None = None
    """The ConfigMap that contains the source. Only on Kubernetes."""
    allow_paths: AllowedPaths = Field(default_factory=list)
    """Files and directories that the code of an app with source may read and change, besides its temporary ones."""
    model: ModelId | None = None
    """A Hugging Face id, or a model directory that every executor can read."""
    replicas: int = Field(default=1, ge=0, le=MAX_REPLICAS)
    """Number of replicas of each executor. With 0, the app is parked: it stays deployed, but nothing runs."""
    executor_replicas: dict[ExecutorName, Annotated[int, Field(ge=1, le=MAX_REPLICAS)]] = Field(
        default_factory=dict, max_length=MAX_EXECUTOR_OVERRIDES
    )
    """Numbers of replicas of single executors, by name. The others have `replicas`."""
    plan: AppPlan | None = None
    """Cells with their replicas, and the probabilities of paths. It replaces all replicas and `shares`."""
    planning: PlanningInputs | None = None
    """The inputs of the plan. The controller makes the plan of an app that has only its inputs, and with adaptation
    another plan when the mix of the request types has shifted."""
    measured: AppProfile | None = None
    """The profile that the controller has had measured, because `planning` does not contain a profile."""
    policies: AppPolicies = AppPolicies()
    """The policies of the app."""
    held_until: AwareDatetime | None = None
    """The time until which the load of the app changes neither its replicas nor its plan. `cornserve scale` sets it."""
    shares: dict[str, Annotated[float, Ge(0), AllowInfNan(False)]] | None = Field(
        default=None, min_length=1, max_length=MAX_PATHS
    )
    """Shares of the requests that the paths of a model's family receive, by path name. By default, the first path
    receives all requests. An app with source defines its shares in the source."""
    revision: Revision | None = None
    """The branch, tag or commit of the model's repository."""
    model_summary: ModelSummary | None = None
    """The facts in the config files of a Hugging Face id when the app was deployed. Without it, its name decides."""
    lora: Lora | None = None
    """The LoRA adapter that the app applies to the model, a name in the option `lora_modules`. Apps with different
    adapters and equal options share executors."""
    drawer: ModelId | None = None
    """The image model with which the app draws when a chat asks for a picture."""
    drawer_summary: ModelSummary | None = None
    """The facts in the config files of the image model's id, like `model_summary`."""
    media_options: MediaOptions | None = None
    """The frames and sizes in which the model receives media, unless a request sets others. Apps with different ones
    share executors."""
    storage: ModelStorage | None = None
    """The location of the model's files. Only on Kubernetes."""
    executors: ExecutorOverrides = Field(default_factory=list)
    """Settings of the app's executors."""
    rollout: Rollout = Rollout()
    restart: RestartId = ""
    """Another text restarts the app's executors."""

    @model_validator(mode="after")
    def _check_origin(self) -> Self:
        origins = {"source": self.source, "source_config_map": self.source_config_map, "model": self.model}
        given = [name for name, value in origins.items() if value is not None]
        if len(given) != 1:
            state = "both are given" if given else "neither is given"
            raise ValueError(f"an app needs either a source or a model, but {state}: set exactly one of them")
        return self

    @model_validator(mode="after")
    def _check_model_settings(self) -> Self:
        if self.shares is not None and self.model is None:
            raise ValueError(
                f"shares: {self.shares} cannot be set for an app with source: define the shares in its source"
            )
        if self.shares is not None and not any(self.shares.values()):
            raise ValueError(f"shares: all of {self.shares} are 0: set at least one to a number greater than 0")
        if self.allow_paths and self.model is not None:
            raise ValueError("allow_paths: only code of an app with source uses paths: remove them")
        for name in ("revision", "model_summary", "lora", "drawer", "drawer_summary", "media_options", "storage"):
            if getattr(self, name) is not None and self.model is None:
                raise ValueError(f"{name}: cannot be set for an app with source: remove it, or set it in the source")
        return self

    @model_validator(mode="after")
    def _check_plan(self) -> Self:
        if self.is_planned and self.replicas != 1:
            raise ValueError(
                f"replicas: {self.replicas} and a plan are given, but the plan has the replicas: remove one of them"
            )
        if self.is_planned and self.executor_replicas:
            raise ValueError(
                f"executor_replicas: {self.executor_replicas} and a plan are given, but the plan has the replicas: "
                "remove one of them"
            )
        if self.is_planned and self.policies.autoscaling is not None:
            raise ValueError(
                "policies.autoscaling: the plan determines the replicas: use policies.adaptation, or remove the plan"
            )
        return self

    def changed(self, **fields: object) -> Self:
        """Returns the spec with other values of fields. Raises `ValidationError` if the spec is then not valid."""
        kept = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self).model_validate(kept | fields)

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
        code = self.model_copy(update={"shares": None, "restart": ""}).code
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
            "source_config_map": self.source_config_map is not None,
            "storage": self.storage is not None,
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
        return sha256(self.model_dump_json(exclude=changeable).encode()).hexdigest()[:12]


class Phase(StrEnum):
    PENDING = "pending"
    """The controller has not seen this generation yet."""
    STARTING = "starting"
    SERVING = "serving"
    PARKED = "parked"
    """The app has 0 replicas."""
    FAILED = "failed"


class PlanningStep(StrEnum):
    """A step before the executors of a planned app start, in the spelling of Kubernetes' conditions."""

    PROFILING = "Profiling"
    """The options are measured."""
    PLANNING = "Planning"
    """The plan is made."""


class FailureReason(StrEnum):
    """Why a generation has failed, in the spelling of Kubernetes' conditions."""

    SOURCE_NOT_FOUND = "SourceNotFound"
    """The ConfigMap that contains the source does not exist, or has no such key."""
    INVALID_SPEC = "InvalidSpec"
    """The spec has values that cannot be used."""
    PROFILING_FAILED = "ProfilingFailed"
    """The options of the app cannot be measured, so that no plan can be made."""
    PLANNING_FAILED = "PlanningFailed"
    """No plan can be made of the app with its budget, its workload and its profile."""
    IMPORT_FAILED = "ImportFailed"
    """The app cannot be loaded: its code, its model or its settings are wrong."""
    EXECUTOR_FAILED = "ExecutorFailed"
    """An executor exited before it was ready, again and again."""
    INSUFFICIENT_CAPACITY = "InsufficientCapacity"
    """An executor needs more than exists."""
    UNKNOWN_GPU_TYPE = "UnknownGpuType"
    """The installation has no GPUs of the type that an executor needs."""
    INVALID_POD_TEMPLATE = "InvalidPodTemplate"
    """The launcher refuses the settings of the executors' pods."""
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    """The executors were not ready in time."""


class ReplicaState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"
    """The replica's process has exited and will be replaced."""


class ReplicaStatus(BaseModel):
    model_config = ConfigDict(frozen=True)

    id: str
    state: ReplicaState
    message: str = ""
    """The current activity, or the reason for a failure, for users."""
    reason: str = ""
    """Why the replica is not ready, or cannot be found although it is, as a reason of a Kubernetes condition. It may be
    empty."""
    endpoint: str | None = None
    """`host:port` of the gRPC server, once it listens."""
    metrics: str | None = None
    """`host:port` of the Prometheus metrics."""


class GroupStatus(BaseModel):
    """The status of one executor group of an app."""

    model_config = ConfigDict(frozen=True)

    key: str
    """The key of the executor group."""
    executor: str = ""
    """The name of the executor."""
    gpus: int = 0
    """Number of GPUs of one replica."""
    apps: int = 1
    """Number of apps that need the group."""
    cell: str | None = None
    """The cell of the app's plan that has the group. Empty: other apps may share it. None: the app has no plan."""
    option: str = ""
    """The deployment option of the app's plan, or several, joined by commas."""
    wanted: int
    replicas: list[ReplicaStatus]

    @property
    def endpoints(self) -> list[str]:
        """The endpoints of the ready replicas."""
        ready = (replica for replica in self.replicas if replica.state is ReplicaState.READY)
        return [replica.endpoint for replica in ready if replica.endpoint is not None]

    @property
    def ready(self) -> int:
        return sum(replica.state is ReplicaState.READY for replica in self.replicas)


class ReplicaExit(BaseModel):
    """The end of a replica that was not stopped on purpose."""

    model_config = ConfigDict(frozen=True)

    replica: str
    group: str
    """The key of the executor group."""
    time: datetime
    """The time of the exit, in full seconds."""
    message: str
    """The reason, for users: out of memory, the signal or the exit status."""


class Route(BaseModel):
    """The routing table of the generation that serves: shares of the paths, and executor groups [C §5.3].

    Gateways and the controller restore the version from it without an import of the app, which could fail.
    """

    model_config = ConfigDict(frozen=True)

    app_uid: str
    """The uid of the app's record."""
    generation: int
    spec: AppSpec
    shares: list[float]
    """The share of requests of each path."""
    specs: dict[str, ExecutorSpec] = Field(default_factory=dict)
    """The executors of the version's unit tasks, by key."""
    groups: dict[str, str] = Field(default_factory=dict)
    """The key of the executor group that runs each executor, by the executor's key. Empty with a plan."""
    plan: RoutePlan | None = None
    """Cells and their routing. It replaces `shares`."""

    @property
    def group_keys(self) -> set[str]:
        """The keys of all executor groups, of all cells."""
        cells = () if self.plan is None else self.plan.cells
        return {*self.groups.values(), *(group for cell in cells for group in cell.groups.values())}


class RouteStatus(BaseModel):
    """The status of a route, which gateways write."""

    model_config = ConfigDict(frozen=True)

    suspended: str = ""
    """The reason for which gateways refuse requests to the app: its code has ended its processes again and again. A
    deployment clears it."""
    suspended_code: str = ""
    """The code that is suspended. Another version of the app is not."""


class AppStatus(BaseModel):
    model_config = ConfigDict(frozen=True)

    phase: Phase = Phase.PENDING
    generation: int = 0
    """The generation of the spec that this status describes."""
    step: PlanningStep | None = None
    """The step before the executors start, while the phase is `starting`."""
    reason: FailureReason | None = None
    """Why the generation has failed."""
    failed_code: str = ""
    """The hash of the code that has failed. The code of a generation changes if it is in a ConfigMap."""
    message: str = ""
    logs: list[str] = Field(default_factory=list)
    """The last log lines of the executor that failed."""
    groups: list[GroupStatus] = Field(default_factory=list)
    exits: list[ReplicaExit] = Field(default_factory=list)
    """The last exits of the app's executors, oldest first."""
    cells: int | None = None
    """Number of running cells of this generation's plan. None without a plan."""
    serving_generation: int | None = None
    """The generation that serves. While a new generation starts, this is the old one."""
    suspended: str = ""
    """The reason for which gateways refuse requests to this generation."""
    unreachable: str = ""
    """Why gateways cannot find the replicas of the generation that serves."""
    adaptation: AdaptationStatus | None = None
    """The observed rates or loads, and the findings and proposals of the adaptation to the load."""


class ReplicaLog(BaseModel):
    """The last log lines of a replica, or those that the code of the app has written in a gateway."""

    id: str
    lines: list[str]
    error: str | None = None
    """The reason why lines are missing."""
    exit: ReplicaExit | None = None
    """The end of the replica, if its process has exited."""


class ReplicaMemory(BaseModel):
    """The shared memory that a replica has for tensors, in bytes."""

    id: str
    limit: int
    resident: int
    """The memory that it has taken."""
    used: int
    """The part in which tensors are, in use or cached."""


class AppView(BaseModel):
    """An app in responses of the gateway."""

    model_config = ConfigDict(frozen=True)

    name: str
    uid: str
    generation: int
    version: int
    spec: AppSpec
    status: AppStatus
    memory: list[ReplicaMemory] = []
    """The memory of the replicas that have some for tensors, if it was requested."""

    @property
    def phase(self) -> Phase:
        """The phase of the newest generation."""
        return self.status.phase if self.status.generation >= self.generation else Phase.PENDING

    @property
    def settled(self) -> bool:
        """Whether the newest generation serves, is parked or has failed."""
        return self.phase in (Phase.SERVING, Phase.PARKED, Phase.FAILED)

    @property
    def is_scaled(self) -> bool:
        """Whether exactly the desired number of replicas exists and all of them are ready."""
        groups = self.status.groups
        return self.phase in (Phase.SERVING, Phase.PARKED) and all(
            group.ready == group.wanted == len(group.replicas) for group in groups
        )


class UnreadableApp(BaseModel):
    """An app whose record is damaged, in responses of the gateway."""

    model_config = ConfigDict(frozen=True)

    name: str
    message: str
    """The damage, and the command that repairs it."""
