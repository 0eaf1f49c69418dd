"""Integer weights of the paths of a model. Kubernetes' APIs have no fractions."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import gcd, isfinite, lcm

MAX_WEIGHT = 1_000_000


def weights_of(shares: Mapping[str, float]) -> dict[str, int]:
    """Returns integer weights with the same proportions: `{"a": 0.25, "b": 0.75}` becomes `{"a": 1, "b": 3}`.

    Integers up to 1,000,000 stay as they are. Shares with too many digits are rounded to millionths of the largest one.
    Raises `ValueError` if a share is not a finite number of at least 0.
    """
    if not all(isfinite(share) and share >= 0 for share in shares.values()):
        raise ValueError(f"shares: {dict(shares)}: give finite numbers of at least 0")
    if all(float(share).is_integer() and share <= MAX_WEIGHT for share in shares.values()):
        return {path: int(share) for path, share in shares.items()}
    exact = {path: Fraction(str(share)) for path, share in shares.items()}
    unit = Fraction(
        gcd(*(share.numerator for share in exact.values())), lcm(*(share.denominator for share in exact.values()))
    )
    largest = max(exact.values())
    if largest / unit <= MAX_WEIGHT:
        return {path: int(share / unit) for path, share in exact.items()}
    return {path: max(round(share / largest * MAX_WEIGHT), int(share > 0)) for path, share in exact.items()}
