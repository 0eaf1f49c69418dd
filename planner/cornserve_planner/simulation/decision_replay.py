"""Repeats the decisions of a log that gateways and controllers have written, with the runtime's policies."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Final

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.files.bounded_text import bounded_lines
from cornserve_planner.files.document import parse_whole
from cornserve_policies.adaptation import (
    AdaptationLimits,
    ObservedRateAdaptation,
    PlanCapacity,
    RunningMixture,
    find_mix_shift,
    is_better,
)
from cornserve_policies.admission import AdmissionState
from cornserve_policies.arrivals import WindowCounts
from cornserve_policies.autoscaling import ExecutorAutoscaling, ExecutorLimits, RunningReplicas
from cornserve_policies.input_size import InputSize
from cornserve_policies.latency_estimate import EstimateState
from cornserve_policies.path_table import PathTable
from cornserve_policies.recorded_decisions import (
    ReplayedHistory,
    UnrecordedWindowError,
    restore_board,
    restore_table,
)
from cornserve_policies.registry import UnknownPolicyError, routing_policy
from cornserve_policies.replayable_random import ReplayableRandom
from cornserve_policies.replica_routing import RoutedInvocation, RoutingPolicy

FORMAT: Final = "cornserve/decisions"
VERSION: Final = 1

MOST_DIFFERENCES: Final = 20
"""The differences that are shown."""

_MALFORMED = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError, ZeroDivisionError)
"""Raised by policies and constructors for a decision with missing fields or values of other types."""


@dataclass(frozen=True, slots=True)
class DifferentDecision:
    """A decision that the replay does not repeat. `line`: its line in the log."""

    line: int
    event: str
    request_id: str
    logged: Any
    repeated: Any
    seen: Mapping[str, Any]


@dataclass(slots=True)
class ReplayResult:
    """The decisions of a log by event, and those that differ: all are counted, and the first ones are kept."""

    process: str
    decisions: Counter[str] = field(default_factory=Counter)
    different: Counter[str] = field(default_factory=Counter)
    differences: list[DifferentDecision] = field(default_factory=list)


class DecisionReplay:
    """Repeats decisions one by one.

    Args:
        routing: a routing policy in place of the logged ones, or None. Raises `InvalidInputError` if it is unknown.
    """

    def __init__(self, routing: str | None = None) -> None:
        self._routing = routing
        self._policies: dict[str, RoutingPolicy] = {}
        self._tables: dict[int, PathTable] = {}
        self._repeat: dict[str, Callable[[Mapping[str, Any]], tuple[Any, Any]]] = {
            "path": self._repeat_path,
            "replica": self._repeat_replica,
            "cells": _repeat_cells,
            "replicas": _repeat_replicas,
            "admission": _repeat_admission,
            "mix": _repeat_mix,
            "plan": _repeat_plan,
        }
        if routing is not None:
            self._policy(routing)

    def run(self, path: Path) -> ReplayResult:
        """Repeats the decisions of a log. Raises `InvalidInputError`, naming the line, if it cannot be read."""
        lines = _read_lines(path)
        _, header = next(lines, (1, {}))
        if header.get("format") != FORMAT or header.get("version") != VERSION:
            raise InvalidInputError(f"{path.name} line 1", f"must have the format {FORMAT!r}, version {VERSION}")
        result = ReplayResult(str(header.get("process", "")))
        for number, line in lines:
            try:
                self._add(line, number, result)
            except _MALFORMED as error:
                if isinstance(error, InvalidInputError):
                    raise
                raise InvalidInputError(f"{path.name} line {number}", f"is not a decision: {error!r:.200}") from error
        return result

    def _add(self, line: Mapping[str, Any], number: int, result: ReplayResult) -> None:
        event = line["event"]
        if event == "snapshot":
            self._tables[line["number"]] = restore_table(line["table"])
            return
        if event not in self._repeat:
            raise ValueError(f"the event {event!r} is unknown")
        logged, repeated = self._repeat[event](line)
        result.decisions[event] += 1
        if logged != repeated:
            result.different[event] += 1
            if len(result.differences) < MOST_DIFFERENCES:
                request_id = str(line.get("request_id", ""))
                result.differences.append(DifferentDecision(number, event, request_id, logged, repeated, line["seen"]))

    def _repeat_path(self, line: Mapping[str, Any]) -> tuple[Any, Any]:
        seen = line["seen"]
        random = ReplayableRandom(str(seen["key"]))
        logged = [line["type"], line["cell"], line["path"]]
        if "shares" in seen:
            return logged, ["", "", random.choose(seen["shares"])]
        return logged, [*self._tables[line["snapshot"]].choose(seen["type"], random)]

    def _repeat_replica(self, line: Mapping[str, Any]) -> tuple[Any, Any]:
        seen = line["seen"]
        invocation = RoutedInvocation(str(seen["key"]), int(line["invocation"]), InputSize(**seen["size"]))
        policy = self._policy(self._routing or str(line["reason"]))
        chosen = policy.choose(invocation, restore_board(seen, seen["now"]), seen["now"])
        return line["replica"], None if chosen is None else chosen.id

    def _policy(self, name: str) -> RoutingPolicy:
        if name not in self._policies:
            try:
                self._policies[name] = routing_policy(name)
            except UnknownPolicyError as error:
                raise InvalidInputError("--routing" if name == self._routing else "--replay", str(error)) from error
        return self._policies[name]


def _repeat_cells(line: Mapping[str, Any]) -> tuple[Any, Any]:
    seen = line["seen"]
    solved = {rate: dict(map(tuple, counts)) for rate, counts in seen["solved"]}
    running = RunningMixture(**{**seen["running"], "counts": dict(map(tuple, seen["running"]["counts"]))})
    policy = ObservedRateAdaptation(AdaptationLimits(**seen["limits"]))
    try:
        change = policy.decide(running, ReplayedHistory(seen["windows"]), seen["now"], solved.__getitem__)
    except (UnrecordedWindowError, KeyError) as error:
        return line["counts"], str(error)
    return line["counts"], None if change is None else [list(each) for each in sorted(change.counts.items())]


def _repeat_replicas(line: Mapping[str, Any]) -> tuple[Any, Any]:
    seen = line["seen"]
    policy = ExecutorAutoscaling(ExecutorLimits(**seen["limits"]))
    try:
        change = policy.decide(RunningReplicas(**seen["running"]), ReplayedHistory(seen["windows"]), seen["now"])
    except UnrecordedWindowError as error:
        return line["replicas"], str(error)
    return line["replicas"], None if change is None else change.replicas


def _repeat_admission(line: Mapping[str, Any]) -> tuple[Any, Any]:
    seen = line["seen"]
    ttft, e2e = (None if seen[name] is None else EstimateState(**seen[name]) for name in ("ttft", "e2e"))
    refusal = AdmissionState(ttft, e2e, seen["next_probe"]).refusal(seen["now"])
    return line["refused"], "" if refusal is None else refusal.target


def _repeat_mix(line: Mapping[str, Any]) -> tuple[Any, Any]:
    seen = line["seen"]
    observed = find_mix_shift(seen["planned"], WindowCounts(**seen["window"]), tolerance=seen["tolerance"])
    return line["distance"], None if observed is None else observed.distance


def _repeat_plan(line: Mapping[str, Any]) -> tuple[Any, Any]:
    seen = line["seen"]
    return line["better"], is_better(PlanCapacity(**seen["plan"]), PlanCapacity(**seen["running"]), seen["target"])


def _read_lines(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yields the numbers and the objects of the lines. The last line of a process that was killed may be incomplete."""
    try:
        with path.open(encoding="utf-8") as file:
            for number, text in enumerate(bounded_lines(file, path.name), 1):
                try:
                    line = json.loads(text, parse_constant=_constant, parse_int=parse_whole)
                except (ValueError, RecursionError) as error:
                    if not text.endswith("\n"):
                        return
                    raise InvalidInputError(f"{path.name} line {number}", f"is not valid JSON: {error}") from error
                if not isinstance(line, dict):
                    raise InvalidInputError(f"{path.name} line {number}", "must be a JSON object")
                yield number, line
    except OSError as error:
        raise InvalidInputError(str(path), f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(path.name, "is not UTF-8 text: save it as UTF-8") from error


def _constant(name: str) -> float:
    """Returns an infinite limit. NaN is not a limit."""
    if name == "NaN":
        raise ValueError("NaN is not a number")
    return inf if name == "Infinity" else -inf
