"""Seeds of requests that do not state one."""

from __future__ import annotations

import secrets

SEED_BITS = 32
"""The size of random seeds."""


def seed_or_random(seed: int | None) -> int:
    """Returns the seed of a request, or a random one."""
    return secrets.randbits(SEED_BITS) if seed is None else seed
