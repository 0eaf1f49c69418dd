"""The choice of a cell and a path for a request, by its type [C §5.3]."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from cornserve_policies.replayable_random import ReplayableRandom

PATH_DRAWS: Final = 2
"""The random numbers that the choice of a cell and a path draws."""


class RoutableCell(NamedTuple):
    """A cell, as far as the choice needs it."""

    name: str
    rate: float
    """Requests per second for which the cell is planned."""
    probabilities: Mapping[str, Sequence[float]]
    """The probability of each path, by request type. A type that the cell cannot serve is absent."""


class CellPath(NamedTuple):
    """A path in a cell, for requests of a type."""

    request_type: str
    cell: str
    """The name of the cell."""
    path: int
    """The index of the path."""


class PathTable:
    """Chooses cells in proportion to their rates, then paths by the cell's probabilities for the type.

    Args:
        types: the components of each request type.
        default_type: the type of requests with other components.

    Raises:
        ValueError: the default type is unknown, or no cell serves it.
    """

    def __init__(self, types: Mapping[str, Collection[str]], default_type: str, cells: Sequence[RoutableCell]) -> None:
        self.types = types
        self.default_type = default_type
        self.cells = cells
        if default_type not in types:
            raise ValueError(f"the default type {default_type!r} is unknown: use one of {', '.join(sorted(types))}")
        by_type = {name: [cell for cell in cells if name in cell.probabilities] for name in types}
        if not by_type[default_type]:
            raise ValueError(f"no cell serves the default type {default_type!r}: add it to a cell's probabilities")
        self._cells = {name: (serving, [cell.rate for cell in serving]) for name, serving in by_type.items() if serving}
        self._names = {frozenset(types[name]): name for name in self._cells}

    def type_of(self, components: Collection[str]) -> str | None:
        """Returns the type with exactly these components, or None if no cell serves such a type."""
        return self._names.get(frozenset(components))

    def choose(self, request_type: str | None, random: ReplayableRandom) -> CellPath:
        """Returns a cell that serves the type, and a path. Requests without type get the default type.

        It draws `PATH_DRAWS` random numbers.
        """
        name = self.default_type if request_type is None else request_type
        cells, rates = self._cells[name]
        cell = cells[random.choose(rates)]
        return CellPath(name, cell.name, random.choose(cell.probabilities[name]))

    def shares(self) -> Iterator[tuple[CellPath, float]]:
        """Yields the share of a type's requests that each path is planned to receive. Those of a type sum to 1."""
        for name, (cells, rates) in self._cells.items():
            for cell, rate in zip(cells, rates, strict=True):
                probabilities = cell.probabilities[name]
                for path, probability in enumerate(probabilities):
                    if probability > 0:
                        share = rate / sum(rates) * probability / sum(probabilities)
                        yield CellPath(name, cell.name, path), share
