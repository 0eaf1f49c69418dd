"""The live figures of an instance and of its apps, which the console and `cornserve status --watch` show."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from cornserve.app.event import AppEvent
from cornserve.app.operations import Operation
from cornserve.app.record import Phase, ReplicaState, UnreadableApp


class _Figures(BaseModel):
    model_config = ConfigDict(frozen=True)


class MissingGateway(_Figures):
    """A gateway whose figures are missing."""

    gateway: str
    error: str


class ReadGateways(_Figures):
    """The gateways whose figures were added."""

    read: int = 1
    missing: list[MissingGateway] = []


class SecondsPercentiles(_Figures):
    """Percentiles of seconds, interpolated in the buckets of a histogram like Prometheus's `histogram_quantile`."""

    p50: float
    p90: float
    p99: float


class TargetFigures(_Figures):
    """A latency target, and the requests that have met it."""

    target: str
    """`ttft`, `tbt` or `e2e`."""
    seconds: float
    met_total: int
    missed_total: int
    attainment: float | None
    """The share of the requests of the window that have met it."""


class ReplicaCounts(_Figures):
    ready: int = 0
    starting: int = 0
    draining: int = 0
    failed: int = 0


class AppFigures(_Figures):
    """An app with the rates and the latencies of the window. Totals are those of `/metrics`."""

    name: str
    phase: Phase
    generation: int
    serving_generation: int | None
    message: str
    suspended: str
    ready: int
    wanted: int
    replicas: ReplicaCounts
    gpus: int
    """GPUs, or CPU slots, that replicas occupy."""
    dollars_per_hour: float | None = None
    """The cost of these, if the prices of their types are known."""
    has_plan: bool
    has_proposal: bool
    operations: list[Operation] | None
    """The operations that clients can call. Unknown if this gateway does not serve the app."""
    running: int
    requests_total: int
    requests_per_second: float
    statuses: dict[str, int]
    """Ended requests by HTTP status."""
    errors_total: int
    """Ended requests with a status from 500 on."""
    errors_per_second: float
    prompt_tokens_total: int
    generation_tokens_total: int
    generation_tokens_per_second: float
    ttft_seconds: SecondsPercentiles | None
    tbt_seconds: SecondsPercentiles | None
    e2e_seconds: SecondsPercentiles | None
    targets: list[TargetFigures]


class Attention(_Figures):
    """A problem or a decision, and what to do about it."""

    severity: Literal["error", "warning", "info"]
    app: str | None
    reason: str
    message: str
    action: str
    """A command, or a sentence."""


class OverviewEvent(AppEvent):
    app: str


class Overview(_Figures):
    """All apps with the figures of all gateways."""

    time: float
    """Seconds since 1970."""
    window_seconds: float
    """The time over which rates and percentiles are computed."""
    gateways: ReadGateways
    gpus: int
    dollars_per_hour: float | None = None
    apps: list[AppFigures]
    unreadable: list[UnreadableApp]
    attention: list[Attention]
    events: list[OverviewEvent]
    """The last events that this gateway has seen, newest first."""


class LiveReplica(_Figures):
    """A replica with the invocations that the gateways have sent it, and the figures that it reports itself."""

    id: str
    state: ReplicaState
    message: str
    endpoint: str | None
    running: int
    invocations_total: int
    codes: dict[str, int]
    """Ended invocations by code."""
    seconds: SecondsPercentiles | None
    """The durations of all invocations."""
    batch_size: float | None = None
    queue: float | None = None
    kv_cache_usage: float | None = None
    received_bytes_total: dict[str, int] = {}
    """Bytes of received tensors by kind of transfer."""


class LiveNode(_Figures):
    """An executor group of an app."""

    group: str
    executor: str
    option: str
    cell: str | None
    gpus: int
    """GPUs of one replica."""
    apps: int
    """Apps that use the group."""
    wanted: int
    ready: int
    invocations_total: int
    invocations_per_second: float
    tokens_total: int
    tokens_per_second: float
    replicas: list[LiveReplica]


class LiveEdge(_Figures):
    """The invocations of an executor group that read outputs of another one, or come from the gateway."""

    source: str | None
    target: str
    invocations_total: int
    invocations_per_second: float
    bytes_per_second: float | None
    kinds: dict[str, float]
    """Bytes per second by kind of transfer."""
    shared_bytes: bool
    """Whether the bytes of the target are divided among several edges by their invocations."""


class LivePath(_Figures):
    index: int
    planned: float
    actual: float | None
    """The share of the requests of the window."""
    requests_total: int
    requests_per_second: float


class LivePlannedPath(_Figures):
    """A path in a cell for a request type of the plan. Shares are those of the requests of the type."""

    type: str
    cell: str
    path: int
    planned: float
    actual: float | None
    requests_total: int


class LiveCell(_Figures):
    name: str
    gpus: int
    rate: float
    """Requests per second that it is planned to serve."""
    ready: int
    wanted: int
    dollars_per_hour: float | None = None


class LiveType(_Figures):
    type: str
    share: float
    planned_per_second: float | None
    observed_per_second: float | None


class LiveLimit(_Figures):
    """An executor of a cell, and the part of its time that the plan uses."""

    cell_gpus: int
    option: str
    replicas: int
    utilization: float


class LivePlan(_Figures):
    """The promise of a plan, and the executors that limit it."""

    rate: float
    """Requests per second that the running cells serve."""
    target: float | None
    observed_per_second: float | None
    headroom: float | None
    """The free share of the executor that limits the rate."""
    gpus: int
    dollars_per_hour: float | None = None
    default_type: str
    types: list[LiveType]
    limits: list[LiveLimit]
    """The executors of the running cells, the one that limits the rate first."""


class LiveCellCount(_Figures):
    gpus: int
    count: int


class LiveProposal(_Figures):
    """A change of the plan that waits for an approval: `PUT …/scale` with `{"approve": true}`."""

    kind: Literal["cells", "plan"]
    reason: str
    gpus_now: int
    gpus: int
    rate_now: float
    rate: float
    cells: list[LiveCellCount]
    starts: int | None = None
    stops: int | None = None
    obstacle: str = ""


class LiveApp(_Figures):
    """One app with its executors, the tensors between them, its paths and its plan."""

    time: float
    window_seconds: float
    gateways: ReadGateways
    app: AppFigures
    nodes: list[LiveNode]
    edges: list[LiveEdge]
    paths: list[LivePath]
    planned_paths: list[LivePlannedPath]
    cells: list[LiveCell]
    plan: LivePlan | None
    proposal: LiveProposal | None


class AppSeries(_Figures):
    """The last hours of an app in steps, oldest first. Figures without data are null."""

    step_seconds: int
    longest_hours: int = 1
    """The hours that can be read: more than one with Prometheus."""
    gateways: ReadGateways
    times: list[int]
    """The end of each step, in seconds since 1970."""
    requests_per_second: list[float | None] = Field(default_factory=list)
    errors_per_second: list[float | None] = Field(default_factory=list)
    running: list[float | None] = Field(default_factory=list)
    generation_tokens_per_second: list[float | None] = Field(default_factory=list)
    ready: list[float | None] = Field(default_factory=list)
    starting: list[float | None] = Field(default_factory=list)
    draining: list[float | None] = Field(default_factory=list)
    failed: list[float | None] = Field(default_factory=list)
    ttft_p50: list[float | None] = Field(default_factory=list)
    ttft_p90: list[float | None] = Field(default_factory=list)
    tbt_p50: list[float | None] = Field(default_factory=list)
    tbt_p90: list[float | None] = Field(default_factory=list)
    e2e_p50: list[float | None] = Field(default_factory=list)
    e2e_p90: list[float | None] = Field(default_factory=list)


class RequestSummary(_Figures):
    """A request without its content."""

    id: str
    app: str
    operation: str
    time: float
    """Its arrival, in seconds since 1970."""
    seconds: float
    first_chunk_seconds: float | None
    status: int
    path: int | None
    prompt_tokens: int
    generation_tokens: int
    retries: int
    error: str
    """The code of the error, or an empty text."""


class RequestSpan(_Figures):
    """A part of a request. Times are seconds since its arrival."""

    name: str
    kind: Literal["media", "run", "invocation"]
    start: float
    """The start at a replica, of an invocation."""
    end: float | None
    queued: float | None = None
    """The call of an invocation. It waits until its replica and those of its producers are known."""
    group: str = ""
    replica: str = ""
    index: int | None = None
    attempt: int = 0
    code: str = ""
    after: list[int] = []
    """The invocations whose outputs it reads."""
    inputs_read: float | None = None
    """The end of the transfer of its inputs, if the executor has reported it."""
    first_output: float | None = None
    items: int = 0
    """Items of streams."""


class RequestTimeline(RequestSummary):
    spans: list[RequestSpan]
    gateways: ReadGateways = ReadGateways()
    """The gateways that were asked for it."""


class RequestList(_Figures):
    gateways: ReadGateways
    recent: list[RequestSummary]
    slow: list[RequestSummary]
    failed: list[RequestSummary]
