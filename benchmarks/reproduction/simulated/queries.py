"""Queries for queue lengths: 9.27 and 2.50 requests/s [C §7.4]."""

from __future__ import annotations

from benchmarks.reproduction import best_strategy, hybrid
from benchmarks.reproduction.markdown import prose, table
from benchmarks.reproduction.published import PublishedFigures
from benchmarks.reproduction.simulated.systems import LLM, StageLoad, StageOption, StageStep, simulate, system_plan
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.simulation.serving_settings import ServingSettings

MILLISECONDS = (0.0, 1.0, 5.0, 10.0, 20.0, 28.5, 40.0)

OVERLOAD = 1.3
"""Requests arrive at this multiple of the rate that the replicas serve."""

OPTIONS = {
    "encoder": StageOption(("encoder",), "encoder"),
    "monolith": StageOption(("encoder", LLM), "monolith", gpus=2),
}


def section() -> str:
    printed = [entry.figure.value for entry in PublishedFigures.shipped().from_paper("C", "§7.4")]
    deployment, via = hybrid.PRINTED, hybrid.VIA_ENCODERS
    queries = deployment.encoders + deployment.monoliths * (1 + via)
    plan = _plan(max(printed))
    rates = {each: _rate(plan, queries * each / 1000) for each in MILLISECONDS}
    return prose("queries").format(
        static=max(printed),
        dynamic=min(printed),
        queries=queries,
        needed=1000 / min(printed) / queries,
        rates=table(
            ["ms per query", "requests/s"], [(f"{each:g}", f"{rate:.2f}") for each, rate in rates.items()], text=0
        ),
    )


def _plan(rate: float) -> PlanFile:
    """Returns a plan of the printed replicas in which encoders and monoliths serve just this rate."""
    deployment, via = hybrid.PRINTED, hybrid.VIA_ENCODERS
    whole = 4 / max(column["4 monoliths"] for column in best_strategy.printed().values())
    language = (deployment.monoliths / rate - (1 - via) * whole) / via
    types = {
        "direct": StageLoad(1 - via, (StageStep("monolith", ("encoder", LLM), whole),)),
        "through encoders": StageLoad(
            via,
            (
                StageStep("encoder", ("encoder",), deployment.encoders / via / rate),
                StageStep("monolith", (LLM,), language),
            ),
        ),
    }
    return system_plan(OPTIONS, types, {"encoder": deployment.encoders, "monolith": deployment.monoliths})


def _rate(plan: PlanFile, seconds: float) -> float:
    """Returns the requests/s through a control plane that handles one request at a time, in `seconds`."""
    document = simulate(plan, OVERLOAD * plan.rate, settings=ServingSettings(gateway_seconds=seconds)).as_document()
    rate: float = document["rate"]
    return rate
