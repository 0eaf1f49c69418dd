"""The savings of two GPU types: [H] Equation 8."""

from __future__ import annotations

from benchmarks.reproduction.gpu_mix_cost import RequestLatency, cost_saving
from benchmarks.reproduction.markdown import prose, table
from cornserve_planner.model.graph import DeploymentOption
from cornserve_planner.model.problem import GpuType, PlanningProblem, RequestPath
from cornserve_planner.solve.optimization import min_dollars

RATIO = 0.63
CHEAP, DEAR = 3000.0, 16000.0
RATES = (1, 2, 5, 10, 100)


def section() -> str:
    latency = RequestLatency(vision=6.82, transfer=0.45, prefill=1.24, decode=9.35)
    return prose("cost").format(
        saving=cost_saving(RATIO, CHEAP / DEAR),
        table_ratio=latency.vision_to_language,
        table_saving=cost_saving(latency.vision_to_language, CHEAP / DEAR),
        plans=table(
            ["requests/s", "one type: encoders + language models", "two types", "saved"], map(_plans, RATES), text=0
        ),
        equal=1 - (38_000 / 3_156) / (64_000 / 3_886),
        own=(38_000 / 3_156) / (64_000 / 5_986) - 1,
    )


def problem(*encoders: str) -> PlanningProblem:
    """Returns a problem with one second of language and `RATIO` seconds of encoding per request, on the given GPUs."""
    prices = {"cheap": CHEAP, "dear": DEAR}
    options = [DeploymentOption(f"encoder on {gpu}", ("encoder",), gpu=gpu) for gpu in encoders]
    return PlanningProblem(
        (*options, DeploymentOption("language model", ("llm",), gpu="dear")),
        {"image": 1.0},
        tuple(RequestPath("image", option.name, {option.name: RATIO, "language model": 1.0}) for option in options),
        gpus={name: GpuType(name, price=price) for name, price in prices.items()},
    )


def _plans(rate: int) -> list[object]:
    one_type, two_types = min_dollars(problem("dear"), rate), min_dollars(problem("dear", "cheap"), rate)
    counts = [" + ".join(str(plan.replicas[name]) for name in sorted(plan.replicas)) for plan in (one_type, two_types)]
    return [rate, *counts, f"{1 - two_types.value / one_type.value:.1%}"]
