"""InternVL3, "Less text": four encoders and six monoliths [C §7.3.2, §7.4]."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from benchmarks.reproduction.markdown import prose, table
from cornserve_planner.inputs.planning_inputs import build_inputs
from cornserve_planner.model.graph import DeploymentOption, RequestType
from cornserve_planner.model.problem import PlanningProblem, RequestPath
from cornserve_planner.model.shipped import shipped_model
from cornserve_planner.profiles.gpus import GpuCatalog
from cornserve_planner.profiles.profile import ModelProfile
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.capacity import capacity
from cornserve_planner.solve.optimization import max_rate
from cornserve_planner.workload.document import Workload

GPUS = 16
SHARES = (0.1, 0.2, 0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.62, 0.65, 0.7, 0.75, 0.8)
STEP = 0.001
VIA_ENCODERS = 0.675
"""The share of images that encoders process in [C §7.4]."""


@dataclass(frozen=True, slots=True)
class HybridDeployment:
    encoders: int
    monoliths: int

    @property
    def gpus(self) -> int:
        return self.encoders + 2 * self.monoliths

    def rate(self, encoder: float, language: float) -> float:
        """Returns the rate in units of a monolith's rate, in closed form."""
        helped = self.monoliths + self.encoders * encoder * (1 - language)
        return min(helped, self.monoliths / language)


ALL = [HybridDeployment(encoders, (GPUS - encoders) // 2) for encoders in range(GPUS - 1)]
PRINTED = HybridDeployment(4, 6)


def section() -> str:
    rows = [_row(language) for language in SHARES]
    lowest, highest, gain = _with_share(VIA_ENCODERS)
    images = images_only()
    shipped = max_rate(images, Budget(gpus=GPUS))
    assert shipped.replicas == {"encoder": 4, "monolith": 6}
    return prose("hybrid").format(
        ranges=table(["φ", "e from", "to", "gain from", "to", "through encoders"], rows),
        most=max(_gains(language)[1] for language in SHARES if _encoder_range(language)),
        low=lowest,
        high=highest,
        gain=gain,
        shipped=shipped.rate,
        monoliths=capacity(images, {"monolith": 8})[0],
        through=sum(entry.rate for entry in shipped.rates if "encoder" in entry.path) / shipped.rate,
    )


def images_only() -> PlanningProblem:
    """Returns the problem of the shipped profile, where each request has an image and none has a video."""
    model = shipped_model("internvl3-38b")
    image = RequestType("image", frozenset({"image_encoder", "prefill", "decode"}))
    workload = Workload({image: 1.0})
    return build_inputs(model, workload, ModelProfile.shipped(model.name), GpuCatalog.shipped()).problem


def best(encoder: float, language: float) -> HybridDeployment:
    """Returns the deployment with the highest rate. Ties: fewest GPUs, then fewest encoders."""
    return max(
        ALL, key=lambda candidate: (round(candidate.rate(encoder, language), 9), -candidate.gpus, -candidate.encoders)
    )


def solved(encoder: float, language: float) -> dict[str, int]:
    """Returns the solver's replicas."""
    return max_rate(problem(encoder, language), Budget(gpus=GPUS)).replicas


def problem(encoder: float, language: float) -> PlanningProblem:
    return PlanningProblem(
        (DeploymentOption("encoder", ("encoder",)), DeploymentOption("monolith", ("encoder", "llm"), gpus=2)),
        {"image": 1.0},
        (
            RequestPath("image", "monolith", {"monolith": 1.0}),
            RequestPath("image", "encoder → monolith", {"encoder": 1 / encoder, "monolith": language}),
        ),
    )


@cache
def _encoder_range(language: float) -> tuple[float, float] | None:
    """Returns the encoder rates for which 4 + 6 is best. From 2/φ on, 3 encoders are enough for 6 monoliths."""
    most = math.ceil(2 / language / STEP)
    fitting = [index * STEP for index in range(1, most + 1) if best(index * STEP, language) == PRINTED]
    return (fitting[0], fitting[-1]) if fitting else None


def _row(language: float) -> list[object]:
    found = _encoder_range(language)
    if found is None:
        return [f"{language:g}", *["–"] * 5]
    low, high = found
    _check(language, low, high)
    gains = _gains(language)
    through = [min(1.0, PRINTED.encoders * candidate / PRINTED.rate(candidate, language)) for candidate in found]
    shares = f"{through[0]:.0%} to {through[1]:.0%}"
    return [f"{language:g}", f"{low:.2f}", f"{high:.2f}", *(f"{gain:+.1%}" for gain in gains), shares]


def _gains(language: float) -> tuple[float, float]:
    low, high = _encoder_range(language) or (1.0, 1.0)
    return PRINTED.rate(low, language) / 8 - 1, PRINTED.rate(high, language) / 8 - 1


def _check(language: float, low: float, high: float) -> None:
    """Raises `AssertionError` if the solver contradicts the closed form."""
    for encoder, is_best in (((low + high) / 2, True), (low - 5 * STEP, False), (high + 5 * STEP, False)):
        served = capacity(problem(encoder, language), {"encoder": 4, "monolith": 6})[0]
        most = max_rate(problem(encoder, language), Budget(gpus=GPUS))
        replicas = {"encoder": 4, "monolith": 6}
        assert abs(served - PRINTED.rate(encoder, language)) < 1e-6
        assert (most.replicas == replicas) == is_best, (language, encoder, most.replicas)


def _with_share(share: float) -> tuple[float, float, float]:
    """Returns the minimum and maximum φ for which 4 + 6 is best, and the highest gain.

    The encoders are fully used and process `share` of the images.
    """
    found = []
    for index in range(1, 10_000):
        language = index / 10_000
        rate = PRINTED.monoliths / (1 - share * (1 - language))
        encoder = share * rate / PRINTED.encoders
        if best(encoder, language) == PRINTED:
            found.append((language, rate / 8 - 1))
    return found[0][0], found[-1][0], max(gain for _, gain in found)
