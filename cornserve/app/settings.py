"""Settings in the specs of apps: roll-out, policies, model files and executors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, JsonValue, model_validator

from cornserve.app.spec_rules import SpecModel, SpecRule, exactly_one
from cornserve_plan.fields import Binding
from cornserve_policies.adaptation import HISTORY_SECONDS, AdaptationLimits
from cornserve_policies.autoscaling import LONGEST_HISTORY, ExecutorLimits
from cornserve_policies.registry import DEFAULT_ROUTING

MAX_EXECUTOR_OVERRIDES = 16
MAX_OPTIONS = 64

MAX_REPLICAS = 64
"""Maximum number of replicas per executor. A typing error must not fill the machine with processes."""

MAX_CAPACITY = 1_000_000_000.0
"""Load per second of a replica."""

MAX_RATE = 1_000_000.0
"""Requests per second of an app."""

ObjectName = Annotated[
    str, Field(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$", max_length=253)
]
"""The name of a Kubernetes object."""

DataKey = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$", max_length=253)]
"""A key in the data of a ConfigMap or a Secret."""

RelativePath = Annotated[
    str, Field(pattern=r"^([^/.][^/]*|\.[^/.][^/]*)(/([^/.][^/]*|\.[^/.][^/]*))*$", max_length=512)
]
"""A path below the root of a volume. Segments that begin with `..` and the segment `.` are not allowed."""

AbsolutePath = Annotated[str, Field(pattern=r"^(/([^/.][^/]*|\.[^/.][^/]*))+$", max_length=512)]
"""A path on a machine, except `/`. Segments that begin with `..` and the segment `.` are not allowed."""

MAX_ALLOWED_PATHS = 16

DEFAULT_FILENAME: Final = "app.py"

SourceFilename = Annotated[str, Field(pattern=r"^[A-Za-z0-9_. +-]+$", max_length=128)]
"""The name of a file with the source of an app. Stack traces and messages contain it."""

AllowedPaths = Annotated[list[AbsolutePath], Field(max_length=MAX_ALLOWED_PATHS)]
"""Paths outside of its own directory that the code of an app may read and change."""

ModelId = Annotated[str, Field(min_length=1, max_length=512)]
"""A Hugging Face id, or a model directory."""

Lora = Annotated[str, Field(min_length=1, max_length=63)]
"""The name of a LoRA adapter. It must be a name in the option `lora_modules`, which checks its characters."""

Revision = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$", max_length=128)]
"""A branch, tag or commit of a model repository."""

RestartId = Annotated[str, Field(max_length=128)]
"""Any text. A different one restarts the executors of an app."""


GpuTypeName = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$", max_length=63)]
"""The name of a type of GPU in the settings of an installation."""


ExecutorName = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$", max_length=63)]
"""The name of an executor, such as `llm`."""


PolicyName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=63)]
"""The name of a policy."""


TargetSeconds = Annotated[float, Field(ge=0.001, le=3600)]
"""The target of a latency, in seconds."""


HOLD_SECONDS = 900.0
"""The default time in which the load changes nothing after a change by users."""

HoldSeconds = Annotated[float, Field(ge=0, le=2_592_000)]
"""A time in which the load changes nothing, in seconds."""


class Rollout(SpecModel):
    """The way in which a new version of an app replaces the old one."""

    type: Literal["RollingUpdate", "Recreate"] = "RollingUpdate"
    """`RollingUpdate`: the old version serves until the new one is ready, which needs GPUs for both. `Recreate`: the
    old version ends before the new one starts."""
    progress_deadline_seconds: int = Field(default=1800, ge=1, le=604_800)
    """Seconds without progress after which a roll-out has failed."""


class AdaptationSettings(SpecModel):
    """Settings of the adaptation of an app with a plan to its load: the numbers of its running cells change."""

    approval: bool = False
    """Whether changes are only proposed, and wait for `cornserve scale APP --approve`."""
    min_rate: float = Field(default=0.0, ge=0, le=MAX_RATE)
    """Requests per second that the running cells serve at least."""
    max_rate: float = Field(default=MAX_RATE, ge=0, le=MAX_RATE)
    """Requests per second that the running cells need not exceed, whatever arrives."""
    dwell_seconds: float = Field(default=60.0, ge=0, le=HISTORY_SECONDS)
    """The least time between two changes."""
    shrink_seconds: float = Field(default=900.0, ge=0, le=HISTORY_SECONDS)
    """The time for which less load must last before cells are removed."""
    window_seconds: float = Field(default=20.0, ge=0.1, le=240)
    """The shortest time in which arrivals are counted. More load in it, or in 3 or 15 times as long, adds cells."""
    hold_seconds: HoldSeconds = HOLD_SECONDS
    """The time after `cornserve scale` in which the load changes nothing."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        _ = self.limits
        return self

    @property
    def limits(self) -> AdaptationLimits:
        """The limits of the policy."""
        return AdaptationLimits(
            dwell_seconds=self.dwell_seconds,
            shrink_seconds=self.shrink_seconds,
            min_rate=self.min_rate,
            max_rate=self.max_rate,
            window_seconds=self.window_seconds,
        )


class LatencyTargetSettings(SpecModel):
    """Targets of the latencies of an app's requests. At least one is set."""

    ttft_seconds: TargetSeconds | None = None
    """The longest time from a request's arrival to the first chunk of a streamed response (TTFT)."""
    tbt_seconds: TargetSeconds | None = None
    """The longest time between two chunks of a streamed response (TBT)."""
    end_to_end_seconds: TargetSeconds | None = None
    """The longest time from a request's arrival to the end of its response."""
    admission: bool = False
    """Whether requests that are not expected to meet the TTFT or the end-to-end target are refused with a 429. By
    default, it is only counted how many requests meet the targets."""

    rules = (
        SpecRule(
            lambda targets: (targets.ttft_seconds, targets.tbt_seconds, targets.end_to_end_seconds) != (None,) * 3,
            "has(self.ttftSeconds) || has(self.tbtSeconds) || has(self.endToEndSeconds)",
            "no target is given: set ttft_seconds, tbt_seconds or end_to_end_seconds",
        ),
        SpecRule(
            lambda targets: not targets.admission or (targets.ttft_seconds, targets.end_to_end_seconds) != (None, None),
            "!has(self.admission) || !self.admission || has(self.ttftSeconds) || has(self.endToEndSeconds)",
            "admission needs a target: set ttft_seconds or end_to_end_seconds",
        ),
    )


class AutoscaledExecutor(SpecModel):
    """The autoscaling of one executor."""

    name: ExecutorName
    """The name of the executor, such as `llm`."""
    capacity: float = Field(gt=0, le=MAX_CAPACITY)
    """The most load per second that one replica takes within its latency targets."""
    unit: Literal["tokens", "requests"] = "tokens"
    """The unit of the load: tokens of the inputs, texts and images, or the executor's invocations, for tasks whose
    inputs have no tokens."""
    min_replicas: int = Field(default=1, ge=1, le=MAX_REPLICAS)
    """The least number of replicas."""
    max_replicas: int = Field(default=MAX_REPLICAS, ge=1, le=MAX_REPLICAS)
    """The largest number of replicas."""


class AutoscalingSettings(SpecModel):
    """Settings of the autoscaling of an app: the replicas of each executor follow its load."""

    executors: list[AutoscaledExecutor] = Field(min_length=1, max_length=MAX_EXECUTOR_OVERRIDES)
    """The executors to scale. The others keep their replicas. Those that the running cell of a plan lacks are left
    out."""
    window_seconds: float = Field(default=60.0, ge=0.1, le=720)
    """The load is the larger mean of this time and of 5 times as long."""
    shrink_seconds: float = Field(default=900.0, ge=0.1, le=LONGEST_HISTORY)
    """The time in which fewer replicas must have been enough before replicas stop."""
    dwell_seconds: float = Field(default=60.0, ge=0, le=LONGEST_HISTORY)
    """The least time between two changes of an executor."""
    hold_seconds: HoldSeconds = HOLD_SECONDS
    """The time after `cornserve scale` in which the load changes nothing."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [executor.name for executor in self.executors]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"executors: {', '.join(map(repr, repeated))} is given more than once: keep one")
        for executor in self.executors:
            _ = self.limits(executor)
        return self

    def limits(self, executor: AutoscaledExecutor) -> ExecutorLimits:
        """Returns the limits of the policy for an executor."""
        return ExecutorLimits(
            executor.capacity,
            min_replicas=executor.min_replicas,
            max_replicas=executor.max_replicas,
            window_seconds=self.window_seconds,
            shrink_seconds=self.shrink_seconds,
            dwell_seconds=self.dwell_seconds,
        )


class AppPolicies(SpecModel):
    """The policies of an app, by name. A change restarts nothing."""

    routing: PolicyName = DEFAULT_ROUTING
    """The policy that selects a replica for each invocation: `static`, `least-loaded`, `power-of-two`, `least-tokens`,
    or a policy that another package adds."""
    binding: Binding = "early"
    """When the replica of an invocation that reads the tensors of one other invocation is selected: `early`, together
    with the other one's, or `late`, when the other one has ended. Steps of a plan may have a `binding` instead."""
    adaptation: AdaptationSettings | None = None
    """The adaptation to the load. Without these settings, only users change the running cells."""
    targets: LatencyTargetSettings | None = None
    """The targets of latencies, by which requests are counted and may be refused. By default, none."""
    autoscaling: AutoscalingSettings | None = None
    """The autoscaling of the app's executors. Without these settings, only users change the replicas. A plan must run
    one cell, and all replicas together have at most its GPUs or slots."""
    log_decisions: bool = False
    """Whether gateways log each choice of a path and of a replica."""

    rules = (
        SpecRule(
            lambda policies: policies.adaptation is None or policies.autoscaling is None,
            "!has(self.adaptation) || !has(self.autoscaling)",
            "adaptation changes the cells of a plan, and autoscaling the replicas of executors: remove one of them",
        ),
    )


class ClaimStorage(SpecModel):
    """A directory of a PersistentVolumeClaim, which is mounted read-only."""

    claim_name: ObjectName
    """The name of the PersistentVolumeClaim in the namespace of the app."""
    path: RelativePath | None = None
    """The directory of the model in the volume. By default, the root of the volume."""


class ImageStorage(SpecModel):
    """A directory of an OCI image, which is mounted as an image volume."""

    reference: str = Field(min_length=1, max_length=512, pattern=r"^[^\s]+$")
    """The image, as in the field `image` of a container."""
    path: RelativePath | None = None
    """The directory of the model in the image. By default, the root of the image."""


class HostPathStorage(SpecModel):
    """A directory of the node, which is mounted read-only. Pod Security has to allow hostPath volumes."""

    path: AbsolutePath
    """The directory of the model on every node that runs an executor of the app."""


class SecretKeyRef(SpecModel):
    """A key of a Secret in the namespace of the app."""

    name: ObjectName
    """The name of the Secret."""
    key: DataKey
    """The key in the data of the Secret."""


class ConfigMapKeyRef(SpecModel):
    """A key of a ConfigMap in the namespace of the app."""

    name: ObjectName
    """The name of the ConfigMap."""
    key: DataKey
    """The key in the data of the ConfigMap."""


class DownloadStorage(SpecModel):
    """A download of the model into a volume that pods share. One pod downloads, and the others wait."""

    cache_claim_name: ObjectName
    """The name of the PersistentVolumeClaim that contains the Hugging Face cache."""
    token_secret_key_ref: SecretKeyRef | None = None
    """The Hugging Face access token, for models that need one."""


class ModelStorage(SpecModel):
    """The location of the files of a model on Kubernetes: exactly one of the fields is set."""

    persistent_volume_claim: ClaimStorage | None = None
    image: ImageStorage | None = None
    host_path: HostPathStorage | None = None
    download: DownloadStorage | None = None

    rules = (exactly_one("persistent_volume_claim", "image", "host_path", "download"),)


ALL_EXECUTORS: Final = "*"
"""The name of the settings of all executors."""


class ExecutorOverride(SpecModel):
    """Settings of one executor of an app, or of all."""

    name: str = Field(pattern=r"^(\*|[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)$", max_length=63)
    """The name of the executor, such as `llm`, or `*` for all. The settings of a named executor take precedence."""
    options: dict[str, JsonValue] = Field(default_factory=dict, max_length=MAX_OPTIONS)
    """Options of the executor, which checks them, such as `max_model_len`."""
    gpu_type: GpuTypeName | None = None
    """The type of the executor's GPUs, such as `h100-80gb`. On Kubernetes, the value `executors.gpuTypes` of the chart
    defines the types; on one machine, `cornserve up --slots`. Executors on CPUs ignore it, but it must exist."""
    pod_template: dict[str, JsonValue] | None = None
    """A partial pod template, which is merged with the pod template of the executor on Kubernetes."""


def _check_names(overrides: Sequence[ExecutorOverride]) -> Sequence[ExecutorOverride]:
    names = [override.name for override in overrides]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"executors: {', '.join(map(repr, repeated))} is given more than once: merge the settings")
    return overrides


ExecutorOverrides = Annotated[
    list[ExecutorOverride], Field(max_length=MAX_EXECUTOR_OVERRIDES), AfterValidator(_check_names)
]
"""Settings of executors with different names."""
