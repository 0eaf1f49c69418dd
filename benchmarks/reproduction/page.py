"""Combines the sections of the pages."""

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
from benchmarks.reproduction.simulated import bursts, modserve, queries, shares, sizes, stealing, triinfer

SECTIONS = (omni, image, hybrid, static_routing, best_strategy, growth, mixtures, transfer, cost, predictor)

SIMULATED = (shares, queries, modserve, sizes, bursts, triinfer, stealing)


def page() -> str:
    return "\n".join([prose("head"), *(module.section() for module in SECTIONS)])


def simulated_page() -> str:
    return "\n".join([prose("simulated_head"), *(module.section() for module in SIMULATED)])
