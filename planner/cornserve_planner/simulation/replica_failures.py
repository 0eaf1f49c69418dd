"""Failures of replicas: their invocations run again on others, as in gateways, or their requests fail."""

from __future__ import annotations

from collections.abc import Callable

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.simulation.event_queue import EventQueue
from cornserve_planner.simulation.language_model import LanguageModelReplica
from cornserve_planner.simulation.request_run import RequestRun, StageInvocation
from cornserve_planner.simulation.running_cells import RunningCells
from cornserve_planner.simulation.stage_runner import StageRunner
from cornserve_planner.simulation.startup_times import ReplicaStartups
from cornserve_planner.simulation.token_sequence import TokenSequence
from cornserve_policies.retries import MAX_EXECUTOR_DEATHS


class ReplicaFailures:
    """Lets replicas fail.

    Args:
        startups: the seconds until another engine serves in the place of a failed one.
        fail_request: called with a request that has lost its second executor.
    """

    def __init__(
        self,
        events: EventQueue,
        cells: RunningCells,
        runner: StageRunner,
        startups: ReplicaStartups,
        fail_request: Callable[[RequestRun], None],
    ) -> None:
        self._events = events
        self._cells = cells
        self._runner = runner
        self._startups = startups
        self._fail_request = fail_request

    def fail_replica(self, option: str) -> None:
        """Ends the first replica of an option. Its invocations run again, and another engine starts."""
        executor = self._cells.executors[option]
        groups = [
            cell.groups[executor]
            for cell in self._cells.cells.values()
            if cell.ended is None and executor in cell.groups
        ]
        if not groups:
            raise InvalidInputError("--fail", f"no cell runs {option!r} at {self._events.now:g} s: use another option")
        running = ((group, id) for group in groups for id in group.serving if id not in group.unavailable)
        found = next(running, None)
        if found is None:
            return
        group, id = found
        replica = group.replicas[id]
        group.unavailable.add(id)
        lost, replica.invocations = [*replica.invocations], {}
        for invocation in lost:
            replica.load.end(invocation.call)
            invocation.replica = None
            if isinstance(replica.engine, LanguageModelReplica) and isinstance(invocation.job, TokenSequence):
                invocation.delivered += replica.engine.generated(invocation.job)
        replica.restart()
        for run in dict.fromkeys(invocation.run for invocation in lost):
            run.deaths += 1
            if run.deaths > MAX_EXECUTOR_DEATHS:
                self._abandon(run)
        for invocation in lost:
            if not invocation.run.has_failed:
                self._run_again(invocation)
        self._events.add(self._events.now + self._startups.of(executor), group.recover, id)

    def _run_again(self, invocation: StageInvocation) -> None:
        """Runs another attempt of an invocation. Inputs that it has taken are released: their producers run again."""
        was_begun = invocation.has_begun
        invocation.has_begun = invocation.is_held = invocation.has_cache = False
        invocation.job = None
        invocation.call = self._runner.next_call()
        if was_begun:
            for producer in invocation.run.invocations:
                for index, is_streamed in producer.stage.consumers:
                    if index == invocation.index and self._repeat(producer, index):
                        invocation.missing += 1
                        invocation.unended += is_streamed
        self._runner.place(invocation)
        self._runner.begin_if_ready(invocation)

    def _repeat(self, producer: StageInvocation, consumer: int) -> bool:
        """Runs an invocation that has ended again for a consumer. Returns whether it will send its output again."""
        if producer.has_ended:
            producer.has_ended = producer.has_streamed = False
            producer.targets = {consumer}
            producer.delivered = 0
            producer.run.running += 1
            self._run_again(producer)
            return True
        if producer.targets is None or producer.has_streamed:
            return False
        producer.targets.add(consumer)
        return True

    def _abandon(self, run: RequestRun) -> None:
        """Cancels the invocations of a request that fails."""
        run.has_failed = True
        for invocation in run.invocations:
            replica = invocation.replica
            if replica is not None and not invocation.has_ended:
                replica.load.end(invocation.call)
                del replica.invocations[invocation]
                if invocation.job is not None:
                    replica.engine.cancel(invocation.job)
        self._fail_request(run)
