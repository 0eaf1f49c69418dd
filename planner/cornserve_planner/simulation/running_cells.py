"""The cells of a simulation: their replicas as gateways see them, and their GPUs over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from math import inf
from typing import Any, Protocol

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.plan_file.parts import ANY_GPU, PlannedCell
from cornserve_planner.simulation.event_queue import EventQueue
from cornserve_planner.simulation.executor_model import ExecutorModel, TokenExecutor
from cornserve_planner.simulation.language_model import LanguageModelReplica
from cornserve_planner.simulation.media_replica import BatchReplica, ConcurrentReplica, ServiceListener
from cornserve_planner.simulation.path_stages import replicas_by_executor, shared_executors
from cornserve_planner.simulation.racks import RackPlace, Racks, RackTopology
from cornserve_policies.board import Board, ReplicaLoad
from cornserve_policies.path_table import PathTable, RoutableCell

MOST_REPLICAS = 1_000_000
"""The most replicas that are simulated: each needs about 2 kB of memory."""


class ReplicaEngine(Protocol):
    busy_seconds: float

    def submit(self, job: Any, /) -> None: ...

    def cancel(self, job: Any, /) -> None: ...

    def stop(self) -> None:
        """Ends now, with all of its jobs."""


class ServingReplica:
    """A replica of an option, with its load as the gateways see it, and its network.

    Args:
        start_engine: returns an engine without load.
        place: its GPUs in a rack, if there are racks.
    """

    __slots__ = (
        "_start_engine", "ended", "engines", "invocations", "load", "model", "place", "receives_until", "sends_until",
        "started",
    )  # fmt: skip

    def __init__(
        self,
        id: str,
        model: ExecutorModel,
        start_engine: Callable[[ExecutorModel], ReplicaEngine],
        started: float,
        place: RackPlace | None,
    ) -> None:
        self._start_engine = start_engine
        self.started = started
        self.ended: float | None = None
        """The time from which it takes no more invocations; None while it does."""
        self.load = ReplicaLoad(id)
        self.model = model
        self.engines = [start_engine(model)]
        """The running engine, after those that have failed."""
        self.invocations: dict[Any, None] = {}
        """The invocations that have not ended."""
        self.sends_until = self.receives_until = 0.0
        self.place = place

    @property
    def engine(self) -> ReplicaEngine:
        return self.engines[-1]

    @property
    def busy_seconds(self) -> float:
        return sum(engine.busy_seconds for engine in self.engines)

    @property
    def preemptions(self) -> int:
        return sum(engine.preemptions for engine in self.engines if isinstance(engine, LanguageModelReplica))

    def seconds(self, cell: ServingCell, end: float) -> float:
        """Returns the seconds for which it has run until `end`."""
        until = min(end, inf if cell.ended is None else cell.ended, inf if self.ended is None else self.ended)
        return max(0.0, until - self.started)

    def free_gpus(self) -> None:
        """Lets other replicas have its GPUs in the rack."""
        if self.place is not None:
            self.place.leave()

    def restart(self) -> None:
        """Stops the engine, and replaces it by one without load."""
        self.engine.stop()
        self.engines.append(self._start_engine(self.model))


class ReplicaGroup:
    """The replicas of an executor in a cell."""

    __slots__ = ("_arrived", "_loads", "_waiting", "board", "replicas", "running", "unavailable")

    def __init__(self, replicas: Iterable[ServingReplica]) -> None:
        self.replicas = {replica.load.id: replica for replica in replicas}
        self.unavailable: set[str] = set()
        """The ids of the replicas that have failed and do not serve again yet."""
        self._loads = [self.replicas[id].load for id in sorted(self.replicas)]
        self.board = Board(self._loads, self.unavailable)
        self.running = len(self.replicas)
        """The replicas that run or start."""
        self._arrived = 0
        self._waiting: list[tuple[Callable[[Any], object], Any]] = []

    @property
    def serving(self) -> list[str]:
        """The ids of the replicas that take invocations."""
        return [load.id for load in self._loads]

    def count_arrival(self) -> None:
        """Counts an invocation that is placed."""
        self._arrived += 1

    def take_arrived(self) -> int:
        """Returns the invocations since the last call."""
        arrived, self._arrived = self._arrived, 0
        return arrived

    def add(self, replica: ServingReplica) -> None:
        """Adds a replica that starts. It serves after `serve`."""
        self.replicas[replica.load.id] = replica
        self.running += 1

    def serve(self, replica: ServingReplica) -> None:
        """Lets a replica take invocations, unless it has been stopped."""
        if replica.ended is None:
            self._loads.append(replica.load)
            self._loads.sort(key=lambda load: load.id)
            self._call_waiting()

    def recover(self, id: str) -> None:
        """Lets a replica that has failed take invocations again."""
        self.unavailable.discard(id)
        self._call_waiting()

    def call_when_available(self, handler: Callable[[Any], object], argument: Any) -> None:
        """Calls `handler(argument)` when another replica takes invocations."""
        self._waiting.append((handler, argument))

    def _call_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for handler, argument in waiting:
            handler(argument)

    def stop_newest(self, now: float) -> ServingReplica:
        """Lets the replica that has started last take no more invocations, and returns it."""
        replica = next(each for each in reversed(self.replicas.values()) if each.ended is None)
        replica.ended = now
        replica.free_gpus()
        self.running -= 1
        if replica.load in self._loads:
            self._loads.remove(replica.load)
        return replica


class ServingCell:
    """A cell from the start of its replicas to their end.

    Args:
        groups: the replicas of each executor.
        started: the time of its start.
    """

    __slots__ = ("ended", "groups", "is_draining", "name", "planned", "requests", "started")

    def __init__(self, name: str, planned: PlannedCell, groups: Mapping[str, ReplicaGroup], started: float) -> None:
        self.name = name
        self.planned = planned
        self.groups = groups
        self.started = started
        self.ended: float | None = None
        self.requests = 0
        """The requests that it serves."""
        self.is_draining = False


class RunningCells:
    """The cells that run, and the table by which gateways choose among those that serve.

    Args:
        topology: the racks in which replicas are placed.

    Raises `InvalidInputError` if no cell of the plan runs, or if they have too many replicas.
    """

    def __init__(
        self,
        events: EventQueue,
        plan: PlanFile,
        models: Mapping[str, ExecutorModel],
        listener: ServiceListener,
        topology: RackTopology | None,
    ) -> None:
        self._events = events
        self._plan = plan
        self._models = models
        self._listener = listener
        self._racks = None if topology is None else Racks(topology)
        self.executors = shared_executors(plan)
        self._planned = {cell.gpus: cell for cell in plan.cells}
        self._numbers = {gpus: count() for gpus in self._planned}
        replicas = sum(cell.count * sum(cell.replicas.values()) for cell in plan.cells)
        if replicas > MOST_REPLICAS:
            raise InvalidInputError("cells", f"run {replicas:,} replicas: at most {MOST_REPLICAS:,} are simulated")
        self.cells: dict[str, ServingCell] = {}
        """All cells that have started, by name."""
        started = [self.start(gpus) for gpus, number in plan.counts.items() for _ in range(number)]
        if not started:
            raise InvalidInputError("cells", "none runs: make the plan for a rate or a number of GPUs")
        self.table: PathTable
        self.types: frozenset[str] = frozenset()
        """The request types that the cells serve. Others are routed as the default type."""
        self.serve(started)

    def start(self, gpus: int) -> ServingCell:
        """Starts a cell with this number of GPUs. It serves requests after `serve`."""
        planned, name = self._planned[gpus], f"{gpus}-{next(self._numbers[gpus])}"
        groups = {
            option: ReplicaGroup(self._replica(f"{name}/{option}/{number:06}", option) for number in range(replicas))
            for option, replicas in replicas_by_executor(planned, self.executors).items()
        }
        self.cells[name] = ServingCell(name, planned, groups, self._events.now)
        return self.cells[name]

    def start_replica(self, cell: str, executor: str, group: ReplicaGroup) -> ServingReplica:
        """Starts another replica in a cell. It serves requests after `group.serve`."""
        replica = self._replica(f"{cell}/{executor}/{len(group.replicas):06}", executor)
        group.add(replica)
        return replica

    def serve(self, cells: Iterable[ServingCell]) -> None:
        """Lets exactly these cells serve new requests. The others end with their last requests."""
        serving = list(cells)
        routable = [RoutableCell(cell.name, cell.planned.rate, cell.planned.probabilities) for cell in serving]
        types = {name: kind.components for name, kind in self._plan.types.items()}
        served = [name for name in types if any(name in cell.probabilities for cell in routable)]
        self.types = frozenset(served)
        self.table = PathTable(types, self._plan.default_type or served[0], routable)
        for cell in self.cells.values():
            if cell not in serving and not cell.is_draining:
                cell.is_draining = True
                self._end_idle(cell)

    def release(self, cell: ServingCell) -> None:
        """Ends a request of a cell."""
        cell.requests -= 1
        if cell.is_draining:
            self._end_idle(cell)

    def gpu_seconds(self, end: float) -> dict[str, float]:
        """Returns the seconds of GPUs by type, until the end of the simulation, including idle GPUs."""
        seconds: dict[str, float] = {}
        for cell in self.cells.values():
            for name, gpus in cell.planned.gpus_of.items():
                until = end if cell.ended is None else min(end, cell.ended)
                seconds[name] = seconds.get(name, 0.0) + gpus * max(0.0, until - cell.started)
            for executor, group in cell.groups.items():
                option = self._plan.options[executor]
                name = option.gpu_type or ANY_GPU
                changed = self._changed_seconds(cell, executor, group, end)
                if changed:
                    seconds[name] = seconds.get(name, 0.0) + option.gpus * changed
        return seconds

    def _changed_seconds(self, cell: ServingCell, executor: str, group: ReplicaGroup, end: float) -> float:
        """Returns the seconds of replicas beyond those of the plan. They are negative if replicas have been stopped."""
        if all(each.ended is None and each.started == cell.started for each in group.replicas.values()):
            return 0.0
        planned = replicas_by_executor(cell.planned, self.executors)[executor]
        until = end if cell.ended is None else min(end, cell.ended)
        present = sum(replica.seconds(cell, end) for replica in group.replicas.values())
        return present - planned * max(0.0, until - cell.started)

    def _end_idle(self, cell: ServingCell) -> None:
        if not cell.requests:
            cell.ended = self._events.now
            for group in cell.groups.values():
                for replica in group.replicas.values():
                    replica.free_gpus()

    def _replica(self, id: str, option: str) -> ServingReplica:
        """Starts a replica, in a rack if there are any."""
        place = None if self._racks is None else self._racks.place(option, self._plan.options[option].gpus)
        return ServingReplica(id, self._models[option], self._engine, self._events.now, place)

    def _engine(self, model: ExecutorModel) -> ReplicaEngine:
        return start_engine(self._events, model, self._listener)


def start_engine(events: EventQueue, model: ExecutorModel, listener: ServiceListener) -> ReplicaEngine:
    """Returns an engine without load."""
    if isinstance(model, TokenExecutor):
        return LanguageModelReplica(events, model.model, model.limits, listener)
    replica = ConcurrentReplica if model.joins else BatchReplica
    return replica(events, model.curve, listener)
