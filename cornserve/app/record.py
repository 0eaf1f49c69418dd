"""The stored records of an app besides its spec: the status and the route, which only the controller writes."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from cornserve.app.adaptation_status import AdaptationStatus, MixtureProposal, PlanProposal
from cornserve.app.route_plan import RoutePlan
from cornserve.app.spec import AppSpec
from cornserve.task.spec import ExecutorSpec

MAX_EXITS = 10
"""Number of exits of replicas that each executor group and each app keeps."""


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


def occupies_gpus(state: ReplicaState, reason: str) -> bool:
    """Returns whether a replica occupies its GPUs or slots. One that starts and has a reason waits for them."""
    return state is not ReplicaState.FAILED and not (state is ReplicaState.STARTING and reason)


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
    """Number of GPUs or CPU slots of one replica."""
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

    @property
    def occupying(self) -> list[ReplicaStatus]:
        """The replicas that occupy their GPUs or slots."""
        return [replica for replica in self.replicas if occupies_gpus(replica.state, replica.reason)]


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


class EngineTokens(BaseModel):
    """The limits of a language model's engine, and the tokens of the requests that have ended since its start."""

    requests: int
    prompt_tokens: int
    generated_tokens: int
    cache_tokens: int
    """The tokens whose keys and values it holds."""
    block_size: int
    """The tokens of a block of this cache."""
    max_num_seqs: int
    max_num_batched_tokens: int


class ReplicaMemory(BaseModel):
    """The shared memory that a replica has for tensors, in bytes, and the KV caches that it has copied."""

    id: str
    limit: int
    resident: int
    """The memory that it has taken."""
    used: int
    """The part in which tensors are, in use or cached."""
    protocols: list[str] = Field(default_factory=list)
    """The protocols by which it can pull tensors from other nodes, the best one first."""
    pulled_bytes: dict[str, int] = Field(default_factory=dict)
    """The bytes of tensors that it has pulled since its start, by protocol."""
    kv_copies: int = 0
    """The KV caches that its engine has copied to or from shared memory since its start."""
    kv_copied_bytes: int = 0
    kv_copy_seconds: float = 0.0


class AppView(BaseModel):
    """An app in responses of the gateway."""

    model_config = ConfigDict(frozen=True)

    name: str
    uid: str
    generation: int
    version: int
    spec: AppSpec
    status: AppStatus
    moved_streams: int = 0
    """The streams that this gateway has moved from leaving replicas to others since its start."""
    left_invocations: int = 0
    """The invocations that this gateway still runs on executors that others have replaced."""
    memory: list[ReplicaMemory] = []
    """The memory for tensors of the replicas that answer, if it was requested."""

    @property
    def phase(self) -> Phase:
        """The phase of the newest generation."""
        return self.status.phase if self.status.generation >= self.generation else Phase.PENDING

    @property
    def settled(self) -> bool:
        """Whether the newest generation serves, is parked or has failed."""
        return self.phase in (Phase.SERVING, Phase.PARKED, Phase.FAILED)

    @property
    def pending_proposal(self) -> MixtureProposal | PlanProposal | None:
        """The change of the newest generation's plan that waits for an approval."""
        adaptation = self.status.adaptation
        return None if adaptation is None else adaptation.pending_proposal(self.generation)

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
