"""What is stored of an app: its spec, which users write, and its status, which only the controller writes."""

from __future__ import annotations

from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Literal, Self

from annotated_types import Ge
from pydantic import AllowInfNan, BaseModel, ConfigDict, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from cornserve.task.spec import ExecutorSpec

MAX_REPLICAS = 64
"""Of one app's executors. A slip of the finger must not fill the machine with processes."""

Balance = Literal["least-loaded", "static"]
"""By what is in flight now, or drawn equally from the request's id, whatever is in flight [C §5.3]."""


class AppSpec(BaseModel):
    """How an app is deployed: Python source, or a model whose family is known."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str | None = None
    """Python that defines one `App` at its top level."""
    model: str | None = None
    """A Hugging Face id, or a directory that every executor can read."""
    replicas: int = Field(default=1, ge=1, le=MAX_REPLICAS)
    """Replicas of each executor, until a plan says otherwise."""
    balance: Balance = "least-loaded"
    """How invocations are divided among the replicas of an executor."""
    shares: dict[str, Annotated[float, Ge(0), AllowInfNan(False)]] | None = Field(default=None, min_length=1)
    """How requests are divided among the paths of a model's family, by name, until a plan says otherwise. By default,
    the first serves them all. An app with source says it there."""
    tries: SkipJsonSchema[int] = Field(default=0, ge=0)
    """Counted up by the gateway when what has failed is deployed again unchanged: a new generation, a new try. It is
    here, as in Kubernetes, because a store counts generations by the changes of specs."""

    @model_validator(mode="after")
    def _either_source_or_model(self) -> Self:
        if (self.source is None) == (self.model is None):
            raise ValueError("an app has either a source or a model")
        if self.shares is not None and self.source is not None:
            raise ValueError("shares: an app with source has them there")
        if self.shares is not None and not any(self.shares.values()):
            raise ValueError("shares: one has to be above 0")
        return self

    @property
    def code(self) -> str:
        """Names what runs, however often: generations of the same code are one version, and nothing restarts."""
        return sha256(self.model_dump_json(include={"source", "model", "shares", "tries"}).encode()).hexdigest()[:12]


class Scale(BaseModel):
    """Other replicas of the same code."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    replicas: int = Field(ge=1, le=MAX_REPLICAS)


class Phase(StrEnum):
    PENDING = "pending"
    """The controller has not seen this generation."""
    STARTING = "starting"
    SERVING = "serving"
    FAILED = "failed"


class ReplicaState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"
    """Its process has ended; the launcher will replace it, if it has tries left."""


class ReplicaStatus(BaseModel):
    model_config = ConfigDict(frozen=True)

    id: str
    state: ReplicaState
    message: str = ""
    """What it is busy with, or why it failed; for people."""
    endpoint: str | None = None
    """`host:port` of its gRPC server, once it listens."""
    metrics: str | None = None
    """`host:port` where Prometheus finds its metrics."""


class GroupStatus(BaseModel):
    """One executor group, as the app sees it."""

    model_config = ConfigDict(frozen=True)

    key: str
    """The key of the executor spec."""
    wanted: int
    replicas: list[ReplicaStatus]

    @property
    def ready(self) -> int:
        return sum(replica.state is ReplicaState.READY for replica in self.replicas)


class Route(BaseModel):
    """The routing table of one generation: probabilities of the paths, endpoints of the groups (DESIGN §4.4)."""

    model_config = ConfigDict(frozen=True)

    generation: int
    spec: AppSpec
    shares: list[float]
    """Of each path."""
    specs: dict[str, ExecutorSpec] = Field(default_factory=dict)
    """By executor key: what has to run for it, whatever importing the app would say by now."""
    endpoints: dict[str, list[str]]
    """By executor key: the ready replicas."""


class AppStatus(BaseModel):
    model_config = ConfigDict(frozen=True)

    phase: Phase = Phase.PENDING
    generation: int = 0
    """The generation of the spec that this status speaks of."""
    message: str = ""
    logs: list[str] = Field(default_factory=list)
    """The last lines of the executor that failed."""
    groups: list[GroupStatus] = Field(default_factory=list)
    route: Route | None = None
    """What gateways serve now; while a new generation starts, still the old one's."""


class ReplicaLog(BaseModel):
    """The last lines that a replica wrote."""

    id: str
    lines: list[str]


class AppView(BaseModel):
    """An app as the gateway shows it to clients."""

    model_config = ConfigDict(frozen=True)

    name: str
    uid: str
    generation: int
    version: int
    spec: AppSpec
    status: AppStatus

    @property
    def phase(self) -> Phase:
        """Of this generation."""
        return self.status.phase if self.status.generation >= self.generation else Phase.PENDING

    @property
    def settled(self) -> bool:
        """Whether this generation serves or has failed."""
        return self.phase in (Phase.SERVING, Phase.FAILED)

    @property
    def is_scaled(self) -> bool:
        """Whether as many replicas as wanted are ready, and there are no others."""
        groups = self.status.groups
        return self.phase is Phase.SERVING and all(it.ready == it.wanted == len(it.replicas) for it in groups)
