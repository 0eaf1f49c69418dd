"""The paths of requests with images: 3:5:2 [C Figure 5]."""

from __future__ import annotations

from collections import Counter

from benchmarks.reproduction.markdown import prose, table
from cornserve_policies.path_table import PathTable, RoutableCell
from cornserve_policies.replayable_random import ReplayableRandom

REQUESTS = 20_000

PATHS = {"monolith": 0.3, "encoder → monolith": 0.7 * 5 / 7, "encoder → language model": 0.7 * 2 / 7}

LIMIT = 9.21
"""The 99 % quantile of the chi-square distribution with two degrees of freedom."""


def section() -> str:
    cell = RoutableCell("cell", 1.0, {"image": (*PATHS.values(),)})
    paths = PathTable({"image": frozenset({"encoder", "llm"})}, "image", [cell])
    counts = Counter(paths.choose("image", ReplayableRandom(f"request {n}")).path for n in range(REQUESTS))
    distance = sum(
        (counts[path] - REQUESTS * share) ** 2 / (REQUESTS * share) for path, share in enumerate(PATHS.values())
    )
    assert distance < LIMIT
    rows = [
        (name, f"{share:.3f}", f"{counts[path] / REQUESTS:.4f}") for path, (name, share) in enumerate(PATHS.items())
    ]
    return prose("shares").format(
        requests=REQUESTS, paths=table(["path", "printed", "chosen"], rows), distance=distance, limit=LIMIT
    )
