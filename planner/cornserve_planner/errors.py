"""Errors of the planner. Each message fits in one line."""

from __future__ import annotations

import math


class PlannerError(Exception):
    """Base class of the planner's errors."""


class InvalidInputError(PlannerError):
    """An input of the planner is invalid.

    Args:
        where: the file and field, as in `qwen.yaml: options.encoder.gpus`.
        reason: the problem, and how to fix it.
    """

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.where = where
        self.reason = reason

    def within(self, source: str) -> InvalidInputError:
        """Returns the same error, with `source` added before the field."""
        return InvalidInputError(f"{source}: {self.where}", self.reason)


class InfeasibleError(PlannerError):
    """No plan satisfies the request.

    Args:
        constraint: the constraint that cannot be met.
        reason: the required and the available amounts.
    """

    def __init__(self, constraint: str, reason: str) -> None:
        super().__init__(f"infeasible: {constraint}: {reason}")
        self.constraint = constraint
        self.reason = reason


class NoPlanFoundError(PlannerError):
    """The solver reached its time limit before it found a plan. A plan may exist."""


def require_positive(where: str, value: float) -> None:
    """Raises `InvalidInputError` unless `value` is finite and greater than 0."""
    if not (math.isfinite(value) and value > 0):
        raise InvalidInputError(where, f"must be a finite number greater than 0, not {value}")


def require_non_negative(where: str, value: float) -> None:
    """Raises `InvalidInputError` unless `value` is finite and at least 0."""
    if not 0 <= value < math.inf:
        raise InvalidInputError(where, f"must be a finite number of at least 0, not {value}")


def require_between(where: str, value: float, least: float, most: float) -> None:
    """Raises `InvalidInputError` unless `value` is in the range."""
    if not least <= value <= most:
        raise InvalidInputError(where, f"must be from {least:g} to {most:g}, not {value:g}")
