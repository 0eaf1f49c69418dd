"""Autoscaled monoliths and stages in an hour of noise and in a threefold burst of images, under one rule [M §4.2]."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from math import ceil
from typing import NamedTuple

from benchmarks.reproduction.markdown import prose, table
from benchmarks.reproduction.simulated.modserve import (
    BURST_SLOWDOWN,
    IMAGES,
    MODELS,
    SLO_FACTOR,
    Mix,
    decoupled,
    monoliths,
)
from benchmarks.reproduction.simulated.systems import ScaledLoad, burst, scaled_load
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.simulation.simulated_request import SimulatedRequest

MIX: Mix = {0: 0.5, 1: 0.5}

RATES = {"0 images": 4.0, "1 images": 4.0}
"""Requests/s before and after the burst, in which those with an image triple."""

UTILIZATIONS = (0.4, 0.5, 0.6, 0.7)
"""The parts of its time for which autoscaling uses a replica."""

TIMES: Mapping[str, Mapping[str, float]] = {
    "60 s": {},
    "20 s": {"window_seconds": 20.0, "dwell_seconds": 10.0},
}
"""The times of the autoscaling, by the window over which the load is averaged."""

ATTAINMENT = 0.99

NOISE_SECONDS = 3600.0

WARM_UP_SECONDS = 1200.0
"""The time after which replicas that the load does not need have stopped."""


class System(NamedTuple):
    """A system with the replicas that the usual load needs, and the requests/s that one of each option takes."""

    plan: PlanFile
    autoscaled: Mapping[str, float]


class Swept(NamedTuple):
    """The figures of both systems at a utilization of their replicas: monoliths, and stages apart."""

    times: str
    utilization: float
    bursts: Sequence[ScaledLoad]
    noise: Sequence[int]
    """The changes of replicas in an hour without a burst."""


def systems(utilization: float) -> tuple[System, System]:
    """Returns monoliths and decoupled instances of Llama 3.2 11B.

    The monoliths take the mean time of the mix in the burst, so that the rule does not underestimate images.
    """
    model, rate = MODELS[0], sum(RATES.values())
    in_burst = RATES | {"1 images": 3 * RATES["1 images"]}
    seconds = {"0 images": model.prefill(0), "1 images": model.encoding + model.prefill(1)}
    whole = sum(in_burst[kind] * each for kind, each in seconds.items()) / sum(in_burst.values())
    encoding, prefill = BURST_SLOWDOWN * model.encoding, model.prefill(1)
    images = max(IMAGES, ceil(RATES["1 images"] * encoding / utilization))
    return (
        System(monoliths(model, MIX, ceil(rate * whole / utilization)), {"monolith": utilization / whole}),
        System(
            decoupled(model, MIX, ceil(rate * prefill / utilization), images, BURST_SLOWDOWN),
            {"image0": utilization / encoding, "text": utilization / prefill},
        ),
    )


def noise() -> Iterator[SimulatedRequest]:
    """Yields random requests at the usual rates, for the time in which replicas stop, and an hour."""
    rng, now, number = random.Random(2), 0.0, 0
    while now < WARM_UP_SECONDS + NOISE_SECONDS:
        now += rng.expovariate(sum(RATES.values()))
        number += 1
        kind = rng.choices([*RATES], [*RATES.values()])[0]
        yield SimulatedRequest(f"request {number}", now, kind, None, None, None)


def sweep(times: str, utilization: float) -> Swept:
    found = systems(utilization)
    bursts, quiet = (
        [scaled_load(each.plan, each.autoscaled, requests, SLO_FACTOR, **TIMES[times]) for each in found]
        for requests in ([*burst(RATES, {"1 images"})], [*noise()])
    )
    return Swept(times, utilization, bursts, [sum(at > WARM_UP_SECONDS for at in each.changes) for each in quiet])


def best(swept: Sequence[Swept], system: int) -> Swept | None:
    """Returns the settings with the fewest GPU-hours with which a system meets the target and ignores noise."""
    met = [
        each for each in swept if each.bursts[system].attainment(SLO_FACTOR) >= ATTAINMENT and not each.noise[system]
    ]
    return min(met, key=lambda each: each.bursts[system].gpu_hours, default=None)


def section() -> str:
    swept = [sweep(times, utilization) for times in TIMES for utilization in UTILIZATIONS]
    chosen = [best(swept, system) for system in (0, 1)]
    rows = [
        [
            each.times,
            f"{each.utilization:.0%}",
            *chain.from_iterable(
                (f"{load.gpu_hours:.1f}", f"{load.attainment(SLO_FACTOR):.2%}", changes)
                for load, changes in zip(each.bursts, each.noise, strict=True)
            ),
        ]
        for each in swept
    ]
    columns = [f"{system}: {name}" for system in ("monoliths", "apart") for name in ("GPU-hours", "met", "changes")]
    assert chosen[0] is not None
    assert chosen[1] is not None
    hours = [each.bursts[system].gpu_hours for system, each in enumerate(chosen) if each is not None]
    return prose("bursts").format(
        slowdown=BURST_SLOWDOWN,
        factor=SLO_FACTOR,
        rate=RATES["1 images"],
        burst=3 * RATES["1 images"],
        sweep=table(["window", "utilization", *columns], rows, text=1),
        whole=f"{hours[0]:.1f}",
        apart=f"{hours[1]:.1f}",
        saved=f"{1 - hours[1] / hours[0]:.0%}",
    )
