"""Runs the invocations of requests at replicas: their placement, their streams, and the transfers between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.simulation.event_queue import EventQueue
from cornserve_planner.simulation.executor_model import ExecutorModel, TokenExecutor
from cornserve_planner.simulation.language_model import LanguageModelReplica
from cornserve_planner.simulation.media_replica import MediaJob
from cornserve_planner.simulation.path_stages import PathStage
from cornserve_planner.simulation.request_run import RequestRun, StageInvocation
from cornserve_planner.simulation.running_cells import ReplicaGroup, ServingReplica
from cornserve_planner.simulation.serving_settings import ServingSettings
from cornserve_planner.simulation.token_sequence import TokenSequence
from cornserve_policies.due_times import SizeTargets
from cornserve_policies.input_size import InputSize
from cornserve_policies.replica_routing import RoutedInvocation, RoutingPolicy


class StageListener(Protocol):
    def stage_ended(self, invocation: StageInvocation) -> None: ...


class _Network(Protocol):
    """The network of a replica or a rack: the times until which it sends and receives."""

    sends_until: float
    receives_until: float


def new_job(invocation: StageInvocation, model: ExecutorModel) -> TokenSequence | MediaJob:
    """Returns the job of an invocation for an engine."""
    if isinstance(model, TokenExecutor):
        prompt, output, cached = invocation.tokens()
        prompt += invocation.delivered
        cached = prompt if invocation.has_cache else cached
        left = output - invocation.delivered
        return TokenSequence(prompt, left, cached=cached, priority=invocation.due, owner=invocation)
    return MediaJob(invocation.stage.work, first_part=model.first_part, priority=invocation.due, owner=invocation)


def _input_size(invocation: StageInvocation) -> InputSize:
    """Returns the size of an input as gateways know it. Unknown numbers of tokens are 0."""
    request, takes_text = invocation.run.request, invocation.stage.takes_text
    return InputSize(
        text=(request.text or 0) if takes_text else 0,
        media=request.media or 0,
        output=(request.output or 0) if takes_text else 0,
    )


class StageRunner:
    """Runs the invocations of a request along its path. Replicas report outputs to it.

    Args:
        end_request: called when all invocations of a request have ended.
    """

    def __init__(
        self,
        events: EventQueue,
        routing: RoutingPolicy,
        settings: ServingSettings,
        listener: StageListener,
        end_request: Callable[[RequestRun], None],
    ) -> None:
        self._events = events
        self._routing = routing
        self._settings = settings
        self._listener = listener
        self._end_request = end_request
        self._sizes: dict[ReplicaGroup, SizeTargets] = {}
        """The sizes of inputs, with a target for the first output."""
        self._calls = 0

    def next_call(self) -> int:
        """Returns the number of a new attempt of an invocation."""
        self._calls += 1
        return self._calls

    def start(self, run: RequestRun) -> None:
        """Chooses the replicas of all invocations, or of those that are not bound late. Begins those without inputs."""
        run.running = len(run.invocations)
        if self._settings.first_output_target is not None:
            self._set_due_times(run, self._settings.first_output_target)
        for invocation in run.invocations:
            if not self._is_bound_late(invocation.stage):
                self.place(invocation)
            for index, is_streamed in invocation.stage.consumers:
                run.invocations[index].unended += is_streamed
        for invocation in run.invocations:
            self.begin_if_ready(invocation)

    def _set_due_times(self, run: RequestRun, target: float) -> None:
        """Sets when the invocations at encoders and language models are due. Others run in the order of arrival."""
        sent: dict[ReplicaGroup, int] = {}
        for invocation in run.invocations:
            stage = invocation.stage
            group = run.cell.groups[stage.executor]
            sent[group] = sent.get(group, 0) + _input_size(invocation).tokens
            if stage.role or not stage.takes_text:
                sizes = self._sizes.setdefault(group, SizeTargets(target))
                invocation.due = int(1000 * sizes.due(run.request.arrival, sent[group]))

    def _is_bound_late(self, stage: PathStage) -> bool:
        default = "late" if self._settings.binds_late else "early"
        return stage.has_one_input and (stage.binding or default) == "late"

    def hand_over(self, replica: ServingReplica) -> None:
        """Moves the streams of tokens of a replica that leaves to others. Their keys and values arrive with them."""
        for invocation in [*replica.invocations]:
            job, engine = invocation.job, replica.engine
            if not isinstance(engine, LanguageModelReplica) or not isinstance(job, TokenSequence) or not job.is_running:
                continue
            generated = engine.generated(job)
            if generated:
                engine.cancel(job)
                replica.load.end(invocation.call)
                del replica.invocations[invocation]
                invocation.delivered += generated
                invocation.has_cache = True
                invocation.replica = None
                invocation.call = self.next_call()
                self._choose(invocation)
                self.begin_if_ready(invocation)

    def place(self, invocation: StageInvocation) -> None:
        """Chooses the replica of an invocation, or waits for one if all have failed."""
        invocation.run.cell.groups[invocation.stage.executor].count_arrival()
        self._choose(invocation)

    def _choose(self, invocation: StageInvocation) -> None:
        now, request_id = self._events.now, invocation.run.request.id
        group, size = invocation.run.cell.groups[invocation.stage.executor], _input_size(invocation)
        chosen = self._routing.choose(RoutedInvocation(request_id, invocation.index, size), group.board, now)
        if chosen is None and group.unavailable:
            group.call_when_available(self._place_again, invocation)
            return
        if chosen is None or chosen.id not in group.replicas:
            raise InvalidInputError("--routing", "the policy chose no replica, although all are available")
        replica = invocation.replica = group.replicas[chosen.id]
        replica.invocations[invocation] = None
        chosen.start(invocation.call, size.tokens)

    def begin_if_ready(self, invocation: StageInvocation) -> None:
        if invocation.missing or invocation.replica is None:
            return
        invocation.began = self._events.now
        invocation.has_begun = True
        invocation.job = new_job(invocation, invocation.replica.model)
        invocation.replica.engine.submit(invocation.job)

    def first_output(self, invocation: StageInvocation) -> None:
        """Called by replicas."""
        now, run = self._events.now, invocation.run
        stage = invocation.stage
        if invocation.first < 0:
            invocation.first = now
        invocation.running_replica.load.receive_output(invocation.call)
        if run.first < 0 and (stage.role or not stage.consumers):
            run.first = now
            if run.admitted is not None:
                run.admitted.record_first_output(now - run.request.arrival, now)
        if not invocation.has_streamed:
            invocation.has_streamed = True
            for consumer, is_streamed in invocation.consumers():
                if is_streamed:
                    self._send(invocation, consumer)

    def ended(self, invocation: StageInvocation) -> None:
        """Called by replicas. A consumer of a stream ends after the stream."""
        if invocation.unended:
            invocation.is_held = True
        else:
            self._end(invocation)

    def _place_again(self, invocation: StageInvocation) -> None:
        if not invocation.run.has_failed:
            self._choose(invocation)
            self.begin_if_ready(invocation)

    def _end(self, invocation: StageInvocation) -> None:
        run, replica = invocation.run, invocation.running_replica
        invocation.has_ended = True
        invocation.end = self._events.now
        replica.load.end(invocation.call)
        del replica.invocations[invocation]
        if invocation.stage.role in ("llm", "decode"):
            run.last_token = self._events.now
        self._listener.stage_ended(invocation)
        for consumer, is_streamed in invocation.consumers():
            if not is_streamed:
                self._send(invocation, consumer)
            else:
                consumer.unended -= 1
                if consumer.is_held and not consumer.unended:
                    self._end(consumer)
        run.running -= 1
        if not run.running:
            self._end_request(run)

    def _send(self, producer: StageInvocation, consumer: StageInvocation) -> None:
        """Sends the output of an invocation, or the beginning of its stream.

        Each replica sends and receives one at a time, and so does each rack to and from others.
        """
        settings, now = self._settings, self._events.now
        if consumer.replica is None and self._is_bound_late(consumer.stage):
            self.place(consumer)
        if settings.bandwidth is None and settings.racks is None:
            time = now + settings.latency
        else:
            time = self._transfer(producer, consumer)
        if time > now:
            self._events.add(time, self._receive, consumer)
        else:
            self._receive(consumer)

    def _transfer(self, producer: StageInvocation, consumer: StageInvocation) -> float:
        """Occupies the networks of a transfer, and returns the time of its end."""
        settings, now = self._settings, self._events.now
        sender, receiver = producer.running_replica, consumer.replica
        latency, end = settings.latency, now
        links: list[tuple[_Network, _Network, float]] = []
        if settings.bandwidth is not None and receiver is not None:
            links.append((sender, receiver, settings.bandwidth))
        if settings.racks is not None and receiver is not None:
            assert sender.place is not None
            assert receiver.place is not None
            if sender.place.rack is not receiver.place.rack:
                links.append((sender.place.rack, receiver.place.rack, settings.racks.bandwidth))
                latency += settings.racks.latency
        size = settings.transfers.get(producer.stage.option, 0.0)
        if size and links:
            start = max(now, *(max(source.sends_until, target.receives_until) for source, target, _ in links))
            for source, target, bandwidth in links:
                source.sends_until = target.receives_until = start + size / bandwidth
                end = max(end, source.sends_until)
        return end + latency

    def _receive(self, consumer: StageInvocation) -> None:
        if not consumer.run.has_failed:
            consumer.missing -= 1
            self.begin_if_ready(consumer)
