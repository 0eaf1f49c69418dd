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
from cornserve.app.record import AppSpec
from cornserve.profiler.cost_estimate import check_budget
from cornserve.profiler.loads import Observations
from cornserve.profiler.option_mixes import MeasuredOption, OptionMix, RequestsRefusedError
from cornserve.profiler.profile_file import model_profile
from cornserve.profiler.profiler import ProfiledApp, Profiler, WorkItem
from cornserve.profiler.request_templates import FixedRequest
from cornserve.profiler.results import OptionResults
from cornserve_planner.profiles.profile import ModelProfile

PLAN_HALF_WIDTH = 0.05
"""The largest half width of the 95 % confidence intervals for a plan, relative to the throughputs."""


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
            on_start(items)
            return self.profiler.run(missing, budget)

    @property
    def results(self) -> dict[str, OptionResults]:
        """The stored results of the options that have any, by name."""
        return {option.name: found for option in self.options if (found := self.profiler.current(option)) is not None}

    def profile(self, results: Mapping[str, OptionResults]) -> ModelProfile:
        """Returns the planner's profile. The results must not be empty."""
        components = {option.name: option.graph.components for option in self.options}
        return model_profile(self.profiler.app.name, results, components)


def describe_load(option: MeasuredOption, mix: OptionMix, observations: Observations) -> str:
    """Returns the progress of a running load, for users."""
    estimate = observations.throughput()
    rate = "" if estimate is None else f": {estimate.rate:.4g} requests/s ± {estimate.half_width:.1%}"
    done = f"{len(observations.ends)} requests in {observations.now():.0f} s"
    return f"{option.name} with {mix.description}{rate} ({done})"
