"""Combines the sections of the page."""

from __future__ import annotations

from benchmarks.reproduction import (
    best_strategy,
    cost,
    growth,
    hybrid,
    image,
    mixtures,
    omni,
    predictor,
    static_routing,
    transfer,
)
from benchmarks.reproduction.markdown import prose

SECTIONS = (omni, image, hybrid, static_routing, best_strategy, growth, mixtures, transfer, cost, predictor)


def page() -> str:
    return "\n".join([prose("head"), *(module.section() for module in SECTIONS)])
