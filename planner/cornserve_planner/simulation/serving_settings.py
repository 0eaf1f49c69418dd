"""The parts of a simulated system that a plan does not determine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.plan_file.document import PlanFile


@dataclass(frozen=True, slots=True)
class ServingSettings:
    """The parts of a simulated system that a plan does not determine.

    Args:
        gateways: gateways that take requests from one queue. `gateway_seconds`: seconds of a gateway for a request.
        bandwidth: bytes/s of a replica's network in each direction; None if transfers take no time by their size.
        latency: seconds until the first byte of a transfer arrives.
        transfers: by option, the bytes of its output for a request.
        streamed: components that begin with the first output of the components before them, instead of the last.
        ttft, tbt, e2e: latency targets in seconds.
        refuses: whether requests are refused early that would miss the targets.
        adapts: whether the number of cells follows the load. `most_gpus`: the GPUs that cells may have at most.
        autoscaled: by option, the requests per second that one of its replicas takes. Their number follows the load.
        startup: seconds until a started cell or replica serves requests; None for those of the plan's options.
        failures: options and times in seconds at which one of their replicas fails.
    """

    gateways: int = 1
    gateway_seconds: float = 0.0
    bandwidth: float | None = None
    latency: float = 0.0
    transfers: Mapping[str, float] = field(default_factory=dict)
    streamed: frozenset[str] = frozenset()
    ttft: float | None = None
    tbt: float | None = None
    e2e: float | None = None
    refuses: bool = False
    adapts: bool = False
    most_gpus: float = inf
    autoscaled: Mapping[str, float] = field(default_factory=dict)
    startup: float | None = None
    failures: tuple[tuple[str, float], ...] = ()

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
