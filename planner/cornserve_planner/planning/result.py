"""The result of one run of the planner."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cornserve_planner.goodput.search import ReplayedCandidate
from cornserve_planner.inputs.planning_inputs import PlanInputs
from cornserve_planner.model.solution import Solution
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.planning.confidence import PlanConfidence
from cornserve_planner.planning.result_document import result_document
from cornserve_planner.solve.cells import Cell
from cornserve_planner.solve.explanation import PlanExplanation


@dataclass(frozen=True, slots=True)
class RunningCell:
    """A number of cells that share one plan. `gpus`: GPUs of each cell."""

    count: int
    gpus: int
    plan: Solution


@dataclass(frozen=True)
class PlanResult:
    """
    Args:
        cells: all cells that were solved, or the only plan.
        running: the cells of the plan, the largest first, with their numbers.
        explanations: one for each running cell, in the same order.
        whole: whether there is one plan for all GPUs instead of cells.
        confidence: the certainty of the plan. With `explain`, it covers all options.
        candidates: with latency targets, the candidates of the search, the best one first.
        running_goodput: the goodput of the running replicas of the request.
        direct: the plan with the fewest GPUs without cells, for comparison. None if it was not computed.
    """

    inputs: PlanInputs
    cells: tuple[Cell, ...]
    running: tuple[RunningCell, ...]
    explanations: tuple[PlanExplanation, ...]
    file: PlanFile
    confidence: PlanConfidence
    whole: bool = False
    direct: Solution | None = None
    candidates: tuple[ReplayedCandidate, ...] = ()
    running_goodput: float | None = None

    @property
    def warnings(self) -> list[str]:
        """The request types for which the plan has no path, although the app takes them."""
        return [
            f"no path for requests of type {name}: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not "
            "measured: `cornserve deploy` refuses this plan unless the paths of the default type serve them"
            for name, missing in self.inputs.unmeasured.items()
        ]

    def save(self, path: Path) -> None:
        self.file.write(path)

    def as_document(self) -> dict[str, Any]:
        """Returns the fields that `--json` prints: those of the plan file and the details of the search."""
        document = result_document(self.file, self.explanations, self.direct, self.confidence)
        return document | {
            "candidates": [
                {
                    "kind": each.candidate.kind,
                    "replicas": each.candidate.replicas,
                    "bound": each.candidate.bound,
                    "requests": each.requests,
                    "goodput": None if each.goodput is None else asdict(each.goodput),
                    "most": each.most,
                }
                for each in self.candidates
            ],
            "warnings": self.warnings,
        }
