"""The arguments of policies as JSON values, so that a log of decisions can be repeated.

A policy decides by its arguments alone. The log therefore contains them, reduced to what policies can read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from cornserve_policies.arrivals import ArrivalHistory, WindowCounts
from cornserve_policies.board import Board, LoadReport, ReplicaLoad
from cornserve_policies.path_table import PathTable, RoutableCell


def record_board(board: Board, now: float) -> dict[str, Any]:
    """Returns the loads of all replicas: id, invocations, pending tokens, and the number of the last start."""
    return {
        "replicas": [
            [replica.id, replica.invocations(now), replica.pending_tokens(now), replica.last_start]
            for replica in board.replicas
        ],
        "unavailable": sorted(board.unavailable),
    }


def restore_board(recorded: Mapping[str, Any], now: float) -> Board:
    """Returns a board whose replicas have the recorded loads at `now`."""
    return Board([_restore_load(each, now) for each in recorded["replicas"]], frozenset(recorded["unavailable"]))


def _restore_load(recorded: Sequence[Any], now: float) -> ReplicaLoad:
    id, invocations, pending_tokens, last_start = recorded
    load = ReplicaLoad(id)
    load.last_start = last_start
    load.report(LoadReport(now, invocations, 0, pending_tokens, 0, 0))
    return load


def record_table(table: PathTable) -> dict[str, Any]:
    """Returns the types and the cells by which paths are chosen."""
    return {
        "types": {name: sorted(components) for name, components in table.types.items()},
        "default_type": table.default_type,
        "cells": [
            {
                "name": cell.name,
                "rate": cell.rate,
                "probabilities": {kind: list(each) for kind, each in cell.probabilities.items()},
            }
            for cell in table.cells
        ],
    }


def restore_table(recorded: Mapping[str, Any]) -> PathTable:
    cells = [RoutableCell(each["name"], each["rate"], each["probabilities"]) for each in recorded["cells"]]
    return PathTable(recorded["types"], recorded["default_type"], cells)


class RecordingHistory(ArrivalHistory):
    """A history that records the windows that a policy reads."""

    def __init__(self, history: ArrivalHistory) -> None:
        self._history = history
        self.windows: list[dict[str, Any]] = []

    def window(self, seconds: float, end: float) -> WindowCounts | None:
        found = self._history.window(seconds, end)
        counts = None if found is None else asdict(found) | {"counts": dict(found.counts)}
        self.windows.append({"seconds": seconds, "end": end, "found": counts})
        return found


class UnrecordedWindowError(LookupError):
    """A policy reads a window that the recorded decision has not read: it is another policy, or another version."""


class ReplayedHistory(ArrivalHistory):
    """A history that has the recorded windows only."""

    def __init__(self, windows: Sequence[Mapping[str, Any]]) -> None:
        self._windows = {(each["seconds"], each["end"]): each["found"] for each in windows}

    def window(self, seconds: float, end: float) -> WindowCounts | None:
        """Returns a recorded window. Raises `UnrecordedWindowError`."""
        if (seconds, end) not in self._windows:
            raise UnrecordedWindowError(f"the window of {seconds:g} s until {end:g} s was not read")
        found = self._windows[seconds, end]
        return None if found is None else WindowCounts(**found)
