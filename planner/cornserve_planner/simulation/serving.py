"""The serving of a plan: gateways, cells of replicas, and the requests that pass through them.

Decisions are those of the runtime: the path table chooses a cell and a path, a routing policy chooses the replica of
each invocation when the request begins, due times order the invocations of requests with a target, and admission
refuses requests that would miss one. They see what a gateway sees. All gateways of a simulation share one view of the
loads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.simulation.dependent_requests import DependentRequests
from cornserve_planner.simulation.event_queue import EventQueue
from cornserve_planner.simulation.executor_model import CurveExecutor, ExecutorModel
from cornserve_planner.simulation.media_replica import ConcurrentReplica, MediaJob, ServiceCurve
from cornserve_planner.simulation.path_stages import path_stages
from cornserve_planner.simulation.replica_failures import ReplicaFailures
from cornserve_planner.simulation.request_run import RequestRun, StageInvocation
from cornserve_planner.simulation.running_cells import RunningCells
from cornserve_planner.simulation.serving_settings import ServingSettings
from cornserve_planner.simulation.simulated_adaptation import SimulatedAdaptation
from cornserve_planner.simulation.simulated_autoscaling import SimulatedAutoscaling
from cornserve_planner.simulation.simulated_request import SimulatedRequest
from cornserve_planner.simulation.stage_runner import StageListener, StageRunner
from cornserve_planner.simulation.startup_times import ReplicaStartups
from cornserve_policies.admission import AdmittedRequest, LatencyAdmission, Refusal
from cornserve_policies.replayable_random import ReplayableRandom
from cornserve_policies.replica_routing import RoutingPolicy

REPORT_REQUESTS = 1024
"""Progress is reported after this number of requests."""

MOST_DECIDED_DAYS = 14
"""The most simulated days with a controller, which decides every few seconds, also without requests."""


class ServingListener(StageListener, Protocol):
    """Learns what happens to requests. Times are `now` of the event queue."""

    def request_refused(self, request: SimulatedRequest, refusal: Refusal | None) -> None:
        """A request is refused, because it would miss a target or (None) does not fit in an executor."""

    def request_failed(self, run: RequestRun) -> None:
        """A request has failed with its executors."""

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
        settings.check_names(plan)
        self.events = EventQueue()
        self._plan = plan
        self._models = models
        self._settings = settings
        self._listener = listener
        self._runner = StageRunner(self.events, routing, settings, listener, self._end_request)
        self.cells = RunningCells(self.events, plan, models, self._runner, settings.racks)
        startups = ReplicaStartups(plan, settings.startup, settings.startup_times, settings.seed)
        self._failures = ReplicaFailures(self.events, self.cells, self._runner, startups, self._fail_request)
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
            SimulatedAdaptation(self.events, plan, self.cells, most_gpus=settings.most_gpus, startups=startups)
            if settings.adapts
            else None
        )
        limits = {
            name: settings.autoscaling_limits(each) for name, each in settings.autoscaled.items() if each is not None
        }
        self.autoscaling = (
            SimulatedAutoscaling(self.events, plan, self.cells, limits, startups, settings, self._runner.hand_over)
            if limits
            else None
        )
        self._dependent = DependentRequests(self.events, self._receive)
        self._requests: Iterator[SimulatedRequest] = iter(())
        self._on_progress: Callable[[float, int], object] = lambda seconds, requests: None
        self._arrived = 0
        self._has_read_all = False

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
        is_decided = self.adaptation is not None or self.autoscaling is not None
        self._requests = map(_checked, requests) if is_decided else iter(requests)
        self._on_progress = on_progress
        self._arrive(next(self._requests, None))
        if self.adaptation is not None:
            self.adaptation.begin()
        if self.autoscaling is not None:
            self.autoscaling.begin()
        for option, seconds in self._settings.failures:
            self.events.add(seconds, self._failures.fail_replica, option)
        self.events.run()

    def _arrive(self, request: SimulatedRequest | None) -> None:
        """Takes a request and all others that arrive now, and waits for the next one."""
        while request is not None and request.arrival <= self.events.now:
            self._arrived += 1
            if not self._arrived % REPORT_REQUESTS:
                self._on_progress(self.events.now, self._arrived)
            self._dependent.add(request)
            request = next(self._requests, None)
        if request is not None:
            self.events.add(request.arrival, self._arrive, request)
        else:
            self._has_read_all = True
            self._end_adaptation()

    def _receive(self, request: SimulatedRequest) -> None:
        """Takes a request at a gateway."""
        if self._gateway is None:
            self._dispatch(request)
        else:
            self._gateway.submit(MediaJob(owner=request))
        if self.adaptation is not None:
            self.adaptation.count(request.kind)

    def _end_adaptation(self) -> None:
        """Ends the decisions when no more requests arrive."""
        if not (self._has_read_all and self._dependent.is_empty):
            return
        if self.adaptation is not None:
            self.adaptation.end()
        if self.autoscaling is not None:
            self.autoscaling.end()

    def _end_dependency(self, request: SimulatedRequest) -> None:
        if request.name is not None:
            self._dependent.end(request)
            self._end_adaptation()

    def _dispatch(self, request: SimulatedRequest) -> None:
        """Admits a request, chooses its path and the replicas of all of its invocations, and begins the first ones."""
        now = self.events.now
        admitted = self._admission.admit(now, streams=True) if self._admission is not None else None
        if isinstance(admitted, Refusal):
            self._refuse(request, admitted)
            return
        run = self.route(request, admitted)
        if not all(self.fits(invocation) for invocation in run.invocations):
            if admitted is not None:
                admitted.record_end(now - request.arrival, now, is_complete=False)
            self._refuse(request, None)
            return
        run.cell = self.cells.cells[run.way.cell]
        run.cell.requests += 1
        self._runner.start(run)

    def route(self, request: SimulatedRequest, admitted: AdmittedRequest | None = None) -> RequestRun:
        """Returns a request with the invocations of its path, at a cell that serves now."""
        run = RequestRun(request, admitted)
        kind = request.kind if request.kind in self.cells.types else None
        run.way = self.cells.table.choose(kind, ReplayableRandom(request.id))
        for index, stage in enumerate(self._stages[run.way.request_type][run.way.path]):
            run.invocations.append(StageInvocation(run, index, stage, self._runner.next_call()))
        return run

    def _refuse(self, request: SimulatedRequest, refusal: Refusal | None) -> None:
        if refusal is not None and self.autoscaling is not None:
            self.autoscaling.request_refused(refusal)
        self._listener.request_refused(request, refusal)
        self._end_dependency(request)

    def fits(self, invocation: StageInvocation) -> bool:
        """Whether the executor can hold the tokens of an invocation."""
        model = self._models[invocation.stage.executor]
        if isinstance(model, CurveExecutor):
            return True
        prompt, output, _ = invocation.tokens()
        return model.limits.fits(prompt, output)

    def _end_request(self, run: RequestRun) -> None:
        self._leave(run, is_complete=True)
        if self.autoscaling is not None:
            self.autoscaling.request_ended(run)
        self._listener.request_ended(run)
        run.clear()
        self._end_dependency(run.request)

    def _fail_request(self, run: RequestRun) -> None:
        self._leave(run, is_complete=False)
        self._listener.request_failed(run)
        run.clear()
        self._end_dependency(run.request)

    def _leave(self, run: RequestRun, *, is_complete: bool) -> None:
        self.cells.release(run.cell)
        if run.admitted is not None:
            now = self.events.now
            run.admitted.record_end(now - run.request.arrival, now, is_complete=is_complete)


def _checked(request: SimulatedRequest) -> SimulatedRequest:
    """Returns the request. Raises `InvalidInputError` if a controller would make too many decisions before it."""
    days = max(request.arrival, request.delay) / 86400
    if days > MOST_DECIDED_DAYS:
        raise InvalidInputError(
            "--adapt, --autoscale",
            f"a request arrives after {days:.3g} days: at most {MOST_DECIDED_DAYS} are simulated",
        )
    return request


class _Gateway:
    """Passes requests on when a gateway has handled them."""

    def __init__(self, dispatch: Callable[[SimulatedRequest], None]) -> None:
        self._dispatch = dispatch

    def first_output(self, request: SimulatedRequest) -> None: ...

    def ended(self, request: SimulatedRequest) -> None:
        self._dispatch(request)
