"""ServeGen's client profiles: each client has rates, burstiness and request sizes that change over a day.

A workload is the sum of its clients. Changes of the aggregate follow from the activity of the clients [ServeGen §4].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, model_validator

from cornserve_planner.files.document import Document, DocumentPart
from cornserve_planner.workload.interarrival import Family, InterarrivalGaps, Rng
from cornserve_planner.workload.rate_curve import RateCurve

_FAMILIES: dict[str, Family] = {"g": "gamma", "w": "weibull", "-": "poisson"}

NonNegative = Annotated[float, Field(ge=0)]


class ValueDistribution(DocumentPart):
    """A distribution over a few values."""

    values: tuple[NonNegative, ...] = Field(min_length=1)
    weights: tuple[NonNegative, ...]

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        if len(self.values) != len(self.weights):
            raise ValueError(
                f"has {len(self.values)} values and {len(self.weights)} weights: give one weight for each value"
            )
        if not sum(self.weights):
            raise ValueError(f"weights {list(self.weights)} are all 0: give at least one above 0")
        return self

    @property
    def mean(self) -> float:
        return float(np.average(self.values, weights=self.weights))

    def draw(self, count: int, rng: Rng) -> Any:
        """Draws `count` values as an array of int64."""
        chances = np.asarray(self.weights)
        return np.rint(rng.choice(np.asarray(self.values), count, p=chances / chances.sum())).astype(np.int64)


class SizeDistributions(DocumentPart):
    """Sizes of one client's requests in one part of the day. The fields are independent, as in ServeGen."""

    text: ValueDistribution
    images: ValueDistribution
    """Images per request."""
    image_tokens: ValueDistribution
    """Tokens per image."""
    output: ValueDistribution


class ClientProfile(DocumentPart):
    name: str
    rates: tuple[NonNegative, ...]
    cvs: tuple[NonNegative, ...]
    families: Annotated[str, Field(pattern="^[gw-]*$")]
    windows: tuple[SizeDistributions, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if not len(self.rates) == len(self.cvs) == len(self.families) > 0:
            raise ValueError(
                f"has {len(self.rates)} rates, {len(self.cvs)} cvs and {len(self.families)} families; "
                "the numbers must be equal"
            )
        return self

    def gaps(self, step: int) -> InterarrivalGaps:
        index = step % len(self.rates)
        family = _FAMILIES[self.families[index]]
        return InterarrivalGaps() if family == "poisson" else InterarrivalGaps(family, self.cvs[index] or 1.0)


class ClientPool(Document):
    """`format: cornserve-planner/clients`."""

    kind = "clients"

    source: str
    licence: str
    step_seconds: Annotated[float, Field(gt=0)]
    window_seconds: Annotated[float, Field(gt=0)]
    clients: tuple[ClientProfile, ...] = Field(min_length=1)

    @classmethod
    def servegen_images(cls) -> Self:
        """Returns the 35 clients of ServeGen's multimodal image data over a day, with source and license."""
        path = files("cornserve_planner.workload") / "data/servegen-mm-image.json"
        return cls.parse(path.read_text(), path.name)

    @cached_property
    def rate(self) -> RateCurve:
        """The recorded rate of all clients together."""
        steps = range(max(len(client.rates) for client in self.clients))
        return RateCurve(
            self.step_seconds,
            tuple(sum(client.rates[step % len(client.rates)] for client in self.clients) for step in steps),
        )


@dataclass(frozen=True, slots=True)
class MeanSizes:
    """Mean sizes per request, over all requests of a pool in a day at the recorded rates."""

    text: float
    images: float
    image_tokens: float
    """Tokens per image."""
    output: float


def mean_sizes(pool: ClientPool) -> MeanSizes:
    weights, found = [], []
    for client in pool.clients:
        for index, rate in enumerate(client.rates):
            sizes = client.windows[window_index(pool, client, index * pool.step_seconds)]
            weights.append(rate)
            found.append((sizes.text.mean, sizes.images.mean, sizes.image_tokens.mean, sizes.output.mean))
    text, images, _, output = (float(np.average(column, weights=weights)) for column in zip(*found, strict=True))
    of_images = [weight * row[1] for weight, row in zip(weights, found, strict=True)]
    return MeanSizes(text, images, float(np.average([row[2] for row in found], weights=of_images)), output)


def window_index(pool: ClientPool, client: ClientProfile, second: float) -> int:
    return int(second // pool.window_seconds) % len(client.windows)
