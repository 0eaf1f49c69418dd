"""A process that measures the options of an app for a controller.

It reads a `ProfilingJob` from a file, or from the first line of its standard input, and writes a `ProfilingMessage` in
a line of its standard output. With the standard input, it ends when this closes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TextIO, get_args

from cornserve.app.graph import AppGraph
from cornserve.app.planning import WorkloadType
from cornserve.bench.workload_chats import GeneratedChat
from cornserve.client import Client, ClientError
from cornserve.control.planning.input_checks import check_inputs
from cornserve.control.profiling.job import ProfilingJob, ProfilingMessage
from cornserve.home import Home
from cornserve.profiler.app_measurement import PLAN_PRECISION, AppMeasurement, MeasuredApp
from cornserve.profiler.cost_estimate import BudgetTooSmallError
from cornserve.profiler.device import Device
from cornserve.profiler.errors import ProfilingError
from cornserve.profiler.option_mixes import measured_options
from cornserve.profiler.profiler import Profiler, ProfilingInterruptedError, SlowOptionError, WorkItem
from cornserve.profiler.request_templates import RequestTemplate, native_template
from cornserve.profiler.results import OptionResults
from cornserve.profiler.store import ProfileStore, ProfileStoreError
from cornserve.task.errors import DefinitionError
from cornserve_planner.errors import PlannerError
from cornserve_planner.requests.request import WorkloadAudio, WorkloadImage, WorkloadRequest, WorkloadVideo
from cornserve_planner.requests.request_sizes import SizeUnit
from cornserve_planner.solve.budget import Budget
from cornserve_tasklib.talker import TalkerTask

PROGRESS_SECONDS = 10.0
"""The least time between two messages about the same step."""

IMAGE_PIXELS = 448 * 448
"""The assumed size of images of an unknown size."""

CHAT_SIZES = frozenset(get_args(SizeUnit)) - {"output_images", "output_image_pixels"}
"""The sizes of generated chats. Images of a number of tokens have the assumed size, and speech that of the model."""


class UnmeasurableError(ProfilingError):
    """The app cannot be measured. The message is for users."""


@dataclass(frozen=True, slots=True)
class Messages:
    """The output of the process."""

    output: TextIO
    job: ProfilingJob

    def send(self, message: ProfilingMessage) -> None:
        print(self.job.line(message), file=self.output, flush=True)


@dataclass(frozen=True, slots=True)
class ReportedStore(ProfileStore):
    """A store that also reports its results."""

    messages: Messages

    def write(self, results: OptionResults) -> None:
        ProfileStore.write(self, results)
        file = self.file(results.spec, results.conditions.device)
        self.messages.send(ProfilingMessage(measured={file.name: results.model_dump_json()}))


class _Progress:
    """Reports each step when it begins, and then its progress from time to time."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self._step, self._last = "", 0.0

    def __call__(self, step: str, details: str) -> None:
        now = time.monotonic()
        if step == self._step and now < self._last + PROGRESS_SECONDS:
            return
        self._step, self._last = step, now
        self._messages.send(ProfilingMessage(progress=f"{step}{details}"))


def measure(job: ProfilingJob, home: Home, messages: Messages) -> ProfilingMessage:
    """Measures what the store of the home lacks. Returns the profile. Raises `UnmeasurableError`."""
    loaded = MeasuredApp.load(job.app, job.spec)
    try:
        check_inputs(job.app, loaded.graph, job.workload, Budget(job.gpus, job.gpus_of))
    except PlannerError as error:
        raise UnmeasurableError(str(error)) from error
    options = measured_options(loaded.app, loaded.graph, _templates(loaded, job.workload), ())
    device = _device(job, home)
    _check_device(job, loaded.graph, device)
    with Client(job.gateway) as client:
        progress = _Progress(messages)
        profiler = Profiler(client, home, loaded.profiled, device, PLAN_PRECISION, progress, job.prefix)
        profiler.store = ReportedStore(profiler.store.path, messages)
        measurement = AppMeasurement(profiler, options)
        _run(measurement, job.seconds, messages)
    profile = measurement.profile(measurement.results)
    return ProfilingMessage(profile=profile.fields, gpu_type=device.slot_type)


def _device(job: ProfilingJob, home: Home) -> Device:
    """Returns the device that the app asks for. Raises `UnmeasurableError` if it asks for several."""
    types = sorted({override.gpu_type for override in job.spec.executors if override.gpu_type is not None})
    if len(types) > 1:
        raise UnmeasurableError(f"the executors need the GPU types {', '.join(types)}: give a profile of all of them")
    name = types[0] if types else None
    if not job.place:
        return Device.find(home, name)
    return Device.of_cluster(name, job.place, cpu_image=job.cpu_image, gpu_image=job.gpu_image)


def _check_device(job: ProfilingJob, graph: AppGraph, device: Device) -> None:
    """Raises `NoSlotsError` or `UnmeasurableError` if the plan needs another device."""
    device.check_plan(Budget(job.gpus, job.gpus_of), "planning.gpus")
    for option, gpu_type in job.gpu_types.items():
        if option not in graph.options:
            raise UnmeasurableError(
                f"planning.gpu_types.{option}: is not an option of {job.app}: use one of {', '.join(graph.options)}"
            )
        if gpu_type != device.name:
            raise UnmeasurableError(
                f"planning.gpu_types.{option}: is {gpu_type}, but the options are measured on {device.name}: set the "
                "GPU type of the executors, or give a profile"
            )


def _run(measurement: AppMeasurement, seconds: float, messages: Messages) -> None:
    def show_start(items: Sequence[WorkItem]) -> None:
        messages.send(ProfilingMessage(progress=f"measuring {measurement.describe_work(items, seconds)}"))

    try:
        left = measurement.run(seconds, show_start)
    except BudgetTooSmallError as error:
        raise UnmeasurableError(f"{error.shortage}: set profiling_seconds to at least {error.needed}") from error
    if left:
        names = ", ".join(item.what for item in left)
        raise UnmeasurableError(f"the device time of {seconds:g} s did not suffice for {names}: increase it")


def _templates(loaded: MeasuredApp, workload: Mapping[str, WorkloadType]) -> Sequence[RequestTemplate]:
    """Returns the probes of the app, or chats with the mean sizes of the request types."""
    chats = (chat_of_type(kind) for kind in workload.values() if kind.share)
    return loaded.probes or [native_template(chat, loaded.app) for chat in chats]


def chat_of_type(kind: WorkloadType) -> GeneratedChat:
    """Returns a chat of a request type, whose response is spoken if the type needs a talker."""
    return replace(chat_of_sizes(kind.sizes), is_spoken=TalkerTask.executor in kind.components)


def chat_of_sizes(sizes: Mapping[str, float]) -> GeneratedChat:
    """Returns a chat with the mean sizes of a request type, whose audio and videos are one of each.

    Images of unknown sizes have `IMAGE_PIXELS` each. Raises `UnmeasurableError` for output images.
    """
    if other := sorted(unit for unit, size in sizes.items() if size and unit not in CHAT_SIZES):
        raise UnmeasurableError(
            f"planning.workload: has {', '.join(other)}, which cannot be generated: define probes of the app, or give "
            "a profile"
        )
    images = round(sizes.get("images", 0))
    side = max(1, round(sqrt(sizes.get("image_pixels", images * IMAGE_PIXELS) / max(images, 1))))
    request = WorkloadRequest(
        arrival=0,
        text_tokens=max(1, round(sizes.get("text_tokens", 0))),
        images=(WorkloadImage(width=side, height=side),) * images,
        audios=tuple(WorkloadAudio(**known) for known in _known(sizes, "audio")),
        videos=tuple(WorkloadVideo(**known) for known in _known(sizes, "video")),
        output_tokens=round(sizes.get("output_tokens", 0)),
    )
    return GeneratedChat.of(request)


def _known(sizes: Mapping[str, float], modality: str) -> Iterator[dict[str, Any]]:
    """Yields the total seconds and tokens of the media of a modality, if there are any."""
    seconds, tokens = sizes.get(f"{modality}_seconds"), sizes.get(f"{modality}_tokens")
    if seconds or tokens:
        yield {"seconds": seconds or None, "tokens": round(tokens or 0) or None}


def outcome(job: ProfilingJob, results: Path | None, messages: Messages) -> ProfilingMessage:
    """Returns the last message of the process.

    Args:
        results: a directory with the results of earlier measurements, for a job without a home.
    """
    try:
        with _home(job, results) as home:
            return measure(job, home, messages)
    except SlowOptionError as error:
        return ProfilingMessage(interruption=str(error), slow_start=error.what)
    except (ClientError, ProfileStoreError, ProfilingInterruptedError) as error:
        return ProfilingMessage(interruption=str(error))
    except (DefinitionError, ProfilingError) as error:
        return ProfilingMessage(error=str(error))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", type=Path, metavar="FILE", help="the job (default: the standard input)")
    parser.add_argument("--results", type=Path, metavar="DIR", help="results of earlier measurements")
    options = parser.parse_args()
    output = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # Code of apps may print.
    signal.signal(signal.SIGTERM, _stop)
    content = sys.stdin.buffer.readline() if options.job is None else options.job.read_bytes()
    if options.job is None:
        threading.Thread(target=_stop_at_the_end_of_input, daemon=True).start()
    job = ProfilingJob.model_validate_json(content)
    messages = Messages(output, job)
    messages.send(outcome(job, options.results, messages))
    return 0


def _stop(*_: object) -> None:
    sys.exit(128 + signal.SIGTERM)


def _stop_at_the_end_of_input() -> None:
    """Reads without the lock of `sys.stdin`, which Python needs at its end."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def _home(job: ProfilingJob, results: Path | None) -> Iterator[Home]:
    """Yields the home of the job, or a temporary one with the earlier results."""
    if job.home is not None:
        yield Home(job.home)
        return
    with TemporaryDirectory(prefix="cornserve-profiler-") as folder:
        home = Home(Path(folder))
        store = ProfileStore.of(home)
        store.path.mkdir()
        for file in [] if results is None or not results.is_dir() else results.glob("*.json"):
            shutil.copyfile(file, store.path / file.name)
        yield home


if __name__ == "__main__":
    sys.exit(main())
