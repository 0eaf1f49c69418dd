"""The fields that `cornserve plan --json` prints: those of the plan file and the details of the search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cornserve_planner.model.solution import Solution
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.plan_file.parts import PlannedOption, gpus_by_type
from cornserve_planner.planning.confidence import PlanConfidence
from cornserve_planner.solve.explanation import PlanExplanation


def result_document(
    file: PlanFile, explanations: Iterable[PlanExplanation], direct: Solution | None, confidence: PlanConfidence
) -> dict[str, Any]:
    """
    Args:
        explanations: one for each running cell, the largest first.
        direct: the plan without cells, for comparison; None if it was not computed.
    """
    return {
        **file.as_document(),
        "direct": None
        if direct is None
        else {**direct.model_dump(mode="json"), "gpus": gpus_by_type(file.options, direct.replicas)},
        "explanations": [_explanation(file.options, explanation) for explanation in explanations],
        "confidence": _confidence(confidence),
    }


def _explanation(options: Mapping[str, PlannedOption], explanation: PlanExplanation) -> dict[str, Any]:
    return {
        "gpus": gpus_by_type(options, explanation.plan.replicas),
        "binding": explanation.binding,
        "limiting": explanation.limiting,
        "utilization": explanation.utilization,
        "one_more": explanation.one_more,
        "gain": explanation.gain,
        "strategies": [
            {
                "name": result.name,
                "replicas": result.replicas,
                "rate": result.rate,
                "gpus": gpus_by_type(options, result.replicas),
            }
            for result in explanation.strategies
        ],
        "excluded": explanation.excluded,
    }


def _confidence(confidence: PlanConfidence) -> dict[str, Any]:
    return {
        "rate": {"low": confidence.low, "high": confidence.high},
        "sources": {name: {"tag": found.tag, "text": found.text} for name, found in confidence.sources.items()},
        "changes": [
            {
                "option": change.option,
                "times": change.times,
                "replicas": change.replicas,
                "example": change.example,
                "served": change.served,
                "better": change.better,
            }
            for change in confidence.changes
        ],
    }
