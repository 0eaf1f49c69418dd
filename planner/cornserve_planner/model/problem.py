"""The planning problem: options and their costs, request types and their shares, and the seconds of each path."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from cornserve_plan.plan import SHARES_TOLERANCE
from cornserve_planner.errors import InvalidInputError, require_non_negative, require_positive
from cornserve_planner.model.graph import DeploymentOption, ExecutorGraph, PathStep, RequestType

SECONDS = (1e-8, 1e6)
"""Minimum and maximum time of a request on an option. Solvers reject numbers that differ by more than 15 digits."""


@dataclass(frozen=True, slots=True)
class GpuType:
    """A type of GPU.

    Args:
        memory: bytes of one GPU; None to skip the memory check.
        price: dollars per hour of one GPU; None if unknown.
    """

    name: str
    memory: float | None = None
    price: float | None = None


@dataclass(frozen=True, slots=True)
class RequestPath:
    """A valid path of a request type, with the seconds of a replica's time that a request needs on each option.

    `seconds` is 1/w_{s,t,p} of [C App. B]. `steps` lists the components that each option runs.
    """

    type: str
    name: str
    seconds: Mapping[str, float]
    steps: tuple[PathStep, ...] = ()


@dataclass(frozen=True)
class PlanningProblem:
    """A planning problem without topology [C App. B], for any budget or target rate.

    Args:
        shares: π_t by request type; their sum is 1.
        gpus: GPU types by name.
        memory: by option, the bytes needed on each GPU of a replica, if known.
        max_utilization: by option, the maximum fraction of its replicas' time that a plan uses, in (0, 1]; 1 if not
            given.
    """

    options: tuple[DeploymentOption, ...]
    shares: Mapping[str, float]
    paths: tuple[RequestPath, ...]
    gpus: Mapping[str, GpuType] = field(default_factory=dict)
    memory: Mapping[str, float] = field(default_factory=dict)
    max_utilization: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check_shares()
        self._check_gpus()
        self._check_utilization()
        self._check_paths()

    @classmethod
    def from_graph(
        cls,
        graph: ExecutorGraph,
        shares: Mapping[RequestType, float],
        seconds: Callable[[RequestType, PathStep], float],
        gpus: Iterable[GpuType] = (),
        memory: Mapping[str, float] | None = None,
        max_utilization: Mapping[str, float] | None = None,
    ) -> PlanningProblem:
        """Builds the problem of a graph and a workload.

        Args:
            seconds: returns the seconds of a replica's time that a request of a type needs at a step of its path.
        """
        paths = []
        for request_type in shares:
            for valid in graph.valid_paths(request_type):
                spent: dict[str, float] = {}
                for step in valid.steps:
                    spent[step.option] = spent.get(step.option, 0.0) + seconds(request_type, step)
                paths.append(RequestPath(request_type.name, valid.name, spent, valid.steps))
        return cls(
            options=graph.options,
            shares={request_type.name: share for request_type, share in shares.items()},
            paths=tuple(paths),
            gpus={gpu.name: gpu for gpu in gpus},
            memory=dict(memory or {}),
            max_utilization=dict(max_utilization or {}),
        )

    @cached_property
    def option(self) -> dict[str, DeploymentOption]:
        return {option.name: option for option in self.options}

    @cached_property
    def excluded(self) -> dict[str, str]:
        """Options that do not fit their GPUs, with the reason."""
        return {option.name: reason for option in self.options if (reason := self._explain_size(option)) is not None}

    @cached_property
    def usable(self) -> tuple[RequestPath, ...]:
        """The paths whose options all fit."""
        return tuple(path for path in self.paths if not self.excluded.keys() & path.seconds.keys())

    @cached_property
    def without_utilization_limits(self) -> PlanningProblem:
        """The equivalent problem for solvers: requests need their seconds divided by the maximum utilization."""
        if not self.max_utilization:
            return self
        paths = (
            replace(
                path, seconds={name: each / self.max_utilization.get(name, 1.0) for name, each in path.seconds.items()}
            )
            for path in self.paths
        )
        return replace(self, paths=tuple(paths), max_utilization={})

    def restricted_to(self, options: Iterable[str]) -> PlanningProblem:
        """Returns the same problem with only these options. The result is infeasible if a type loses all paths."""
        kept = frozenset(options)
        return replace(self, paths=tuple(path for path in self.paths if kept >= path.seconds.keys()))

    def price(self, option: DeploymentOption) -> float:
        """Returns the dollars per hour of a replica. Raises `InvalidInputError` if its GPUs have no price."""
        gpu = self.gpus.get(option.gpu or "")
        if gpu is None or gpu.price is None:
            raise InvalidInputError(
                f"options.{option.name}.gpu",
                f"{option.gpu} has no price: give one in a file for --gpu-types"
                if option.gpu
                else "has no price, because no GPU type is set: set one in the model",
            )
        return gpu.price * option.gpus

    def dollars(self, replicas: Mapping[str, int]) -> float | None:
        """Returns the dollars per hour of replicas; None if a price is unknown."""
        costs = [
            (self.gpus.get(self.option[name].gpu or ""), self.option[name].gpus * n) for name, n in replicas.items()
        ]
        if any(gpu is None or gpu.price is None for gpu, _ in costs):
            return None
        return math.fsum(gpu.price * count for gpu, count in costs if gpu and gpu.price)

    def _explain_size(self, option: DeploymentOption) -> str | None:
        needed = self.memory.get(option.name)
        gpu = self.gpus.get(option.gpu or "")
        available = gpu.memory if gpu else None
        if needed is None or available is None or needed <= available:
            return None
        return (
            f"{option.name} needs {needed / 2**30:.1f} GiB on each of its {option.gpus} "
            f"{option.gpu}, which have {available / 2**30:.1f} GiB"
        )

    def _check_shares(self) -> None:
        if not self.shares:
            raise InvalidInputError("types", "must not be empty: give the share of at least one request type")
        for name, share in self.shares.items():
            require_non_negative(f"types.{name}.share", share)
        total = math.fsum(self.shares.values())
        if abs(total - 1) > SHARES_TOLERANCE:
            raise InvalidInputError("types", f"the shares add up to {total:.6g}, not to 1: correct them")

    def _check_gpus(self) -> None:
        for name, gpu in self.gpus.items():
            for what, value in (("memory", gpu.memory), ("price", gpu.price)):
                if value is not None:
                    require_positive(f"gpus.{name}.{what}", value)
        for option in self.options:
            if self.gpus and option.gpu is not None and option.gpu not in self.gpus:
                raise InvalidInputError(
                    f"options.{option.name}.gpu", f"unknown GPU type {option.gpu!r}: use one of {', '.join(self.gpus)}"
                )
        for name, needed in self.memory.items():
            if name not in self.option:
                raise InvalidInputError(
                    f"memory.{name}", f"is not an option of the model: use one of {', '.join(self.option)}"
                )
            require_non_negative(f"memory.{name}", needed)

    def _check_utilization(self) -> None:
        for name, limit in self.max_utilization.items():
            where = f"max_utilization.{name}"
            if name not in self.option:
                raise InvalidInputError(where, f"is not an option of the model: use one of {', '.join(self.option)}")
            if not 0 < limit <= 1:
                raise InvalidInputError(where, f"must be greater than 0 and at most 1, not {limit:g}")

    def _check_paths(self) -> None:
        for path in self.paths:
            if path.type not in self.shares:
                raise InvalidInputError(
                    f"paths.{path.name}",
                    f"{path.type!r} is not a request type of the workload: use one of {', '.join(self.shares)}",
                )
            for name, seconds in path.seconds.items():
                if name not in self.option:
                    raise InvalidInputError(
                        f"paths.{path.name}",
                        f"{name!r} is not an option of the model: use one of {', '.join(self.option)}",
                    )
                where = f"seconds of {name} for {path.type} on {path.name}"
                require_positive(where, seconds)
                if not SECONDS[0] <= seconds <= SECONDS[1]:
                    raise InvalidInputError(
                        where,
                        f"must be from {SECONDS[0]:g} to {SECONDS[1]:g}, not {seconds:g}: correct the rates in the "
                        f"profile, or the factor of {name}",
                    )
