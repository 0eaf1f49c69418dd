"""ModServe: decoupled image and text instances [M Figures 14, 15, 16 and 18]."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from statistics import fmean

from benchmarks.reproduction.markdown import prose, table
from benchmarks.reproduction.simulated.systems import (
    LLM,
    StageLoad,
    StageOption,
    StageStep,
    burst,
    first_tokens,
    p99,
    scaled_load,
    simulate,
    system_plan,
)
from cornserve_planner.plan_file.document import PlanFile

TEXT_GPUS = 4
"""GPUs of a monolith and of a text instance. An image instance has one."""

IMAGES = 4
"""The images of a request with several. They are encoded in parallel, and one after the other in a monolith."""

SLOWDOWNS = (1.0, 1.5, 2.0)
"""Seconds of an image on one GPU, relative to those on the four GPUs of a monolith."""

LOADS = (0.3, 0.6, 0.9)
"""Parts of the monoliths' rate."""

SLO_FACTOR = 5.0
"""The target of the P99 TTFT, relative to the TTFT of a request with one image alone."""

UTILIZATION = 0.7
"""The part of its time for which autoscaling uses a replica."""

BASE_RATE = 4.0
"""Requests/s with one image before and after a threefold burst."""

BURST_SLOWDOWN = 1.5

MONOLITH = {"monolith": StageOption((*(f"encoder{n}" for n in range(IMAGES)), LLM), "monolith", TEXT_GPUS)}

DECOUPLED = {
    **{f"image{n}": StageOption((f"encoder{n}",), "image") for n in range(IMAGES)},
    "text": StageOption((LLM,), "text", TEXT_GPUS),
}


@dataclass(frozen=True, slots=True)
class ServedModel:
    """
    Args:
        encoding: the printed part of encoding in the TTFT of a request with one image [M §3.1].
        image_prefill: whether image tokens are a part of the prompt, as in decoder-only models.
        throughput, ttft, saved: the printed gains: the factor of the throughput, and the parts of the mean TTFT, of
            its P99 and of the GPUs that are saved.
    """

    name: str
    encoding: float
    image_prefill: bool
    throughput: float
    mean: float
    p99: float
    saved: float

    def prefill(self, images: float) -> float:
        """Returns the seconds of the prefill, in units of the TTFT of a request with one image of mean size."""
        whole = 1 - self.encoding
        return whole * max(images, 0.25) if self.image_prefill else whole


MODELS = (
    ServedModel("Llama 3.2 11B", 0.79, False, 3.3, 0.27, 0.42, 0.413),
    ServedModel("InternVL 2.5 26B", 0.25, True, 5.5, 0.46, 0.47, 0.25),
)

Mix = dict[int, float]
"""The shares of requests by their number of images."""

PRODUCTION: Mix = {0: 0.5, 1: 0.25, IMAGES: 0.25}


def monoliths(model: ServedModel, mix: Mix, replicas: int) -> PlanFile:
    types = {
        f"{images} images": StageLoad(
            share,
            (
                StageStep(
                    "monolith",
                    (*(f"encoder{n}" for n in range(images)), LLM),
                    images * model.encoding + model.prefill(images),
                ),
            ),
        )
        for images, share in mix.items()
        if share
    }
    return system_plan(MONOLITH, types, {"monolith": replicas})


def decoupled(model: ServedModel, mix: Mix, texts: int, images: int, slowdown: float) -> PlanFile:
    """Returns the plan with these numbers of text and image instances. All image instances encode any image."""
    types = {
        f"{number} images": StageLoad(
            share,
            (
                *(StageStep(f"image{n}", (f"encoder{n}",), slowdown * model.encoding) for n in range(number)),
                StageStep("text", (LLM,), model.prefill(number)),
            ),
        )
        for number, share in mix.items()
        if share
    }
    others = {f"image{n}": 1 for n in range(1, IMAGES)}
    return system_plan(DECOUPLED, types, {"image0": images - len(others), **others, "text": texts})


def section() -> str:
    return prose("modserve").format(
        factor=SLO_FACTOR,
        latencies=table(
            ["model", "slowdown", *(f"load {load:g}: {name}" for load in LOADS for name in ("mean", "P99"))],
            [row for model in MODELS for row in _latency_rows(model)],
            text=1,
        ),
        throughputs=table(
            [
                "model",
                "printed",
                *(f"slowdown {slowdown:g}: {name}" for slowdown in SLOWDOWNS for name in ("bound", "simulated")),
            ],
            [_throughput_row(model) for model in MODELS],
        ),
        savings=table(
            ["model", "printed", "printed part of encoding", *(f"slowdown {slowdown:g}" for slowdown in SLOWDOWNS)],
            [_saving_row(model) for model in MODELS],
        ),
        rate=BASE_RATE,
        slowdown=BURST_SLOWDOWN,
        bursts=table(
            ["model", "GPU-hours of monoliths", "decoupled", "saved", "attainment of monoliths", "decoupled"],
            map(_burst_row, MODELS),
        ),
        ratios=table(
            ["model", "requests with images", *RATIO_NAMES],
            [row for model in MODELS for row in _ratio_rows(model)],
            text=1,
        ),
    )


def _latency_rows(model: ServedModel) -> Iterator[list[object]]:
    whole = monoliths(model, PRODUCTION, 32)
    before = {load: first_tokens(simulate(whole, load * whole.rate)) for load in LOADS}
    for slowdown in SLOWDOWNS:
        plan = decoupled(model, PRODUCTION, 20, 48, slowdown)
        row: list[object] = [model.name, f"{slowdown:g}"]
        for load, seconds in before.items():
            after = first_tokens(simulate(plan, load * whole.rate))
            row += [f"{fmean(after) / fmean(seconds) - 1:+.0%}", f"{p99(after) / p99(seconds) - 1:+.0%}"]
        yield row
    yield [f"{model.name}, printed", "", *["", ""] * (len(LOADS) - 1), f"{-model.mean:+.0%}", f"{-model.p99:+.0%}"]


def _throughput_row(model: ServedModel) -> list[object]:
    """Returns the most requests/s of decoupled instances within the target, relative to those of monoliths."""
    whole = monoliths(model, PRODUCTION, 32)
    rate = _goodput(whole, whole.rate)
    row: list[object] = [model.name, f"{model.throughput:g}×"]
    encoding = sum(images * share for images, share in PRODUCTION.items()) * model.encoding
    prefill = sum(share * model.prefill(images) for images, share in PRODUCTION.items())
    for slowdown in SLOWDOWNS:
        bound = min(48 / (slowdown * encoding), 20 / prefill)
        found = _goodput(decoupled(model, PRODUCTION, 20, 48, slowdown), bound)
        row += [f"{bound / whole.rate:.2f}×", f"{found / rate:.2f}×"]
    return row


def _goodput(plan: PlanFile, most: float) -> float:
    """Returns the highest rate, of multiples of 10 % of `most`, at which the P99 TTFT meets the target."""
    met = 0.0
    for step in range(1, 10):
        if p99(first_tokens(simulate(plan, 0.1 * step * most))) > SLO_FACTOR:
            break
        met = 0.1 * step
    return met * most


def _saving_row(model: ServedModel) -> list[object]:
    """Returns the GPUs that decoupled instances save, if all replicas follow the load of requests with one image.

    Monoliths need `TEXT_GPUS * (encoding + prefill)` GPUs per request/s, decoupled ones `slowdown * encoding +
    TEXT_GPUS * prefill`.
    """
    saved = [model.encoding * (1 - slowdown / TEXT_GPUS) for slowdown in SLOWDOWNS]
    return [model.name, f"{model.saved:.1%}", f"{model.encoding:.0%}", *(f"{each:.1%}" for each in saved)]


def _burst_row(model: ServedModel) -> list[object]:
    """Returns the GPU-hours of both systems with autoscaling in a burst, and the attainment of the target."""
    mix: Mix = {1: 1.0}
    base = BASE_RATE / UTILIZATION
    encoding, prefill = BURST_SLOWDOWN * model.encoding, model.prefill(1)
    whole, apart = (
        scaled_load(plan, autoscaled, burst(dict.fromkeys(plan.types, BASE_RATE), plan.types))
        for plan, autoscaled in (
            (monoliths(model, mix, ceil(base)), {"monolith": UTILIZATION}),
            (
                decoupled(model, mix, ceil(base * prefill), max(IMAGES, ceil(base * encoding)), BURST_SLOWDOWN),
                {"image0": UTILIZATION / encoding, "text": UTILIZATION / prefill},
            ),
        )
    )
    return [
        model.name,
        f"{whole.gpu_hours:.1f}",
        f"{apart.gpu_hours:.1f}",
        f"{1 - apart.gpu_hours / whole.gpu_hours:.1%}",
        *(f"{each.attainment(SLO_FACTOR):.1%}" for each in (whole, apart)),
    ]


RATIOS = ((4, 48), (6, 40), (8, 32), (10, 24), (12, 16))
RATIO_NAMES = tuple(f"{texts}:{images}" for texts, images in RATIOS)


def _ratio_rows(model: ServedModel) -> Iterator[list[object]]:
    """Yields the P99 TTFT of each ratio of instances on 64 GPUs, relative to that of 16 monoliths."""
    for share in (0.1, 0.5, 0.9):
        mix: Mix = {0: 1 - share, 1: share / 2, IMAGES: share / 2}
        whole = monoliths(model, mix, 16)
        rate = 0.8 * whole.rate
        before = p99(first_tokens(simulate(whole, rate)))
        row: list[object] = [model.name, f"{share:.0%}"]
        for texts, images in RATIOS:
            after = p99(first_tokens(simulate(decoupled(model, mix, texts, images, 1.5), rate)))
            row.append(f"{after / before:.2f}×" if after < 100 * before else "no limit")
        yield row
