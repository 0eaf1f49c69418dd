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
from cornserve_planner.simulation.language_model import TokenSequence
from cornserve_planner.simulation.media_replica import ConcurrentReplica, MediaJob, ServiceCurve
from cornserve_planner.simulation.path_stages import PathStage, path_stages
from cornserve_planner.simulation.running_cells import RunningCells, ServingCell, ServingReplica
from cornserve_planner.simulation.simulated_adaptation import SimulatedAdaptation
from cornserve_planner.simulation.simulated_request import SimulatedRequest
from cornserve_policies.admission import AdmittedRequest, LatencyAdmission, Refusal
from cornserve_policies.input_size import InputSize
from cornserve_policies.path_table import CellPath
from cornserve_policies.replayable_random import ReplayableRandom
from cornserve_policies.replica_routing import RoutedInvocation, RoutingPolicy

REPORT_REQUESTS = 1024
"""Progress is reported after this many requests."""


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
        startup: seconds until a started cell serves requests; None for the longest of its options.
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


class StageInvocation:
    """An invocation of a request at a replica."""

    __slots__ = (
        "began",
        "call",
        "index",
        "is_held",
        "missing",
        "replica",
        "run",
        "stage",
        "unended",
    )

    def __init__(self, run: RequestRun, index: int, stage: PathStage, call: int) -> None:
        self.run = run
        self.index = index
        self.stage = stage
        self.call = call
        self.replica: ServingReplica
        self.missing = stage.inputs
        """Inputs that have not arrived."""
        self.unended = 0
        """Producers whose streams have not ended."""
        self.began = 0.0
        self.is_held = False


class RequestRun:
    """A request that is being served."""

    __slots__ = ("admitted", "cell", "first", "invocations", "last_token", "request", "running", "way")

    def __init__(self, request: SimulatedRequest, admitted: AdmittedRequest | None) -> None:
        self.request = request
        self.admitted = admitted
        self.way: CellPath
        self.cell: ServingCell
        self.invocations: list[StageInvocation] = []
        self.running = 0
        self.first = -1.0
        """The time of the first output, or a negative number."""
        self.last_token = -1.0
        """The time of the last token, or a negative number."""


class ServingListener(Protocol):
    """Learns what happens to requests. Times are `now` of the event queue."""

    def request_refused(self, request: SimulatedRequest, refusal: Refusal | None) -> None:
        """A request is refused, because it would miss a target or (None) does not fit in an executor."""

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
        self._routing = routing
        self._settings = settings
        self._listener = listener
        self.cells = RunningCells(self.events, plan, models, self)
        self._stages = {
            name: [path_stages(plan, kind.components, path, models, settings.streamed) for path in kind.paths]
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
        self.events.run()

    def first_output(self, invocation: StageInvocation) -> None:
        """Called by replicas."""
        now, run = self.events.now, invocation.run
        replica, stage = invocation.replica, invocation.stage
        replica.load.receive_output(invocation.call)
        if run.first < 0 and (stage.role or not stage.consumers):
            run.first = now
            if run.admitted is not None:
                run.admitted.record_first_output(now - run.request.arrival, now)
        for index, is_streamed in stage.consumers:
            if is_streamed:
                self._send(invocation, run.invocations[index])

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
        run.way = self.cells.table.choose(request.kind, ReplayableRandom(request.id))
        run.cell = self.cells.cells[run.way.cell]
        run.cell.requests += 1
        stages = self._stages[run.way.request_type][run.way.path]
        for index, stage in enumerate(stages):
            self._calls += 1
            run.invocations.append(StageInvocation(run, index, stage, self._calls))
        for invocation in run.invocations:
            self._place(invocation, now)
        if not all(_fits(invocation) for invocation in run.invocations):
            self._abandon(run)
            return
        run.running = len(stages)
        for invocation in run.invocations:
            for index, is_streamed in invocation.stage.consumers:
                run.invocations[index].unended += is_streamed
        for invocation in run.invocations:
            if not invocation.missing:
                self._begin(invocation)

    def _place(self, invocation: StageInvocation, now: float) -> None:
        request, stage = invocation.run.request, invocation.stage
        group = invocation.run.cell.groups[self.cells.executors[stage.option]]
        size = InputSize(
            text=(request.text or 0) if stage.takes_text else 0,
            media=request.media or 0,
            output=(request.output or 0) if stage.takes_text else 0,
        )
        chosen = self._routing.choose(RoutedInvocation(request.id, invocation.index, size), group.board, now)
        if chosen is None or chosen.id not in group.replicas:
            raise InvalidInputError("--routing", "the policy chose no replica, although all are available")
        invocation.replica = group.replicas[chosen.id]
        chosen.start(invocation.call, size.tokens)

    def _abandon(self, run: RequestRun) -> None:
        for invocation in run.invocations:
            invocation.replica.load.end(invocation.call)
        self.cells.release(run.cell)
        if run.admitted is not None:
            now = self.events.now
            run.admitted.record_end(now - run.request.arrival, now, is_complete=False)
        self._listener.request_refused(run.request, None)

    def _begin(self, invocation: StageInvocation) -> None:
        invocation.began = self.events.now
        model, stage = invocation.replica.model, invocation.stage
        if isinstance(model, TokenExecutor):
            prompt, output, cached = _tokens(invocation)
            invocation.replica.engine.submit(TokenSequence(prompt, output, cached=cached, owner=invocation))
        else:
            invocation.replica.engine.submit(MediaJob(stage.work, first_part=model.first_part, owner=invocation))

    def _end(self, invocation: StageInvocation) -> None:
        run, stage = invocation.run, invocation.stage
        invocation.replica.load.end(invocation.call)
        if stage.role in ("llm", "decode"):
            run.last_token = self.events.now
        self._listener.stage_ended(invocation)
        for index, is_streamed in stage.consumers:
            consumer = run.invocations[index]
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

    def _send(self, producer: StageInvocation, consumer: StageInvocation) -> None:
        """Sends the output of an invocation, or the beginning of its stream. Each replica sends one at a time."""
        settings, now = self._settings, self.events.now
        sender, receiver = producer.replica, consumer.replica
        time = now + settings.latency
        size = settings.transfers.get(producer.stage.option, 0.0)
        if settings.bandwidth is not None and size and sender is not receiver:
            start = max(now, sender.sends_until, receiver.receives_until)
            sender.sends_until = receiver.receives_until = start + size / settings.bandwidth
            time = sender.sends_until + settings.latency
        if time > now:
            self.events.add(time, self._receive, consumer)
        else:
            self._receive(consumer)

    def _receive(self, consumer: StageInvocation) -> None:
        consumer.missing -= 1
        if not consumer.missing:
            self._begin(consumer)


class _Gateway:
    """Passes requests on when a gateway has handled them."""

    def __init__(self, dispatch: Callable[[SimulatedRequest], None]) -> None:
        self._dispatch = dispatch

    def first_output(self, request: SimulatedRequest) -> None: ...

    def ended(self, request: SimulatedRequest) -> None:
        self._dispatch(request)


def _tokens(invocation: StageInvocation) -> tuple[int, int, int]:
    """Returns the tokens of the prompt, of the output, and of the prompt with known keys and values."""
    request, stage = invocation.run.request, invocation.stage
    if request.text is None or request.media is None or request.output is None:
        raise InvalidInputError(
            "--workload",
            f"{stage.option} has a step model, but the tokens of a request of type {request.kind!r} are unknown: state "
            "text_tokens, output_tokens and the tokens of media",
        )
    prompt = max(1, request.text + request.media)
    if stage.role == "prefill":
        return prompt, 1, 0
    if stage.role == "decode":
        return prompt + 1, max(1, request.output - 1), prompt
    return prompt, request.output, 0


def _fits(invocation: StageInvocation) -> bool:
    model = invocation.replica.model
    if isinstance(model, CurveExecutor):
        return True
    prompt, output, _ = _tokens(invocation)
    return model.limits.fits(prompt, output)


def _check_names(plan: PlanFile, settings: ServingSettings) -> None:
    for flag, names, known in (
        ("--transfer", settings.transfers, plan.options),
        ("--stream", settings.streamed, plan.components),
    ):
        for name in sorted(names):
            if name not in known:
                raise InvalidInputError(flag, f"{name!r} is not in the plan: use one of {', '.join(known)}")
