"""Measures the options of an app, with progress, for `cornserve profile` and `cornserve deploy`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from cornserve.cli.console import CliError, stderr

if TYPE_CHECKING:
    from rich.status import Status

    from cornserve.client import Client
    from cornserve.client.deploy_target import DeployTarget
    from cornserve.home import Home
    from cornserve.profiler.app_measurement import AppMeasurement, MeasuredApp
    from cornserve.profiler.mix_measurement import Precision
    from cornserve.profiler.profiler import WorkItem
    from cornserve.profiler.request_templates import RequestTemplate

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


class ProfilingOptions(NamedTuple):
    """The options of a command that measures.

    Args:
        requests: a file of requests of the app. `workload`: a file of the sizes of chats. Without both, the app's
            probes are sent.
        only: names of the measured options; empty for all.
        device: a type of slots, or a name for the machine's devices; by default, the first one.
    """

    home: Home
    precision: Precision
    requests: Path | None = None
    workload: Path | None = None
    only: Sequence[str] = ()
    device: str | None = None


@dataclass(frozen=True, slots=True)
class Profiling:
    """The options of an app, and the profiler that measures them."""

    measurement: AppMeasurement
    status: Status

    @classmethod
    def of_target(cls, client: Client, target: DeployTarget, options: ProfilingOptions) -> Profiling:
        """Loads the app, and finds the device and the mixes to measure.

        Runs the code of an app with source, whose prints go to standard error.

        Raises `CliError` or an error that `profiling_errors` converts.
        """
        from cornserve.profiler.app_measurement import AppMeasurement, MeasuredApp
        from cornserve.profiler.device import Device
        from cornserve.profiler.option_mixes import measured_options
        from cornserve.profiler.profiler import Profiler

        with redirect_stdout(sys.stderr):
            loaded = MeasuredApp.load(target.name, target.spec)
            measured = measured_options(loaded.app, loaded.graph, _templates(loaded, options), options.only)
        if client.address.cluster is None:
            device = Device.find(options.home, options.device)
        else:
            device = Device.of_cluster(options.device, client.address.place)
        status = stderr().status("Starting the first option")

        def show(step: str, details: str) -> None:
            status.update(f"{step}{details}")

        profiler = Profiler(client, options.home, loaded.profiled, device, options.precision, show)
        return cls(AppMeasurement(profiler, measured), status)

    def run(self, budget: float) -> list[WorkItem]:
        """Measures what is missing. Returns the items for which the budget did not suffice.

        Args:
            budget: seconds of device time.
        """
        try:
            left = self.measurement.run(budget, partial(self._start, budget))
        except KeyboardInterrupt:
            stderr().print("interrupted: finished measurements are kept, run the command again to continue")
            raise typer.Exit(130) from None
        finally:
            self.status.stop()
        self._warn_of_unsaturated_options()
        return left

    def _warn_of_unsaturated_options(self) -> None:
        from cornserve.profiler.results import describe_mix

        for name, results in self.measurement.results.items():
            for measured in results.measurements:
                if not measured.is_saturated:
                    what = f"{name} with {describe_mix(measured.mix)}"
                    stderr().print(
                        f"warning: {what}: more requests in flight than {measured.levels[-1].concurrency} may increase "
                        "its rate: run the command again with a larger --budget",
                        markup=False,
                    )

    def _start(self, budget: float, items: Sequence[WorkItem]) -> None:
        for reason in dict.fromkeys(f"{item.option.name}: {', '.join(item.stale)}" for item in items if item.stale):
            stderr().print(f"measured again, because of changes: {reason}", markup=False)
        stderr().print(f"measuring {self.measurement.describe_work(items, budget)}", markup=False)
        self.status.start()


@contextmanager
def profiling_errors() -> Iterator[None]:
    """Raises a `CliError` for refusals and failures of measurements."""
    from cornserve.profiler.errors import ProfilingError
    from cornserve.task.errors import DefinitionError

    try:
        yield
    except (DefinitionError, ProfilingError) as error:
        raise CliError(str(error)) from error


def parse_seconds(text: str) -> float:
    """Parses the value of `--budget`, such as 90s, 10m or 1h."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh]?)", text)
    seconds = float(match[1]) * UNITS[match[2]] if match else 0.0
    if not seconds:
        raise typer.BadParameter(f"{text!r} is not a time: give 90s, 10m or 1h", param_hint="--budget")
    return seconds


def _templates(loaded: MeasuredApp, options: ProfilingOptions) -> Sequence[RequestTemplate]:
    from pydantic_core import to_json

    from cornserve.bench.requests import RequestError, read_requests
    from cornserve.profiler.request_templates import FixedRequest, workload_templates

    try:
        if options.workload is not None:
            return workload_templates(options.workload, loaded.app)
        if options.requests is not None:
            return [FixedRequest(to_json(request)) for request in read_requests(options.requests)]
    except RequestError as error:
        raise CliError(str(error)) from error
    if not loaded.app.probes:
        raise CliError(f"{loaded.app.name} defines no probes: give its requests with --requests or --workload")
    return loaded.probes
