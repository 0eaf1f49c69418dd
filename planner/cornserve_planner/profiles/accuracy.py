"""How far off the roofline is: its predictions beside what has been published.

The efficiencies that it assumes are not fitted to these figures. `calibrated` shows what fitting would give: each
figure predicted with the efficiency that the *others* of its kind imply.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from cornserve_planner.profiles.architecture import Architecture, Architectures, DiffusionTransformerShape
from cornserve_planner.profiles.gpus import GpuCatalog
from cornserve_planner.profiles.profile import ModelProfile, Throughput
from cornserve_planner.profiles.roofline import GpuMachine, decode_seconds, denoise, encode, prefill
from cornserve_planner.traffic import CORNSERVE_TABLE_1

Kind = Literal["encoder", "language model", "diffusion", "diffusion on several GPUs"]


@dataclass(frozen=True, slots=True)
class PredictionComparison:
    """
    Args:
        published, predicted: seconds of a replica's time for one request.
        utilisation: fraction of the peak arithmetic that the published figure implies. Above 1 it cannot have been for
            the requests that it is said to be for.
    """

    kind: Kind
    model: str
    what: str
    gpus: str
    published: float
    predicted: float
    utilisation: float
    source: str

    @property
    def ratio(self) -> float:
        """Predicted over published seconds: below 1, the prediction is too fast."""
        return self.predicted / self.published

    @property
    def error(self) -> float:
        """Of the predicted throughput, as a fraction of the published: 1 is twice as much."""
        return 1 / self.ratio - 1


@dataclass(frozen=True, slots=True)
class PredictorAccuracy:
    """Of a kind of components.

    Args:
        typical: the factor by which predictions are off in the middle: the geometric mean of max(ratio, 1 / ratio).
        worst: the same of the worst.
    """

    kind: Kind
    figures: int
    typical: float
    worst: float


def comparisons() -> tuple[PredictionComparison, ...]:
    """With every published figure for whose requests and model enough is known to predict it."""
    return (*_cornserve(), *_streamwise())


def accuracy(found: tuple[PredictionComparison, ...]) -> tuple[PredictorAccuracy, ...]:
    kinds = dict.fromkeys(comparison.kind for comparison in found)
    return tuple(_accuracy(kind, [comparison for comparison in found if comparison.kind == kind]) for kind in kinds)


def calibrated(found: tuple[PredictionComparison, ...]) -> tuple[PredictionComparison, ...]:
    """The same with every prediction scaled by the geometric mean of the other figures' errors (leave one out)."""
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
    """[C Table 1]. The audio generator is left out: how long its speech is, is not said."""
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
    if component in CORNSERVE_TABLE_1.media:
        tower = model.encoder("audio_encoder" if component == "audio_encoder" else "vision_encoder")
        kind, work = "encoder", encode(tower, CORNSERVE_TABLE_1.media[component])
        seconds = machine.seconds(work)
    elif component == "image_generator":
        dit = model.diffusion()
        kind, work = "diffusion", denoise(dit, dit.positions(512, 512), steps=20)
        seconds = machine.seconds(work)
    else:
        decoder = model.decoder()
        prompt = CORNSERVE_TABLE_1.text + _media_tokens(throughput.requests)
        kind, work = "language model", prefill(decoder, prompt)
        seconds = machine.seconds(work)
        if name != "qwen-image":  # whose language model only embeds the prompt
            seconds += decode_seconds(decoder, prompt, CORNSERVE_TABLE_1.output, machine)
    return compare(kind=kind, predicted=seconds, utilisation=machine.utilisation(work, published))


def _media_tokens(requests: str) -> int:
    """From a profile's words: "600 image tokens, 10,000 video tokens, …"."""
    found = re.findall(r"([\d,]+) (?:image|video|audio) tokens", requests)
    return sum(int(number.replace(",", "")) for number in found)


def _streamwise() -> Iterator[PredictionComparison]:
    """One request at a time, by the diffusion transformer alone."""
    gpus, models = GpuCatalog.shipped(), Architectures.shipped()
    for name in ("flux.1-dev", "wan2.1-i2v-14b"):
        dit = models[name].diffusion()
        for entry in ModelProfile.shipped(name).for_option("dit"):
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
                    utilisation=machine.utilisation(work, curve.seconds[0]),
                    source=curve.source,
                )


def _positions_and_steps(requests: str, dit: DiffusionTransformerShape) -> tuple[int, int]:
    """From a profile's words: "720 × 544, 81 frames, 10 steps"."""
    width, height, *rest = (int(number) for number in re.findall(r"\d+", requests))
    frames, steps = rest if len(rest) == 2 else (1, rest[0])
    return dit.positions(width, height, frames), steps
