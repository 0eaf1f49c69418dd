"""The measurement of the options of one app, which the command line and controllers share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from pydantic import TypeAdapter

from cornserve.app.app import App
from cornserve.app.graph import AppGraph, no_graph_reason
from cornserve.app.graph_recording import record_graph
from cornserve.app.load import load_app, with_all_paths
from cornserve.app.spec import AppSpec
from cornserve.durations import describe_duration, describe_estimate
from cornserve.profiler.cost_estimate import check_budget
from cornserve.profiler.memory_need import describe_memory
from cornserve.profiler.mix_measurement import Precision
from cornserve.profiler.option_mixes import MeasuredOption, RequestsRefusedError
from cornserve.profiler.profile_file import model_profile
from cornserve.profiler.profiler import MeasuredReplicas, Profiler, WorkItem
from cornserve.profiler.remaining_time import RemainingTime
from cornserve.profiler.request_templates import FixedRequest
from cornserve.profiler.results import OptionResults
from cornserve.profiler.running_option import ProfiledApp
from cornserve_planner.profiles.profile import ModelProfile

PLAN_PRECISION = Precision(0.05, has_arrivals=False)
"""The precision for a plan."""


@dataclass(frozen=True, slots=True)
class MeasuredApp:
    """An app with its executor graph.

    Args:
        spec: has all paths of a model.
    """

    spec: AppSpec
    app: App
    graph: AppGraph

    @classmethod
    def load(cls, name: str, spec: AppSpec) -> Self:
        """Runs the code of an app with source. Raises `DefinitionError`, or `RequestsRefusedError` without a graph."""
        spec = with_all_paths(spec)
        app = load_app(name, spec, "cornserve_profiled_app")
        graph = record_graph(app)
        if graph is None:
            raise RequestsRefusedError(no_graph_reason(name))
        return cls(spec, app, graph)

    @property
    def profiled(self) -> ProfiledApp:
        return ProfiledApp(self.app.name, self.spec)

    @property
    def probes(self) -> list[FixedRequest]:
        """The probes of the app as requests."""
        adapter: TypeAdapter[Any] = TypeAdapter(self.app.request_type)
        return [FixedRequest(adapter.dump_json(probe)) for probe in self.app.probes]


@dataclass(frozen=True, slots=True)
class AppMeasurement:
    """The options of an app, and the profiler that measures them."""

    profiler: Profiler
    options: Sequence[MeasuredOption]

    def items(self, budget: float) -> list[WorkItem]:
        """Returns what is measured already, and what has to be measured. Raises `BudgetTooSmallError`.

        Args:
            budget: seconds of device time.
        """
        items = self.profiler.plan(self.options)
        check_budget([item.cost for item in items if item.found is None], budget)
        return items

    def run(self, budget: float, on_start: Callable[[Sequence[WorkItem]], object]) -> list[WorkItem]:
        """Measures what is missing. Returns the items for which the budget did not suffice.

        Args:
            budget: seconds of device time.
            on_start: called with all items before the first measurement.
        """
        items = self.items(budget)
        missing = [item for item in items if item.found is None]
        if not missing:
            return []
        with self.profiler.store.locked():
            self.profiler.count_free_slots()
            self.profiler.device.check_slots({item.option.name: item.option.graph.gpus for item in missing})
            self.replicas(missing)  # Refuses options that do not fit the memory before anything starts.
            on_start(items)
            return self.profiler.run(missing, budget)

    def replicas(self, items: Sequence[WorkItem]) -> dict[str, MeasuredReplicas]:
        """Returns the replicas of each option with missing items, by name. Raises `NotEnoughMemoryError`."""
        missing = {item.option.name: item.option for item in items if item.found is None}
        return {name: self.profiler.replicas(option) for name, option in missing.items()}

    def describe_work(self, items: Sequence[WorkItem], budget: float) -> str:
        """Returns how many mixes are measured, about how long this takes and how much memory, for users.

        Raises `NotEnoughMemoryError`.

        Args:
            budget: seconds of device time.
        """
        missing = [item for item in items if item.found is None]
        expected = RemainingTime.of([item.cost for item in missing], budget).seconds(0.0)
        memory = max((replicas.memory or 0 for replicas in self.replicas(items).values()), default=0)
        return (
            f"{len(missing)} of {len(items)} mixes: about {describe_estimate(expected)}, at most "
            f"{describe_duration(budget)} of device time"
            + (f", about {describe_memory(memory)} of memory" if memory else "")
        )

    @property
    def results(self) -> dict[str, OptionResults]:
        """The stored results of the options that have any, by name."""
        return {option.name: found for option in self.options if (found := self.profiler.current(option)) is not None}

    def profile(self, results: Mapping[str, OptionResults], *, with_steps: bool = False) -> ModelProfile:
        """Returns the planner's profile. The results must not be empty.

        Args:
            with_steps: whether language models have step models.
        """
        components = {option.name: option.graph.components for option in self.options}
        return model_profile(self.profiler.app.name, results, components, with_steps=with_steps)
