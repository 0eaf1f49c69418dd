"""Paths that no plan needs."""

from __future__ import annotations

from collections.abc import Iterable

from cornserve_planner.model.problem import RequestPath


def undominated(paths: Iterable[RequestPath]) -> list[RequestPath]:
    """Removes paths that are dominated: another path of the same type uses no option longer."""
    paths = list(paths)
    kept: list[int] = []
    for index, path in sorted(enumerate(paths), key=lambda item: sum(item[1].seconds.values())):
        if not any(_at_most(paths[better], path) for better in kept if paths[better].type == path.type):
            kept.append(index)
    return [paths[index] for index in sorted(kept)]


def _at_most(better: RequestPath, path: RequestPath) -> bool:
    return all(seconds <= path.seconds.get(name, 0.0) for name, seconds in better.seconds.items())
