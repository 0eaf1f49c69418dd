"""The counts of the last hour of all apps, in memory that does not grow with the number of requests.

Every `STEP_SECONDS`, `record` reads the counts of the apps. It keeps all counts for a minute, for rates and percentiles
of the present, and some of them for an hour, for charts. A step in which nothing has happened takes no memory. At most,
`MAX_APPS` apps take `STEPS` times 300 bytes each: 18 MB.

The states of replicas are those in the store, so that a restart of the controller loses none of them.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Self

from cornserve.app.record import GroupStatus, ReplicaState
from cornserve.gateway.observe.app_counts import (
    LATENCIES,
    NO_COUNTS,
    Counts,
    app_counts,
    errors,
    increase,
    requests,
)
from cornserve.gateway.observe.request_stats import AppStats
from cornserve.observe.histogram import SECONDS

STEP_SECONDS: Final = 15
STEPS: Final = 240
MAX_APPS: Final = 256
"""Apps of which the last hour is kept: those that have changed last."""

WINDOW_STEPS: Final = 4
"""Steps of which all counts are kept."""

BUCKETS: Final = len(SECONDS) + 1

FIGURES: Final = 8
"""The values of a step before its buckets."""

VALUES: Final = FIGURES + len(LATENCIES) * BUCKETS

_MAX: Final = 2**32 - 1


class StateCounts(NamedTuple):
    """The replicas of an app by state."""

    ready: int = 0
    starting: int = 0
    draining: int = 0
    failed: int = 0

    @classmethod
    def of(cls, groups: Iterable[GroupStatus]) -> Self:
        counts = Counter(replica.state for group in groups for replica in group.replicas)
        states = ReplicaState.READY, ReplicaState.STARTING, ReplicaState.DRAINING, ReplicaState.FAILED
        return cls(*(counts[state] for state in states))


class AppStep(NamedTuple):
    """A step of an app. Numbers of steps are those since 1970, so that the steps of all gateways agree."""

    number: int
    values: Sequence[int]
    """Requests, errors, generated tokens, running requests, `StateCounts`, and the buckets of each of `LATENCIES`."""


class Window(NamedTuple):
    """The growth of an app's counts."""

    counts: Counts
    seconds: float


class FigureHistory:
    """Keeps the counts of this gateway.

    Args:
        stats: returns the present counts of all apps.
        replicas: returns the replicas of all apps.
    """

    def __init__(
        self, stats: Callable[[], Mapping[str, AppStats]], replicas: Callable[[], Mapping[str, StateCounts]]
    ) -> None:
        self._stats = stats
        self._replicas = replicas
        self._samples = deque[tuple[float, dict[str, Counts]]]([(time.monotonic(), {})], maxlen=WINDOW_STEPS + 1)
        """The counts at the ends of the last steps, with times of the monotonic clock."""
        self._steps = OrderedDict[str, deque[AppStep]]()

    async def run(self) -> None:
        """Records every step until cancelled."""
        while True:
            await asyncio.sleep(STEP_SECONDS - time.time() % STEP_SECONDS)
            self.record(time.time(), time.monotonic())

    def record(self, now: float, monotonic: float) -> None:
        """Ends a step.

        Args:
            now: seconds since 1970.
        """
        number, before, replicas = int(now / STEP_SECONDS), self._samples[-1][1], self._replicas()
        sample: dict[str, Counts] = {}
        for app, stats in self._stats().items():
            last, counts = before.get(app, NO_COUNTS), app_counts(stats)
            sample[app] = last if counts == last else counts
            present = replicas.get(app, StateCounts())
            self._add(app, number, increase(last, sample[app]), stats.running, present)
        for app in replicas.keys() - sample.keys():
            self._add(app, number, NO_COUNTS, 0, replicas[app])
        self._samples.append((monotonic, sample))
        for app in self._steps.keys() - sample.keys() - replicas.keys():
            del self._steps[app]

    def window(self, app: str, seconds: float, now: float) -> Window:
        """Returns the growth of an app's counts since the last sample that is at least `seconds` old.

        Args:
            now: the time of the monotonic clock.
        """
        stats = self._stats().get(app)
        at, sample = next((each for each in reversed(self._samples) if now - each[0] >= seconds), self._samples[0])
        counts = NO_COUNTS if stats is None else increase(sample.get(app, NO_COUNTS), app_counts(stats))
        return Window(counts, max(now - at, 1e-3))

    def steps(self, app: str) -> list[AppStep]:
        """Returns the steps of the last hour in which an app has changed, oldest first."""
        return list(self._steps.get(app, ()))

    def _add(self, app: str, number: int, counts: Counts, running: int, replicas: StateCounts) -> None:
        if app not in self._steps and not self._has_space(number, is_active=bool(counts or running)):
            return
        steps = self._steps.setdefault(app, deque(maxlen=STEPS + 1))
        last, present = steps[-1].values if steps else None, (running, *replicas)
        is_unchanged = not counts and last is not None and present == tuple(last[3:FIGURES]) and not last[0]
        if is_unchanged and not running:
            return
        buckets = [counts.get((name, str(bucket)), 0) for name in LATENCIES for bucket in range(BUCKETS)]
        figures = (requests(counts), errors(counts), counts.get(("generation",), 0), *present)
        steps.append(AppStep(number, array("I", (min(value, _MAX) for value in (*figures, *buckets)))))
        while len(steps) > 1 and steps[1].number <= number - STEPS:  # The one before has the replicas since then.
            steps.popleft()
        self._steps.move_to_end(app)

    def _has_space(self, number: int, *, is_active: bool) -> bool:
        """Whether the steps of another app can be kept. An active app replaces one that was idle in the last steps."""
        if len(self._steps) < MAX_APPS:
            return True
        oldest = next(iter(self._steps.values()))
        if not is_active or oldest[-1].number >= number - 1:
            return False
        self._steps.popitem(last=False)
        return True
