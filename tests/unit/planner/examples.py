"""The examples of a test in each tier."""

from __future__ import annotations

from typing import Any

import pytest


def examples(fast: int, slow: int) -> pytest.MarkDecorator:
    """Runs a test with a number of examples in each tier."""
    return pytest.mark.parametrize("examples", [fast, pytest.param(slow, marks=pytest.mark.slow)])


def seeds(fast: int, count: int) -> list[Any]:
    """Returns seeds as parameters of a test, which runs with the first `fast` seeds in the fast tier."""
    return [pytest.param(seed, marks=() if seed < fast else pytest.mark.slow) for seed in range(count)]
