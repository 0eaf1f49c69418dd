"""Combines the sections of the page."""

from __future__ import annotations

from benchmarks.reproduction import cost, growth, hybrid, image, mixtures, omni, predictor, transfer
from benchmarks.reproduction.markdown import prose

SECTIONS = (omni, image, hybrid, growth, mixtures, transfer, cost, predictor)


def page() -> str:
    return "\n".join([prose("head"), *(module.section() for module in SECTIONS)])
