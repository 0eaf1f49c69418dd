"""`cornserve profile`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cornserve.cli.console import CliError, print_json, stderr, stdout
from cornserve.cli.gateway import open_client
from cornserve.cli.options import HomePath, Json, Url, home_directory

if TYPE_CHECKING:
    from rich.status import Status

    from cornserve.app.app import App
    from cornserve.client import Client
    from cornserve.client.deploy_target import DeployTarget
    from cornserve.profiler.loads import Observations
    from cornserve.profiler.option_mixes import MeasuredOption, OptionMix
    from cornserve.profiler.profiler import Profiler, Report, WorkItem
    from cornserve.profiler.request_templates import RequestTemplate

EXAMPLES = [
    "cornserve profile app.py --requests requests.jsonl",
    "cornserve profile ./Qwen2.5-VL-3B-Instruct --workload day.jsonl --dry-run",
    "cornserve profile app.py --error 0.02 --budget 30m --output profile.json",
]

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def profile(
    ctx: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="APP", help="Python file, model directory, Hugging Face id, or deployed app.")
    ],
    requests: Annotated[
        Path | None,
        typer.Option(
            "--requests",
            help="Requests of the workload: JSON Lines, one request of the app per line. By default, the app's probes.",
        ),
    ] = None,
    workload: Annotated[
        Path | None,
        typer.Option(
            "--workload", help="The planner's file of requests: chats with these sizes and random contents are sent."
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME", help="Option to measure. Can be repeated. By default, all."),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="TYPE", help="Type of slots to use, or name of the machine's devices."),
    ] = None,
    error: Annotated[
        float,
        typer.Option(
            "--error", min=0.001, max=0.5, help="Half width of the 95 % confidence intervals, relative to the rates."
        ),
    ] = 0.03,
    budget: Annotated[
        str, typer.Option("--budget", metavar="TIME", help="Device time, such as 90s, 10m or 1h.")
    ] = "10m",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", dir_okay=False, help="Write the planner's profile to this file.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would be measured, and how long it takes at most.")
    ] = False,
    url: Url = None,
    home: HomePath = None,
    json: Json = False,
) -> None:
    """Measure the deployment options of an app on this machine, for `cornserve plan`.

    Each option runs alone, in one replica of a temporary app. Finished measurements are kept: run the command again to
    continue, or to measure only what has changed.
    """
    from cornserve.profiler.device import UnknownDeviceError
    from cornserve.profiler.option_mixes import RequestsRefusedError
    from cornserve.profiler.profiler import ProfilingError
    from cornserve.profiler.store import ProfileStoreError
    from cornserve.task.errors import DefinitionError

    seconds = _seconds(budget)
    try:
        with open_client(ctx, url) as client:
            templates = _templates(requests, workload)
            status = stderr().status("Starting the first option")
            report = partial(_show_load, status)
            profiler, options = _prepare(client, target, templates, option or [], device, error, home, report)
            if dry_run:
                _show_work(profiler.plan(options), seconds, json)
                return
            with profiler.store.locked():
                missing = _run(profiler, options, seconds, status)
    except (ProfilingError, ProfileStoreError, RequestsRefusedError, UnknownDeviceError, DefinitionError) as failure:
        raise CliError(str(failure)) from failure
    _finish(profiler, options, missing, output, json)


def _prepare(
    client: Client,
    target: str,
    templates: Sequence[RequestTemplate] | None,
    only: Sequence[str],
    device: str | None,
    error: float,
    home: Path | None,
    report: Report,
) -> tuple[Profiler, list[MeasuredOption]]:
    from cornserve.app.graph import no_graph_reason
    from cornserve.app.graph_recording import record_graph
    from cornserve.app.load import load_app, with_all_paths
    from cornserve.profiler.device import Device
    from cornserve.profiler.option_mixes import measured_options
    from cornserve.profiler.profiler import ProfiledApp, Profiler

    resolved = _resolve(client, target)
    spec = with_all_paths(resolved.spec)
    app = load_app(resolved.name, spec, "cornserve_profiled_app")
    graph = record_graph(app)
    if graph is None:
        raise CliError(no_graph_reason(app.name))
    options = measured_options(app, graph, _probes(app) if templates is None else templates, only)
    directory = home_directory(home)
    found = Device.find(directory, device)
    return Profiler(client, directory, ProfiledApp(resolved.name, spec), found, error, report), options


def _resolve(client: Client, target: str) -> DeployTarget:
    from cornserve.client.deploy_target import DeployTarget, resolve_target

    deployed = {app.name: app for app in client.apps()}
    if target in deployed:
        return DeployTarget(target, deployed[target].spec, takes_chats=False)
    return resolve_target(target, name=None)


def _templates(requests: Path | None, workload: Path | None) -> Sequence[RequestTemplate] | None:
    """Returns the requests of a file, or None without one."""
    from pydantic_core import to_json

    from cornserve.bench.requests import RequestError, read_requests
    from cornserve.profiler.request_templates import FixedRequest, WorkloadRefusedError, workload_chats

    if requests is not None and workload is not None:
        raise typer.BadParameter("both give the requests: remove one of them", param_hint="--requests, --workload")
    try:
        if workload is not None:
            return workload_chats(workload)
        return None if requests is None else [FixedRequest(to_json(request)) for request in read_requests(requests)]
    except (RequestError, WorkloadRefusedError) as error:
        raise CliError(str(error)) from error


def _probes(app: App) -> Sequence[RequestTemplate]:
    from pydantic import TypeAdapter

    from cornserve.profiler.request_templates import FixedRequest

    if not app.probes:
        raise CliError(f"{app.name} defines no probes: give its requests with --requests or --workload")
    adapter: TypeAdapter[Any] = TypeAdapter(app.request_type)
    return [FixedRequest(adapter.dump_json(probe)) for probe in app.probes]


def _run(profiler: Profiler, options: Sequence[MeasuredOption], seconds: float, status: Status) -> list[WorkItem]:
    items = profiler.plan(options)
    for reason in dict.fromkeys(f"{item.option.name}: {', '.join(item.stale)}" for item in items if item.stale):
        stderr().print(f"measured again, because of changes: {reason}", markup=False)
    try:
        with status:
            return profiler.run(items, seconds)
    except KeyboardInterrupt:
        stderr().print("interrupted: finished measurements are kept, run the command again to continue")
        raise typer.Exit(130) from None


def _show_load(status: Status, option: MeasuredOption, mix: OptionMix, observations: Observations) -> None:
    from cornserve.profiler.batch_means import estimate_rate

    estimate = estimate_rate(observations.ends)
    rate = "" if estimate is None else f": {estimate.rate:.4g} requests/s ± {estimate.half_width:.1%}"
    done = f"{len(observations.ends)} requests in {observations.now():.0f} s"
    status.update(f"{option.name} with {mix.description}{rate} ({done})")


def _show_work(items: Sequence[WorkItem], seconds: float, json: bool) -> None:
    missing = [item for item in items if item.found is None]
    entries = [
        {
            "option": item.option.name,
            "mix": item.mix.description,
            "requests": len(item.mix.templates),
            "state": "measured" if item.found else f"stale: {', '.join(item.stale)}" if item.stale else "missing",
            "device_seconds_at_most": 0 if item.found else round(seconds / len(missing)),
        }
        for item in items
    ]
    if json:
        print_json(entries)
        return
    for entry in entries:
        limit = f", at most {entry['device_seconds_at_most']} s of device time" if entry["state"] != "measured" else ""
        stdout().print(f"{entry['option']} with {entry['mix']}: {entry['state']}{limit}", markup=False)


def _finish(
    profiler: Profiler, options: Sequence[MeasuredOption], missing: Sequence[WorkItem], output: Path | None, json: bool
) -> None:
    from cornserve.profiler.profile_file import model_profile

    results = {option.name: found for option in options if (found := profiler.current(option)) is not None}
    if results:
        components = {option.name: option.graph.components for option in options}
        document = model_profile(profiler.app.name, results, components)
        if output is not None:
            _write(output, document.dump())
    if json:
        print_json({"options": results, "missing": [[item.option.name, item.mix.description] for item in missing]})
    else:
        from cornserve.cli.profile_table import option_facts, results_table

        stdout().print(results_table(results))
        for name, found in results.items():
            stdout().print(option_facts(name, found), markup=False)
    if missing:
        names = ", ".join(f"{item.option.name} with {item.mix.description}" for item in missing)
        raise CliError(f"the budget did not suffice for {names}: run the command again to continue")


def _write(path: Path, text: str) -> None:
    try:
        path.expanduser().write_text(text)
    except OSError as error:
        raise CliError(f"cannot write {path}: {error.strerror}: give another path with --output") from error


def _seconds(text: str) -> float:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh]?)", text)
    seconds = float(match[1]) * UNITS[match[2]] if match else 0.0
    if not seconds:
        raise typer.BadParameter(f"{text!r} is not a time: give 90s, 10m or 1h", param_hint="--budget")
    return seconds
