"""The serving of a plan: gateways, cells of replicas, transfers, and the requests that pass through them.

Decisions are those of the runtime: the path table chooses a cell and a path, a routing policy chooses the replica of
each invocation when the request begins, and admission refuses requests that would miss a target. They see what
a gateway sees. All gateways of a simulation share one view of the loads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.simulation.event_queue import EventQueue
from cornserve_planner.simulation.executor_model import CurveExecutor, ExecutorModel, TokenExecutor
from cornserve_planner.simulation.language_model import LanguageModelReplica, TokenSequence
from cornserve_planner.simulation.media_replica import ConcurrentReplica, MediaJob, ServiceCurve
from cornserve_planner.simulation.path_stages import path_stages
from cornserve_planner.simulation.request_run import RequestRun, StageInvocation
from cornserve_planner.simulation.running_cells import RunningCells
from cornserve_planner.simulation.simulated_adaptation import SimulatedAdaptation
from cornserve_planner.simulation.simulated_request import SimulatedRequest
from cornserve_policies.admission import LatencyAdmission, Refusal
from cornserve_policies.input_size import InputSize
from cornserve_policies.replayable_random import ReplayableRandom
from cornserve_policies.replica_routing import RoutedInvocation, RoutingPolicy

REPORT_REQUESTS = 1024
"""Progress is reported after this many requests."""

RETRY_SECONDS = 0.2
"""The delay before an invocation without a replica is placed again, as in gateways."""

MAX_EXECUTOR_DEATHS = 1
"""The executors that may fail during a request, as in gateways. It fails with the next one."""


@dataclass(frozen=True, slots=True)
class ServingSettings:
    """The parts of a simulated system that a plan does not determine.

    Args:
        gateways: gateways that take requests from one queue. `gateway_seconds`: seconds of a gateway for a request.
        bandwidth: bytes/s of a replica's network in each direction; None if transfers take no time by their size.
        latency: seconds until the first byte of a transfer arrives.
        transfers: by option, the bytes of its output for a request.
        streamed: components that begin with the first output of the components before them, instead of the last.
        ttft, tbt, e2e: latency targets in seconds.
        refuses: whether requests are refused early that would miss the targets.
        adapts: whether the number of cells follows the load. `most_gpus`: the GPUs that cells may have at most.
        startup: seconds until a started cell or replica serves requests; None for those of the plan's options.
        failures: options and times in seconds at which one of their replicas fails.
    """

    gateways: int = 1
    gateway_seconds: float = 0.0
    bandwidth: float | None = None
    latency: float = 0.0
    transfers: Mapping[str, float] = field(default_factory=dict)
    streamed: frozenset[str] = frozenset()
    ttft: float | None = None
    tbt: float | None = None
    e2e: float | None = None
    refuses: bool = False
    adapts: bool = False
    most_gpus: float = inf
    startup: float | None = None
    failures: tuple[tuple[str, float], ...] = ()


class ServingListener(Protocol):
    """Learns what happens to requests. Times are `now` of the event queue."""

    def request_refused(self, request: SimulatedRequest, refusal: Refusal | None) -> None:
        """A request is refused, because it would miss a target or (None) does not fit in an executor."""

    def request_failed(self, run: RequestRun) -> None:
        """A request has failed with its executors."""

    def stage_ended(self, invocation: StageInvocation) -> None: ...

    def request_ended(self, run: RequestRun) -> None: ...


class ServingSimulation:
    """Simulates the running cells of a plan.

    Raises `InvalidInputError` if no cell runs, or for settings that name unknown options or components.
    """

    def __init__(
        self,
        plan: PlanFile,
        models: Mapping[str, ExecutorModel],
        routing: RoutingPolicy,
        settings: ServingSettings,
        listener: ServingListener,
    ) -> None:
        _check_names(plan, settings)
        self.events = EventQueue()
        self._plan = plan
        self._models = models
        self._routing = routing
        self._settings = settings
        self._listener = listener
        self.cells = RunningCells(self.events, plan, models, self)
        self._stages = {
            name: [
                path_stages(plan, kind.components, path, models, self.cells.executors, settings.streamed)
                for path in kind.paths
            ]
            for name, kind in plan.types.items()
        }
        self._admission = LatencyAdmission(settings.ttft, settings.e2e) if settings.refuses else None
        seconds = settings.gateway_seconds
        self._gateway = (
            ConcurrentReplica(self.events, ServiceCurve.constant(seconds, settings.gateways), _Gateway(self._dispatch))
            if seconds
            else None
        )
        self.adaptation = (
            SimulatedAdaptation(self.events, plan, self.cells, most_gpus=settings.most_gpus, startup=settings.startup)
            if settings.adapts
            else None
        )
        self._calls = 0
        self._requests: Iterator[SimulatedRequest] = iter(())
        self._on_progress: Callable[[float, int], object] = lambda seconds, requests: None
        self._arrived = 0

    def find_type(self, components: frozenset[str]) -> str:
        """Returns the type by which requests are routed that need these components."""
        found = self.cells.table.type_of(components) or self._plan.default_type
        if found is None:
            raise InvalidInputError(
                "--workload", f"requests need {', '.join(sorted(components))}, for which the plan has no type"
            )
        return found

    def run(
        self,
        requests: Iterable[SimulatedRequest],
        on_progress: Callable[[float, int], object] = lambda seconds, requests: None,
    ) -> None:
        """Serves requests until the last one has ended.

        Args:
            on_progress: gets the simulated seconds and the number of requests that have arrived.
        """
        self._requests = iter(requests)
        self._on_progress = on_progress
        self._arrive(next(self._requests, None))
        if self.adaptation is not None:
            self.adaptation.begin()
        for option, seconds in self._settings.failures:
            self.events.add(seconds, self._fail_replica, option)
        self.events.run()

    def first_output(self, invocation: StageInvocation) -> None:
        """Called by replicas."""
        now, run = self.events.now, invocation.run
        stage = invocation.stage
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

    def _arrive(self, request: SimulatedRequest | None) -> None:
        """Takes a request and all others that arrive now, and waits for the next one."""
        while request is not None and request.arrival <= self.events.now:
            self._arrived += 1
            if not self._arrived % REPORT_REQUESTS:
                self._on_progress(self.events.now, self._arrived)
            if self._gateway is None:
                self._dispatch(request)
            else:
                self._gateway.submit(MediaJob(owner=request))
            if self.adaptation is not None:
                self.adaptation.count(request.kind)
            request = next(self._requests, None)
        if request is not None:
            self.events.add(request.arrival, self._arrive, request)
        elif self.adaptation is not None:
            self.adaptation.end()

    def _dispatch(self, request: SimulatedRequest) -> None:
        """Admits a request, chooses its path and the replicas of all of its invocations, and begins the first ones."""
        now = self.events.now
        admitted = self._admission.admit(now, streams=True) if self._admission is not None else None
        if isinstance(admitted, Refusal):
            self._listener.request_refused(request, admitted)
            return
        run = RequestRun(request, admitted)
        kind = request.kind if request.kind in self.cells.types else None
        run.way = self.cells.table.choose(kind, ReplayableRandom(request.id))
        stages = self._stages[run.way.request_type][run.way.path]
        for index, stage in enumerate(stages):
            self._calls += 1
            run.invocations.append(StageInvocation(run, index, stage, self._calls))
        if not all(self._fits(invocation) for invocation in run.invocations):
            if admitted is not None:
                admitted.record_end(now - request.arrival, now, is_complete=False)
            self._listener.request_refused(request, None)
            return
        run.cell = self.cells.cells[run.way.cell]
        run.cell.requests += 1
        run.running = len(stages)
        for invocation in run.invocations:
            self._place(invocation)
            for index, is_streamed in invocation.stage.consumers:
                run.invocations[index].unended += is_streamed
        for invocation in run.invocations:
            self._begin_if_ready(invocation)

    def _fits(self, invocation: StageInvocation) -> bool:
        """Whether the executor can hold the tokens of an invocation."""
        model = self._models[invocation.stage.executor]
        if isinstance(model, CurveExecutor):
            return True
        prompt, output, _ = invocation.tokens()
        return model.limits.fits(prompt, output)

    def _place(self, invocation: StageInvocation) -> None:
        """Chooses the replica of an invocation, or tries again later if none is available."""
        now, request, stage = self.events.now, invocation.run.request, invocation.stage
        group = invocation.run.cell.groups[stage.executor]
        size = InputSize(
            text=(request.text or 0) if stage.takes_text else 0,
            media=request.media or 0,
            output=(request.output or 0) if stage.takes_text else 0,
        )
        chosen = self._routing.choose(RoutedInvocation(request.id, invocation.index, size), group.board, now)
        if chosen is None and group.unavailable:
            self.events.add(now + RETRY_SECONDS, self._place_again, invocation)
            return
        if chosen is None or chosen.id not in group.replicas:
            raise InvalidInputError("--routing", "the policy chose no replica, although all are available")
        replica = invocation.replica = group.replicas[chosen.id]
        replica.invocations[invocation] = None
        chosen.start(invocation.call, size.tokens)

    def _place_again(self, invocation: StageInvocation) -> None:
        if not invocation.run.has_failed:
            self._place(invocation)
            self._begin_if_ready(invocation)

    def _begin_if_ready(self, invocation: StageInvocation) -> None:
        if invocation.missing or invocation.replica is None:
            return
        invocation.began = self.events.now
        invocation.has_begun = True
        model = invocation.replica.model
        job: TokenSequence | MediaJob
        if isinstance(model, TokenExecutor):
            prompt, output, cached = invocation.tokens()
            delivered = invocation.delivered
            job = TokenSequence(prompt + delivered, output - delivered, cached=cached, owner=invocation)
        else:
            job = MediaJob(invocation.stage.work, first_part=model.first_part, owner=invocation)
        invocation.job = job
        invocation.replica.engine.submit(job)

    def _end(self, invocation: StageInvocation) -> None:
        run, replica = invocation.run, invocation.running_replica
        invocation.has_ended = True
        replica.load.end(invocation.call)
        del replica.invocations[invocation]
        if invocation.stage.role in ("llm", "decode"):
            run.last_token = self.events.now
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

    def _end_request(self, run: RequestRun) -> None:
        now = self.events.now
        self.cells.release(run.cell)
        if run.admitted is not None:
            run.admitted.record_end(now - run.request.arrival, now, is_complete=True)
        self._listener.request_ended(run)
        run.clear()

    def _send(self, producer: StageInvocation, consumer: StageInvocation) -> None:
        """Sends the output of an invocation, or the beginning of its stream. Each replica sends one at a time."""
        settings, now = self._settings, self.events.now
        sender, receiver = producer.running_replica, consumer.replica
        time = now + settings.latency
        size = settings.transfers.get(producer.stage.option, 0.0)
        if settings.bandwidth is not None and size and receiver is not None:
            start = max(now, sender.sends_until, receiver.receives_until)
            sender.sends_until = receiver.receives_until = start + size / settings.bandwidth
            time = sender.sends_until + settings.latency
        if time > now:
            self.events.add(time, self._receive, consumer)
        else:
            self._receive(consumer)

    def _receive(self, consumer: StageInvocation) -> None:
        if not consumer.run.has_failed:
            consumer.missing -= 1
            self._begin_if_ready(consumer)

    def _fail_replica(self, option: str) -> None:
        """Ends the first replica of an option. Its invocations run again, and another engine starts."""
        executor = self.cells.executors[option]
        groups = [
            cell.groups[executor]
            for cell in self.cells.cells.values()
            if cell.ended is None and executor in cell.groups
        ]
        if not groups:
            raise InvalidInputError("--fail", f"no cell runs {option!r} at {self.events.now:g} s: use another option")
        running = ((group, id) for group in groups for id in group.replicas if id not in group.unavailable)
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
                self._fail_request(run)
        for invocation in lost:
            if not invocation.run.has_failed:
                self._run_again(invocation)
        startup = self._settings.startup
        seconds = (self._plan.options[executor].startup or 0.0) if startup is None else startup
        self.events.add(self.events.now + seconds, group.unavailable.discard, id)

    def _run_again(self, invocation: StageInvocation) -> None:
        """Runs another attempt of an invocation. Inputs that it has taken are released: their producers run again."""
        was_begun = invocation.has_begun
        invocation.has_begun = invocation.is_held = False
        invocation.job = None
        self._calls += 1
        invocation.call = self._calls
        if was_begun:
            for producer in invocation.run.invocations:
                for index, is_streamed in producer.stage.consumers:
                    if index == invocation.index and self._repeat(producer, index):
                        invocation.missing += 1
                        invocation.unended += is_streamed
        self._place(invocation)
        self._begin_if_ready(invocation)

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

    def _fail_request(self, run: RequestRun) -> None:
        run.has_failed = True
        for invocation in run.invocations:
            replica = invocation.replica
            if replica is not None and not invocation.has_ended:
                replica.load.end(invocation.call)
                del replica.invocations[invocation]
                if invocation.job is not None:
                    replica.engine.cancel(invocation.job)
        self.cells.release(run.cell)
        if run.admitted is not None:
            now = self.events.now
            run.admitted.record_end(now - run.request.arrival, now, is_complete=False)
        self._listener.request_failed(run)
        run.clear()


class _Gateway:
    """Passes requests on when a gateway has handled them."""

    def __init__(self, dispatch: Callable[[SimulatedRequest], None]) -> None:
        self._dispatch = dispatch

    def first_output(self, request: SimulatedRequest) -> None: ...

    def ended(self, request: SimulatedRequest) -> None:
        self._dispatch(request)


def _check_names(plan: PlanFile, settings: ServingSettings) -> None:
    for flag, names, known in (
        ("--transfer", settings.transfers, plan.options),
        ("--stream", settings.streamed, plan.components),
        ("--fail", [name for name, _ in settings.failures], plan.options),
    ):
        for name in sorted(names):
            if name not in known:
                raise InvalidInputError(flag, f"{name!r} is not in the plan: use one of {', '.join(known)}")
