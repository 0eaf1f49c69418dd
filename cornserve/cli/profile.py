"""`cornserve profile`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cornserve.cli.app_argument import is_deployed_name
from cornserve.cli.console import CliError, check_file, expanded, print_json, print_warning, stdout, write_file
from cornserve.cli.file_import import run_import
from cornserve.cli.gateway import open_client
from cornserve.cli.options import BUDGET, DEFAULT_BUDGET, HomePath, Json, Url, home_directory

if TYPE_CHECKING:
    from cornserve.client import Client
    from cornserve.client.deploy_target import DeployTarget
    from cornserve.profiler.app_measurement import AppMeasurement
    from cornserve.profiler.profiler import WorkItem

EXAMPLES = [
    "cornserve profile app.py --requests requests.jsonl",
    "cornserve profile ./Qwen2.5-VL-3B-Instruct --workload day.jsonl --dry-run",
    "cornserve profile app.py --error 0.02 --budget 30m --output profile.json",
]


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
            "--workload", help="The planner's file of requests: requests with these sizes and random contents are sent."
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
    budget: Annotated[str, BUDGET] = DEFAULT_BUDGET,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", dir_okay=False, help="Write the planner's profile to this file.")
    ] = None,
    steps: Annotated[
        bool,
        typer.Option(
            "--steps",
            help="Fit the time of an engine's step to the measurements of language models, for simulations. Needs a"
            " budget for three numbers of requests in flight, and later workloads with the tokens of requests.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would be measured, and how long it takes at most.")
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Print stored results with all numbers of requests in flight, and end.")
    ] = False,
    url: Url = None,
    home: HomePath = None,
    json: Json = False,
) -> None:
    """Measure the deployment options of an app on this machine, for `cornserve plan`.

    Each option runs in a temporary app, on all free slots, or in one replica on GPUs. Finished measurements are kept:
    run the command again to continue, or to measure only what has changed.
    """
    from cornserve.cli.profiling import Profiling, ProfilingOptions, parse_seconds, profiling_errors
    from cornserve.profiler.mix_measurement import Precision

    if requests is not None and workload is not None:
        raise typer.BadParameter("both give the requests: remove one of them", param_hint="--requests, --workload")
    seconds = parse_seconds(budget)
    if output is not None:
        check_file(output)
    elif steps:
        raise typer.BadParameter("needs --output, the file with the step models", param_hint="--steps")
    if steps and requests is not None:
        raise typer.BadParameter(
            "repeated requests cost less: engines keep their prompts. Give --workload", param_hint="--steps, --requests"
        )
    options = ProfilingOptions(home_directory(home), Precision(error), requests, workload, option or [], device)
    with profiling_errors(), open_client(ctx, url) as client:
        profiling = Profiling.of_target(client, _target(client, target), options)
        if dry_run:
            _show_work(profiling.measurement, seconds, json)
            return
        missing = [] if show else profiling.run(seconds)
        if output is not None and (results := profiling.measurement.results):
            written = profiling.measurement.profile(results, with_steps=steps)
            write_file(expanded(output), written.dump().encode())
            if lacking := [entry.option for entry in written.options if steps and entry.step is None]:
                print_warning(f"no step model of {', '.join(lacking)}: see `cornserve profile --help`")
        _finish(profiling.measurement, missing, json, curves=show)


def _target(client: Client, app: str) -> DeployTarget:
    from cornserve.client.deploy_target import DeployTarget, resolve_target

    if is_deployed_name(app):
        return DeployTarget(app, client.app(app).spec, f"cornserve invoke {app} JSON")
    return run_import(app, partial(resolve_target, app, name=None))


def _show_work(measurement: AppMeasurement, seconds: float, json: bool) -> None:
    items = measurement.items(seconds)
    missing = [item for item in items if item.found is None]
    replicas = measurement.replicas(items)
    entries = [
        {
            "option": item.option.name,
            "mix": item.mix.description,
            "requests": len(item.mix.templates),
            "state": "measured" if item.found else f"stale: {', '.join(item.stale)}" if item.stale else "missing",
            "device_seconds_at_most": 0 if item.found else round(seconds / len(missing)),
            "replicas": 0 if item.found else replicas[item.option.name].count,
            "memory_bytes": 0 if item.found else replicas[item.option.name].memory,
        }
        for item in items
    ]
    if json:
        print_json(entries)
        return
    for entry in entries:
        needs = ""
        if entry["state"] != "measured":
            count = entry["replicas"]
            needs = f", at most {entry['device_seconds_at_most']} s of device time"
            needs += f", {count} replica{'' if count == 1 else 's'}"
        stdout().print(f"{entry['option']} with {entry['mix']}: {entry['state']}{needs}", markup=False)
    if missing:
        stdout().print(f"measuring {measurement.describe_work(items, seconds)}", markup=False)


def _finish(measurement: AppMeasurement, missing: Sequence[WorkItem], json: bool, *, curves: bool) -> None:
    results = measurement.results
    if curves and not results:
        raise CliError("no current results are stored: run the command without --show to measure")
    if json:
        print_json({"options": results, "missing": [[item.option.name, item.mix.description] for item in missing]})
    else:
        from cornserve.cli.profile_table import curves_table, option_facts, results_table

        stdout().print(results_table(results))
        for name, found in results.items():
            stdout().print(option_facts(name, found), markup=False)
        if curves:
            stdout().print(curves_table(results))
    if missing:
        names = ", ".join(item.what for item in missing)
        raise CliError(f"the budget did not suffice for {names}: run the command again to continue")
