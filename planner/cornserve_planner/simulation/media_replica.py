"""Replicas of encoders and generators, and other servers, from curves of their seconds by the requests in flight."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any, Protocol

from cornserve_planner.errors import InvalidInputError, require_positive
from cornserve_planner.simulation.event_queue import EventQueue

WORK_TOLERANCE = 1e-12
"""The work that may be left when a job ends, for rounding errors."""


class ServiceCurve:
    """Seconds of mean requests by the number of them that a replica serves at a time.

    Args:
        seconds: at 1, 2, … requests, without gaps.
    """

    __slots__ = ("limit", "seconds")

    def __init__(self, seconds: Sequence[float]) -> None:
        if not seconds:
            raise InvalidInputError("seconds", "is empty: give the seconds of at least one request")
        for value in seconds:
            require_positive("seconds", value)
        self.seconds = (0.0, *seconds)
        self.limit = len(seconds)
        """The most requests that a replica serves at a time."""

    @classmethod
    def constant(cls, seconds: float, limit: int) -> ServiceCurve:
        """Returns the curve of a replica whose requests do not slow each other down."""
        return cls((seconds,) * limit)


class ServiceListener(Protocol):
    def first_output(self, owner: Any) -> None:
        """A job begins to return output."""

    def ended(self, owner: Any) -> None:
        """A job has ended."""


class MediaJob:
    """A job of a replica.

    Args:
        work: its seconds relative to those of the mean request.
        first_part: the part of its work after which it returns output, if it joins a running batch.
        priority: smaller numbers first.
        owner: not read here.
    """

    __slots__ = ("first_part", "is_cancelled", "owner", "priority", "work")

    def __init__(self, work: float = 1.0, *, first_part: float = 1.0, priority: int = 0, owner: Any = None) -> None:
        self.work = work
        self.first_part = first_part
        self.priority = priority
        self.owner = owner
        self.is_cancelled = False


class _MediaQueue:
    """The jobs that wait for a replica, by priority and then by arrival."""

    __slots__ = ("_jobs", "_orders")

    def __init__(self) -> None:
        self._jobs: list[tuple[int, int, MediaJob]] = []
        self._orders = 0

    def push(self, job: MediaJob) -> None:
        self._orders += 1
        heappush(self._jobs, (job.priority, self._orders, job))

    def pop(self) -> MediaJob | None:
        """Returns the next job that is not cancelled."""
        while self._jobs:
            job = heappop(self._jobs)[2]
            if not job.is_cancelled:
                return job
        return None


class BatchReplica:
    """Serves jobs in batches, as encoders and generators do: a job that arrives waits until the running batch ends.

    A batch of `n` jobs takes the curve's seconds for `n`, times the mean work of its jobs.
    """

    __slots__ = ("_batch", "_curve", "_events", "_is_woken", "_listener", "_queue", "_started", "busy_seconds")

    def __init__(self, events: EventQueue, curve: ServiceCurve, listener: ServiceListener) -> None:
        self._events = events
        self._curve = curve
        self._listener = listener
        self._queue = _MediaQueue()
        self._batch: list[MediaJob] = []
        self._is_woken = False
        self._started = 0.0
        self.busy_seconds = 0.0

    def submit(self, job: MediaJob) -> None:
        self._queue.push(job)
        if not self._batch and not self._is_woken:  # Jobs that arrive together start together.
            self._is_woken = True
            self._events.add(self._events.now, self._begin, None)

    def cancel(self, job: MediaJob) -> None:
        """Removes a waiting job. A batch that runs ends as before, without a report of the job."""
        job.is_cancelled = True

    def stop(self) -> None:
        """Ends now, with all of its jobs."""
        if self._batch:
            self.busy_seconds += self._events.now - self._started
        self._batch, self._queue = [], _MediaQueue()

    def _begin(self, _: None) -> None:
        self._is_woken = False
        work = 0.0
        while len(self._batch) < self._curve.limit and (job := self._queue.pop()) is not None:
            self._batch.append(job)
            work += job.work
        if not self._batch:
            return
        size = len(self._batch)
        self._started = self._events.now
        self._events.add(self._events.now + self._curve.seconds[size] * work / size, self._end, self._batch)

    def _end(self, batch: list[MediaJob]) -> None:
        if batch is not self._batch:  # The replica has stopped.
            return
        self.busy_seconds += self._events.now - self._started
        self._batch = []
        self._is_woken = True
        for job in batch:
            if not job.is_cancelled:
                self._listener.first_output(job.owner)
                self._listener.ended(job.owner)
        self._begin(None)


class ConcurrentReplica:
    """Serves up to `limit` jobs at a time, each at a speed that depends on their number, as continuous batching does.

    With `n` jobs, each is served at a rate of one mean request per curve's seconds for `n`. A curve of one request is
    a queue in order of arrival, and a constant curve is a queue with several servers.
    """

    __slots__ = (
        "_curve", "_events", "_jobs", "_listener", "_queue", "_running", "_served", "_starts", "_updated", "_version",
        "busy_seconds",
    )  # fmt: skip

    def __init__(self, events: EventQueue, curve: ServiceCurve, listener: ServiceListener) -> None:
        self._events = events
        self._curve = curve
        self._listener = listener
        self._queue = _MediaQueue()
        self._running = 0
        self._jobs: list[tuple[float, int, bool, MediaJob]] = []
        """The first outputs and the ends of the running jobs: `_served` at this moment, and whether it is the end."""
        self._served = 0.0
        """The work that a job that has run all the time would have got, in mean requests."""
        self._updated = 0.0
        self._starts = self._version = 0
        self.busy_seconds = 0.0

    def submit(self, job: MediaJob) -> None:
        self._update()
        if self._running < self._curve.limit:
            self._start(job)
            self._plan_next()
        else:
            self._queue.push(job)

    def cancel(self, job: MediaJob) -> None:
        """Removes a job."""
        self._update()
        job.is_cancelled = True
        kept = sorted(entry for entry in self._jobs if entry[3] is not job)
        if len(kept) < len(self._jobs):
            self._jobs = kept
            self._running -= 1
            self._fill()
            self._plan_next()

    def stop(self) -> None:
        """Ends now, with all of its jobs."""
        self._update()
        self._running = 0
        self._version += 1

    def _update(self) -> None:
        now = self._events.now
        if self._running:
            seconds = now - self._updated
            self._served += seconds / self._curve.seconds[self._running]
            self.busy_seconds += seconds
        self._updated = now

    def _start(self, job: MediaJob) -> None:
        self._starts += 1
        self._running += 1
        if job.first_part < 1:
            heappush(self._jobs, (self._served + job.first_part * job.work, self._starts, False, job))
        heappush(self._jobs, (self._served + job.work, self._starts, True, job))

    def _fill(self) -> None:
        while self._running < self._curve.limit and (job := self._queue.pop()) is not None:
            self._start(job)

    def _plan_next(self) -> None:
        self._version += 1
        if not self._running:
            self._served = 0.0
            return
        left = max(0.0, self._jobs[0][0] - self._served)
        self._events.add(self._events.now + left * self._curve.seconds[self._running], self._advance, self._version)

    def _advance(self, version: int) -> None:
        if version != self._version:
            return
        self._update()
        reached = [heappop(self._jobs)]
        while self._jobs and self._jobs[0][0] <= self._served + WORK_TOLERANCE:
            reached.append(heappop(self._jobs))
        self._running -= sum(is_end for _, _, is_end, _ in reached)
        self._fill()
        self._plan_next()
        for _, _, is_end, job in reached:
            if not is_end or job.first_part >= 1:
                self._listener.first_output(job.owner)
            if is_end:
                self._listener.ended(job.owner)
