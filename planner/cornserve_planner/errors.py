"""What the planner refuses, and why, each in one line."""

from __future__ import annotations


class PlannerError(Exception):
    """Something that the planner cannot do."""


class InvalidInputError(PlannerError):
    """Something that is wrong with what the planner was given.

    Args:
        where: the field, as a user finds it: `qwen.yaml: options.encoder.gpus`.
        reason: what is wrong with it, and what would be right.
    """

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.where = where
        self.reason = reason

    def within(self, source: str) -> InvalidInputError:
        """The same, of a field of `source`."""
        return InvalidInputError(f"{source}: {self.where}", self.reason)


class InfeasibleError(PlannerError):
    """No plan can do what was asked for.

    Args:
        constraint: the constraint that cannot be met.
        reason: why, with the numbers: what is needed and what there is.
    """

    def __init__(self, constraint: str, reason: str) -> None:
        super().__init__(f"infeasible: {constraint}: {reason}")
        self.constraint = constraint
        self.reason = reason


class NoPlanFoundError(PlannerError):
    """The solver's time was over before it had found a plan; there may be one."""
