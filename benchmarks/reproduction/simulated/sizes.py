"""ModServe: requests of different sizes, with priorities and with routing by tokens [M §4.3, §5.2]."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from statistics import fmean

from benchmarks.reproduction.markdown import prose, table
from benchmarks.reproduction.simulated.modserve import (
    BURST_SLOWDOWN,
    MODELS,
    SLO_FACTOR,
    TEXT_GPUS,
    ServedModel,
)
from benchmarks.reproduction.simulated.systems import (
    LLM,
    StageLoad,
    StageOption,
    StageStep,
    first_token_times,
    p99,
    system_plan,
)
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.simulation.serving_settings import ServingSettings
from cornserve_planner.simulation.simulated_request import PoissonRequests, TypeLoad
from cornserve_policies.registry import DEFAULT_ROUTING

SIZES = {0.25: 0.6, 1.0: 0.25, 4.0: 0.15}
"""Shares of the sizes of images, and of the prompts of requests without images, relative to the mean ones."""

IMAGE_TOKENS, TEXT_TOKENS = 1000, 250
"""Mean tokens of an image, and of a prompt without its images."""

LOADS = (0.7, 0.9)
"""Parts of the rate that the instances serve without queues."""

REQUESTS = 5000

VARIANTS = (
    ("order of arrival", DEFAULT_ROUTING, ServingSettings()),
    ("priorities", DEFAULT_ROUTING, ServingSettings(ttft=SLO_FACTOR)),
    ("priorities, routing by tokens", "least-tokens", ServingSettings(ttft=SLO_FACTOR)),
)

PRINTED = ((0.12, 0.25), (0.14, 0.32))
"""The printed reductions of the mean and of the P99 by priorities, and by routing after that."""


def section() -> str:
    return prose("sizes").format(
        sizes=", ".join(f"{share:.0%} have a size of {size:g}" for size, share in SIZES.items()),
        image=IMAGE_TOKENS,
        text=TEXT_TOKENS,
        factor=SLO_FACTOR,
        slowdown=BURST_SLOWDOWN,
        changes=table(
            ["model", "load", *(f"{name}: {figure}" for name, _, _ in VARIANTS[1:] for figure in ("mean", "P99"))],
            [*(row for model in MODELS for row in _rows(model)), _printed()],
            text=1,
        ),
    )


def _rows(model: ServedModel) -> Iterator[list[object]]:
    """Yields the changes of the TTFT by each variant, relative to the one before it."""
    plan, types = _sized_system(model)
    for load in LOADS:
        requests = PoissonRequests(types, load * plan.rate, REQUESTS)
        found = [first_token_times(plan, requests, routing, settings) for _, routing, settings in VARIANTS]
        row: list[object] = [model.name, f"{load:g}"]
        for before, after in pairwise(found):
            row += [f"{fmean(after) / fmean(before) - 1:+.0%}", f"{p99(after) / p99(before) - 1:+.0%}"]
        yield row


def _printed() -> list[object]:
    return ["printed", "", *(f"{-each:+.0%}" for reductions in PRINTED for each in reductions)]


def _sized_system(model: ServedModel) -> tuple[PlanFile, tuple[TypeLoad, ...]]:
    """Returns the plan of 20 text and 48 image instances, and the load of each size of requests with and without image.

    The prefill of a decoder-only model takes longer for a larger image, and that of a text for a longer text.
    """
    stages, loads = {}, []
    for size, share in SIZES.items():
        text = StageStep("text", (LLM,), size * model.prefill(0))
        image = StageStep("image", ("encoder",), BURST_SLOWDOWN * model.encoding * size)
        stages[f"text {size:g}"] = StageLoad(share / 2, (text,))
        stages[f"image {size:g}"] = StageLoad(share / 2, (image, StageStep("text", (LLM,), model.prefill(size))))
        loads.append(TypeLoad(f"text {size:g}", share / 2, round(size * TEXT_TOKENS), 0, 1))
        loads.append(TypeLoad(f"image {size:g}", share / 2, TEXT_TOKENS, round(size * IMAGE_TOKENS), 1))
    options = {"image": StageOption(("encoder",), "image"), "text": StageOption((LLM,), "text", TEXT_GPUS)}
    return system_plan(options, stages, {"image": 48, "text": 20}), (*loads,)
