"""The two forms of the chaos tests: the short form runs in `make test`, the full form (CHAOS_FULL=1) in `make chaos`.

A test with the marker `chaos` belongs to both. All tests of tests/chaos have this marker; other tests that have a full
form are marked with `@pytest.mark.chaos`. The marker's arguments, if any, are those of the test's `FaultResult`.
"""

from __future__ import annotations

import os
import random
from typing import TypeVar

T = TypeVar("T")

FULL = os.environ.get("CHAOS_FULL", "0") == "1"

FULL_TIMEOUT_SECONDS = 1200
"""The time limit of a test in its full form."""

DEFAULT_SEED = 1
"""The seed of the short form."""


def by_form(*, short: T, full: T) -> T:
    """Returns the argument for the form that runs."""
    return full if FULL else short


def seed() -> int:
    """Returns the seed that all chaos tests of this run share.

    The full form draws a new seed for each run. CHAOS_SEED repeats a run. It is also how xdist workers, which inherit
    the environment, get the same seed.
    """
    if "CHAOS_SEED" not in os.environ:
        os.environ["CHAOS_SEED"] = str(random.SystemRandom().randrange(1 << 16) if FULL else DEFAULT_SEED)
    return int(os.environ["CHAOS_SEED"])
