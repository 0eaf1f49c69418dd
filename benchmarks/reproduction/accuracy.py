"""Compares the predictions of the roofline model with published values.

The assumed efficiencies are not fitted to these values. `calibrated` shows the effect of fitting: it predicts each
value with the efficiency that the *other* values of its kind imply.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Literal

from cornserve_planner.profiles.architecture import Architecture, Architectures, DiffusionTransformerShape
from cornserve_planner.profiles.gpus import GpuCatalog
from cornserve_planner.profiles.profile import ModelProfile, Throughput
from cornserve_planner.profiles.roofline import GpuMachine, decode_seconds, denoise, encode, prefill

TEXT_TOKENS, OUTPUT_TOKENS = 1000, 100
MEDIA_TOKENS = {"image_encoder": 600, "video_encoder": 10_000, "audio_encoder": 200}
"""Token counts of [C Table 1, footnote 2]."""

LATENCIES: Final = Path(__file__).parent / "latencies"
"""Profiles of StreamWise's measurements, which `scripts/planner_data/streamwise.py` writes."""

Kind = Literal["encoder", "language model", "diffusion", "diffusion on several GPUs"]


@dataclass(frozen=True, slots=True)
class PredictionComparison:
    """
    Args:
        published, predicted: seconds of a replica's time for one request.
        utilization: fraction of the peak FLOP/s that the published value implies. Above 1, the value cannot belong to
            the stated requests.
    """

    kind: Kind
    model: str
    what: str
    gpus: str
    published: float
    predicted: float
    utilization: float
    source: str

    @property
    def ratio(self) -> float:
        """Predicted divided by published seconds. Below 1, the prediction is too fast."""
        return self.predicted / self.published

    @property
    def error(self) -> float:
        """Relative error of the predicted throughput: 1 means twice the published throughput."""
        return 1 / self.ratio - 1


@dataclass(frozen=True, slots=True)
class PredictorAccuracy:
    """Accuracy for one kind of component.

    Args:
        typical: geometric mean of max(ratio, 1 / ratio).
        worst: maximum of max(ratio, 1 / ratio).
    """

    kind: Kind
    figures: int
    typical: float
    worst: float


def comparisons() -> tuple[PredictionComparison, ...]:
    """Returns a comparison for every published value whose requests and model are known in enough detail."""
    return (*_cornserve(), *_streamwise())


def accuracy(found: tuple[PredictionComparison, ...]) -> tuple[PredictorAccuracy, ...]:
    kinds = dict.fromkeys(comparison.kind for comparison in found)
    return tuple(_accuracy(kind, [comparison for comparison in found if comparison.kind == kind]) for kind in kinds)


def calibrated(found: tuple[PredictionComparison, ...]) -> tuple[PredictionComparison, ...]:
    """Scales every prediction by the geometric mean of the other values' ratios (leave one out)."""
    scaled = []
    for left_out in found:
        others = [
            math.log(comparison.ratio)
            for comparison in found
            if comparison.kind == left_out.kind and comparison is not left_out
        ]
        factor = math.exp(math.fsum(others) / len(others)) if others else 1.0
        scaled.append(replace(left_out, predicted=left_out.predicted / factor))
    return tuple(scaled)


def _accuracy(kind: Kind, found: list[PredictionComparison]) -> PredictorAccuracy:
    off = [abs(math.log(comparison.ratio)) for comparison in found]
    return PredictorAccuracy(kind, len(found), math.exp(math.fsum(off) / len(off)), math.exp(max(off)))


def _cornserve() -> Iterator[PredictionComparison]:
    """Yields [C Table 1] without the audio generator, because the duration of its speech is not published."""
    models = Architectures.shipped()
    machine = GpuMachine(GpuCatalog.shipped()["A100-80GB"])
    for name in ("qwen2.5-omni-7b", "qwen2.5-vl-32b", "internvl3-38b", "qwen-image"):
        for entry in ModelProfile.shipped(name).options:
            for throughput in entry.throughput:
                if throughput.rate.tag == "published" and entry.option != "audio_generator":
                    component = throughput.mix[0].components[0] if throughput.mix else entry.option
                    yield _table_1_comparison(name, models[name], component, throughput, machine)


def _table_1_comparison(
    name: str, model: Architecture, component: str, throughput: Throughput, machine: GpuMachine
) -> PredictionComparison:
    published = 1 / throughput.rate.value
    compare = partial(
        PredictionComparison,
        model=name,
        what=f"{component.replace('_', ' ')}: {throughput.requests}",
        gpus="1 A100-80GB",
        published=published,
        source=throughput.rate.source,
    )
    kind: Kind
    if component in MEDIA_TOKENS:
        tower = model.encoder("audio_encoder" if component == "audio_encoder" else "vision_encoder")
        kind, work = "encoder", encode(tower, MEDIA_TOKENS[component])
        seconds = machine.seconds(work)
    elif component == "image_generator":
        dit = model.diffusion()
        kind, work = "diffusion", denoise(dit, dit.positions(512, 512), steps=20)
        seconds = machine.seconds(work)
    else:
        decoder = model.decoder()
        prompt = TEXT_TOKENS + _media_tokens(throughput.requests)
        kind, work = "language model", prefill(decoder, prompt)
        seconds = machine.seconds(work)
        if name != "qwen-image":  # the language model only embeds the prompt
            seconds += decode_seconds(decoder, prompt, OUTPUT_TOKENS, machine)
    return compare(kind=kind, predicted=seconds, utilization=machine.utilization(work, published))


def _media_tokens(requests: str) -> int:
    """Parses the text of a profile: "600 image tokens, 10,000 video tokens, …"."""
    found = re.findall(r"([\d,]+) (?:image|video|audio) tokens", requests)
    return sum(int(number.replace(",", "")) for number in found)


def _streamwise() -> Iterator[PredictionComparison]:
    """Yields comparisons of the diffusion transformer alone, with one request at a time."""
    gpus, models = GpuCatalog.shipped(), Architectures.shipped()
    for name in ("flux.1-dev", "wan2.1-i2v-14b"):
        dit = models[name].diffusion()
        for entry in ModelProfile.read(LATENCIES / f"{name}.json").for_option("dit"):
            machine = GpuMachine(gpus[entry.gpu], entry.gpus)
            for curve in entry.latency:
                work = denoise(dit, *_positions_and_steps(curve.requests, dit))
                yield PredictionComparison(
                    kind="diffusion" if entry.gpus == 1 else "diffusion on several GPUs",
                    model=name,
                    what=curve.requests,
                    gpus=f"{entry.gpus} {entry.gpu}",
                    published=curve.seconds[0],
                    predicted=machine.seconds(work),
                    utilization=machine.utilization(work, curve.seconds[0]),
                    source=curve.source,
                )


def _positions_and_steps(requests: str, dit: DiffusionTransformerShape) -> tuple[int, int]:
    """Parses the text of a profile: "720 × 544, 81 frames, 10 steps"."""
    width, height, *rest = (int(number) for number in re.findall(r"\d+", requests))
    frames, steps = rest if len(rest) == 2 else (1, rest[0])
    return dit.positions(width, height, frames), steps
