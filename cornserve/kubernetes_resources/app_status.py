"""The models of `App.status`. The CRD is generated from them, and the docstrings are its descriptions."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from cornserve.app.adaptation_status import AdaptationStatus
from cornserve.app.record import MAX_EXITS

MAX_LISTED_REPLICAS = 128
MAX_LISTED_EXECUTORS = 128
MAX_LOG_LINES = 20
MAX_LOG_LINE_CHARACTERS = 512
MAX_REPLICA_MESSAGE_CHARACTERS = 512
MAX_EXIT_MESSAGE_CHARACTERS = 512
MAX_MESSAGE_CHARACTERS = 32_768
MAX_OPTION_CHARACTERS = 1024

ConditionType = Literal["Accepted", "Planned", "Progressing", "Available", "Ready", "ReplicasReady", "Degraded"]
ConditionStatus = Literal["True", "False", "Unknown"]

_MAP_BY_NAME: JsonDict = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
_MAP_BY_KEY: JsonDict = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"]}
_MAP_BY_TYPE: JsonDict = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}


class _StatusSection(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")  # a newer version may have written more fields


class StatusCondition(_StatusSection):
    """A condition, as all Kubernetes resources have them (`metav1.Condition`)."""

    type: str = Field(max_length=316)
    """`Accepted`: the app can be loaded. `Planned`: its executors are known. `Progressing`: this generation is being
    rolled out. `Available`: requests are answered, possibly by an older generation. `Ready`: this generation serves.
    `ReplicasReady`: all its replicas are ready, and no others run. `Degraded`: something has failed."""
    status: ConditionStatus
    """Whether the condition holds."""
    reason: str = Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    """The reason for the status, for programs."""
    message: str = Field(max_length=MAX_MESSAGE_CHARACTERS)
    """The reason for the status, for users."""
    last_transition_time: str = Field(json_schema_extra={"format": "date-time"})
    """The time of the last change of the status."""
    observed_generation: int | None = Field(default=None, ge=0)
    """The generation that the condition describes."""


class ReplicaSection(_StatusSection):
    """A replica of an executor: a pod."""

    name: str = Field(max_length=253)
    """The name of the pod."""
    state: Literal["Starting", "Ready", "Draining", "Failed"]
    """`Draining`: the pod ends when its last request has ended. `Failed`: its process has exited and is replaced."""
    message: str = Field(default="", max_length=MAX_REPLICA_MESSAGE_CHARACTERS)
    """The current activity, or the reason for a failure."""
    reason: str = Field(default="", max_length=64)
    """Why the pod is not ready, such as `PullingImage` or `InsufficientCapacity`."""


class ExecutorSection(_StatusSection):
    """An executor of the app. Apps share executors with the same key."""

    key: str = Field(max_length=253)
    """The name of its Deployment and of its Services. It differs for different settings."""
    name: str = Field(default="", max_length=253)
    """The name of the executor, such as `llm`."""
    desired: int = Field(ge=0, le=2**31 - 1)
    """Number of replicas that should run, for all apps that share the executor."""
    ready: int = Field(ge=0, le=2**31 - 1)
    """Number of replicas that serve."""
    gpus: int = Field(default=0, ge=0, le=2**31 - 1)
    """Number of GPUs of one replica."""
    apps: int = Field(default=1, ge=0, le=2**31 - 1)
    """Number of apps that share the executor."""
    cell: str | None = Field(default=None, max_length=63)
    """The cell of the app's plan that has these replicas. Empty for the cell that other apps may share."""
    option: str = Field(default="", max_length=MAX_OPTION_CHARACTERS)
    """The deployment option of the app's plan, or several, joined by commas."""
    replicas: list[ReplicaSection] = Field(
        default_factory=list, max_length=MAX_LISTED_REPLICAS, json_schema_extra=_MAP_BY_NAME
    )
    """The replicas, of which the first 128 are listed."""


class ExitSection(_StatusSection):
    """The end of a replica that was not stopped on purpose."""

    replica: str = Field(max_length=253)
    """The name of the pod, and the number of its restarts before the exit, if there were any."""
    executor: str = Field(max_length=253)
    """The key of the executor."""
    time: str = Field(json_schema_extra={"format": "date-time"})
    """The time of the exit."""
    message: str = Field(default="", max_length=MAX_EXIT_MESSAGE_CHARACTERS)
    """The reason: out of memory, the signal or the exit status."""


class AppResourceStatus(_StatusSection):
    """The observed state of an app, which the controller writes."""

    observed_generation: int | None = Field(default=None, ge=0)
    """The generation that this status describes."""
    failed_code: str = Field(default="", max_length=64)
    """A hash of the version that has failed. The next attempt needs another version."""
    serving_generation: int | None = Field(default=None, ge=0)
    """The generation that serves. While a new generation starts, this is the old one."""
    cells: int | None = Field(default=None, ge=0, le=2**31 - 1)
    """Number of cells that the plan of this generation runs. Absent without a plan."""
    desired_replicas: int | None = Field(default=None, ge=0, le=2**31 - 1)
    """Desired number of replicas of the executor that has the fewest; with a plan, the sum over all executors."""
    replicas: int | None = Field(default=None, ge=0, le=2**31 - 1)
    """Number of replicas of the executor that has the fewest, for the scale subresource; with a plan, the sum over
    all executors."""
    ready_replicas: int | None = Field(default=None, ge=0, le=2**31 - 1)
    """Number of ready replicas of the executor that has the fewest; with a plan, the sum over all executors."""
    gpus: int | None = Field(default=None, ge=0, le=2**31 - 1)
    """Number of GPUs of the replicas. Apps that share executors count the same GPUs."""
    selector: str | None = Field(default=None, max_length=32_768)
    """The label selector of the pods, for the scale subresource."""
    url: str | None = Field(default=None, max_length=2048)
    """The base URL of the OpenAI API in the cluster."""
    conditions: list[StatusCondition] = Field(default_factory=list, max_length=16, json_schema_extra=_MAP_BY_TYPE)
    """The conditions, each with the generation that it describes."""
    executors: list[ExecutorSection] = Field(
        default_factory=list, max_length=MAX_LISTED_EXECUTORS, json_schema_extra=_MAP_BY_KEY
    )
    """The executors of the newest generation and of the one that serves."""
    exits: list[ExitSection] = Field(default_factory=list, max_length=MAX_EXITS)
    """The last exits of the app's executors, oldest first."""
    adaptation: AdaptationStatus | None = None
    """The rates, findings and proposals of the adaptation to the load, if the app follows its load."""
    logs: list[str] = Field(default_factory=list, max_length=MAX_LOG_LINES)
    """The last log lines of the executor that failed."""
