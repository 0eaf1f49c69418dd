"""Rows of the results of `make chaos`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from tests.chaos.killer import Killer
from tests.chaos.load import LoadClients, Outcome
from tests.chaos.report import FaultResult, p99_ms


def killed(load: LoadClients, killer: Killer, fault: str, *, leaks: int) -> FaultResult:
    """Returns the row of a test that kills and stops processes under load."""
    victims = Counter(str(kill.victim) for kill in killer.kills)
    stopped = {"stopped": len(killer.stops)} if killer.stops else {}
    return FaultResult(
        f"{fault} ({counted(victims | stopped)})",
        killer.faults,
        len(load.outcomes),
        _endings(load.outcomes),
        p99_ms(outcome.ended - outcome.started for outcome in load.outcomes if outcome.is_complete),
        leaks,
    )


def counted(numbers: Mapping[str, int]) -> str:
    """Returns the numbers that are not 0 with their names, such as `2 broken, 1 refused`."""
    return ", ".join(f"{number:,} {name}" for name, number in numbers.items() if number)


def _endings(outcomes: Iterable[Outcome]) -> str:
    endings: Counter[str] = Counter()
    for outcome in outcomes:
        if outcome.is_complete:
            endings["complete"] += 1
        elif outcome.refused:
            endings["refused"] += 1
        elif outcome.broken:
            endings["broken with their gateway"] += 1
        elif outcome.error is not None:
            endings[f"aborted: {outcome.error['code']}"] += 1
    return counted(endings)
