"""The parts of a simulated system that a plan does not determine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.simulation.racks import RackTopology
from cornserve_policies.autoscaling import ExecutorLimits

MAX_AUTOSCALED = 4096
"""The most replicas of an autoscaled executor in a cell."""


@dataclass(frozen=True, slots=True)
class ServingSettings:
    """The parts of a simulated system that a plan does not determine.

    Args:
        gateways: gateways that take requests from one queue. `gateway_seconds`: seconds of a gateway for a request.
        bandwidth: bytes/s of a replica's network in each direction; None if transfers take no time by their size.
        racks: the racks in which replicas are placed; None if all transfers are alike.
        latency: seconds until the first byte of a transfer arrives.
        transfers: by option, the bytes of its output for a request.
        binds_late: whether invocations have late binding, unless the step of the plan has a binding.
        streamed: components that begin with the first output of the components before them, instead of the last.
        ttft, tbt, e2e: latency targets in seconds.
        refuses: whether requests are refused early that would miss the targets.
        adapts: whether the number of cells follows the load. `most_gpus`: the GPUs that all replicas have at most.
        autoscaled: by option, the requests per second that one of its replicas takes, or None for those that follow
            from `ttft`. Their number follows the load.
        autoscaling_times: `window_seconds`, `shrink_seconds` and `dwell_seconds` of the autoscaling, unless by default.
        startup: seconds until a started replica serves requests, of which each start takes a random one; None for those
            of the profile or the plan.
        startup_times: the same by option, from the profile. `startup` replaces them.
        seed: starts with one seed take the same times.
        failures: options and times in seconds at which one of their replicas fails.
    """

    gateways: int = 1
    gateway_seconds: float = 0.0
    bandwidth: float | None = None
    racks: RackTopology | None = None
    latency: float = 0.0
    transfers: Mapping[str, float] = field(default_factory=dict)
    binds_late: bool = False
    streamed: frozenset[str] = frozenset()
    ttft: float | None = None
    tbt: float | None = None
    e2e: float | None = None
    refuses: bool = False
    adapts: bool = False
    most_gpus: float = inf
    autoscaled: Mapping[str, float | None] = field(default_factory=dict)
    autoscaling_times: Mapping[str, float] = field(default_factory=dict)
    startup: tuple[float, ...] | None = None
    startup_times: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    seed: int = 0
    failures: tuple[tuple[str, float], ...] = ()

    @property
    def first_output_target(self) -> float | None:
        """The target by which requests are due, as in the gateway; None without one."""
        return self.ttft or self.e2e

    def autoscaling_limits(self, capacity: float) -> ExecutorLimits:
        """Returns the limits of the policy. Raises `InvalidInputError` if they cannot hold."""
        known = self.autoscaling_times
        try:
            usual = ExecutorLimits(capacity)
            return replace(
                usual,
                max_replicas=MAX_AUTOSCALED,
                window_seconds=known.get("window_seconds", usual.window_seconds),
                shrink_seconds=known.get("shrink_seconds", usual.shrink_seconds),
                dwell_seconds=known.get("dwell_seconds", usual.dwell_seconds),
            )
        except ValueError as error:
            raise InvalidInputError("--autoscale", str(error)) from error

    def check_names(self, plan: PlanFile) -> None:
        """Raises `InvalidInputError` for options and components that are not in the plan."""
        for flag, names, known in (
            ("--transfer", self.transfers, plan.options),
            ("--stream", self.streamed, plan.components),
            ("--autoscale", self.autoscaled, plan.options),
            ("--fail", [name for name, _ in self.failures], plan.options),
        ):
            for name in sorted(names):
                if name not in known:
                    raise InvalidInputError(flag, f"{name!r} is not in the plan: use one of {', '.join(known)}")
