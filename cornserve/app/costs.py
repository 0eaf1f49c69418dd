"""The costs of apps and their executors over a time, as `/admin/v1/costs` reports them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from cornserve.app.overview import ReadGateways


class _Costs(BaseModel):
    model_config = ConfigDict(frozen=True)


class StageCost(_Costs):
    """The part of an executor group that an app is charged with."""

    group: str
    executor: str
    compute_seconds: float
    """Time of replicas that the invocations of the app took."""
    share: float
    """The part of the time of all invocations, by which the group is divided among apps."""
    gpu_seconds: float
    """Seconds for which the replicas of the group occupied a GPU or slot, times the share."""
    dollars: float | None
    """Their price. None: it is unknown."""


class AppCost(_Costs):
    app: str
    gpu_seconds: float
    dollars: float | None
    stages: list[StageCost]


class CostReport(_Costs):
    """The costs of all apps. They add up to the time for which replicas occupied GPUs and slots."""

    seconds: float
    """The length of the reported time, which ends now."""
    gateways: ReadGateways
    gpu_seconds: float
    dollars: float | None
    apps: list[AppCost]
