"""Runs a mixed-integer linear program with HiGHS (in this process) or with the CBC that PuLP bundles.

The result includes the solver's bound, which shows how close to optimal the value is.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from time import perf_counter
from typing import Any

import highspy
import pulp
from pulp.apis.coin_api import PULP_CBC_CMD

from cornserve_planner.solve.time_limit import DEFAULT_TIME_LIMIT

TOLERANCE = 1e-9
"""Tolerance of constraints in linear programs.

Programs with integers use the solvers' default tolerances: with 1e-9 and an initial solution, HiGHS 1.15 sometimes
returns a wrong proof.
"""


class SolverEngine(StrEnum):
    HIGHS = "highs"
    CBC = "cbc"


@dataclass(frozen=True, slots=True)
class SolverSettings:
    """Settings of a solver run.

    Args:
        time_limit: seconds until the best solution so far is used; None to wait for the proof.
        gap: sufficient relative gap between value and bound; 0 for a proof of optimality.
    """

    engine: SolverEngine = SolverEngine.HIGHS
    time_limit: float | None = DEFAULT_TIME_LIMIT
    gap: float = 0.0

    def after(self, seconds: float) -> SolverSettings:
        """Returns the settings for the time that remains after some seconds."""
        return self if self.time_limit is None else replace(self, time_limit=max(0.0, self.time_limit - seconds))


@dataclass(frozen=True, slots=True)
class SolverOutcome:
    """The result of a solver run. The solution is in the program's variables.

    Args:
        feasible: None if the time limit was reached before feasibility was known.
        bound: no solution is better than this.
    """

    feasible: bool | None
    bound: float
    proven: bool
    seconds: float


def solve_program(
    program: pulp.LpProblem, solver: SolverSettings, *, relaxed: bool = False, nodes: int | None = None
) -> SolverOutcome:
    """Solves `program`.

    Args:
        relaxed: ignore the integrality of variables.
        nodes: maximum number of nodes in the search tree. Unlike a time limit, this limit gives the same
            result on slow and fast machines.
    """
    started = perf_counter()
    run_engine = _run_highs if solver.engine is SolverEngine.HIGHS else _run_cbc
    feasible, bound, proven = run_engine(program, solver, relaxed, nodes)
    return SolverOutcome(feasible, bound, proven, perf_counter() - started)


class _Highs(pulp.HiGHS):  # type: ignore[misc]
    """Handles the status of a search that reached its node limit, which PuLP does not know."""

    def findSolutionValues(self, lp: pulp.LpProblem) -> tuple[int, int]:  # noqa: N802
        try:
            found: tuple[int, int] = super().findSolutionValues(lp)
        except KeyError:  # PuLP sets the values before it looks up the unknown status.
            found = pulp.LpStatusOptimal, pulp.LpSolutionIntegerFeasible
        return found


def _run_highs(
    program: pulp.LpProblem, solver: SolverSettings, relaxed: bool, nodes: int | None
) -> tuple[bool | None, float, bool]:
    has_integers = not relaxed and program.isMIP()
    options: dict[str, float] = {} if nodes is None else {"mip_max_nodes": nodes}
    if not has_integers:
        options |= {"primal_feasibility_tolerance": TOLERANCE, "dual_feasibility_tolerance": TOLERANCE}
    program.solve(
        _Highs(
            mip=not relaxed,
            msg=False,
            timeLimit=solver.time_limit,
            gapRel=solver.gap,
            gapAbs=0.0,
            mip_heuristic_run_feasibility_jump=False,  # costs milliseconds, most of the time of small problems
            **options,
        )
    )
    highs: Any = program.solverModel
    info, status = highs.getInfo(), highs.getModelStatus()
    proven = status == highspy.HighsModelStatus.kOptimal
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        impossible = status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible)
        return (False if impossible else None), float("nan"), impossible
    sign = -1.0 if program.sense == pulp.LpMaximize else 1.0
    bound = sign * info.mip_dual_bound if has_integers else sign * info.objective_function_value
    return True, bound, proven


def _run_cbc(
    program: pulp.LpProblem, solver: SolverSettings, relaxed: bool, nodes: int | None
) -> tuple[bool | None, float, bool]:
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory, "log")
        cbc = pulp.COIN_CMD(
            mip=not relaxed,
            msg=False,
            timeLimit=solver.time_limit,
            gapRel=solver.gap,
            gapAbs=0.0,
            path=PULP_CBC_CMD.pulp_cbc_path,
            logPath=str(log),
            maxNodes=nodes,
        )
        cbc.tmpDir = directory
        program.solve(cbc)
        output = log.read_text()
    if program.sol_status == pulp.LpSolutionInfeasible:
        return False, float("nan"), True
    if program.status != pulp.LpStatusOptimal:
        return None, float("nan"), False
    value = float(pulp.value(program.objective))
    if program.sol_status == pulp.LpSolutionOptimal:
        return True, value, True
    stated = re.findall(r"^(?:Lower|Upper) bound:\s+(\S+)", output, re.MULTILINE)
    return True, float(stated[-1]) if stated else float("nan"), False
