"""The ConfigMap that keeps the results of measurements: its size is limited."""

from __future__ import annotations

import json
from collections.abc import Mapping

MAX_KEPT_BYTES = 900_000
"""The size of all results. Kubernetes limits an object to 1 MiB."""


def surplus_results(kept: Mapping[str, str], added: Mapping[str, str]) -> list[str]:
    """Returns the names of the oldest results that have to be removed, so that others can be added."""
    sizes = {name: len(name) + len(text.encode()) for name, text in {**kept, **added}.items()}
    surplus: list[str] = []
    for name in sorted(kept.keys() - added.keys(), key=lambda name: (_date(kept[name]), name)):
        if sum(sizes.values()) <= MAX_KEPT_BYTES:
            break
        surplus.append(name)
        del sizes[name]
    return surplus


def _date(results: str) -> str:
    """Returns the time of the last measurement. Results without one are the oldest."""
    try:
        return max((str(measured["date"]) for measured in json.loads(results)["measurements"]), default="")
    except (ValueError, LookupError, TypeError):
        return ""
