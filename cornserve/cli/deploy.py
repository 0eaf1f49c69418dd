"""`cornserve deploy`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cornserve.cli.adaptation_options import with_adaptation
from cornserve.cli.autoscaling_options import AutoscalingOption, with_autoscaling
from cornserve.cli.console import CliError, print_error, print_json, print_warning, stderr
from cornserve.cli.derived_capacity import CapacityInputs, check_names, derive_capacities
from cornserve.cli.engine_options import MODEL, EngineOption, Revision, TrustRemoteCode, engine_options
from cornserve.cli.file_import import run_import
from cornserve.cli.gateway import open_client
from cornserve.cli.media_options import MediaIoKwargs, MmProcessorKwargs, default_media_options
from cornserve.cli.options import BUDGET, Json, Url, WaitTimeout
from cornserve.cli.target_options import with_latency_targets
from cornserve_planner.commands.plan_options import (
    INPUTS,
    Gpus,
    GpusOf,
    Percentile,
    PlanObjective,
    ProfileFile,
    Rate,
    Survive,
    Utilization,
    WorkloadFile,
)

if TYPE_CHECKING:
    from cornserve.app.graph_recording import SpecGraph
    from cornserve.app.record import AppView
    from cornserve.client import Client
    from cornserve.client.deadline import Deadline
    from cornserve.client.deploy_target import DeployTarget


APP, SERVING = "App", "Load and latency"
"""Groups of options in the help."""


def deploy(
    ctx: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py | MODEL", help="A Python file with an App, a model directory, or a Hugging Face id."
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            help="Name of the app. By default, the name of the model. A Python file contains the name.",
            rich_help_panel=APP,
        ),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(
            "--replicas",
            min=1,
            max=64,
            help="Replicas of each executor. By default, 1 for a new app, else the current number.",
            rich_help_panel=APP,
        ),
    ] = None,
    routing: Annotated[
        str,
        typer.Option(
            "--routing",
            metavar="POLICY",
            help="How replicas are selected: least-loaded, least-tokens, power-of-two, static, or a policy of another "
            "package.",
            rich_help_panel=APP,
        ),
    ] = "least-loaded",
    late_binding: Annotated[
        bool,
        typer.Option(
            "--late-binding",
            help="Select a replica that reads the tensors of one invocation when they exist, such as the decode "
            "executor after the prefill. By default, it is selected together with the replica that makes them.",
        ),
    ] = False,
    share: Annotated[
        list[str] | None,
        typer.Option(
            "--share",
            metavar="PATH=WEIGHT",
            help="Share of the requests for a path of the model's family: --share monolith=1 --share e-el=3.",
            rich_help_panel=APP,
        ),
    ] = None,
    option: EngineOption = None,
    engine_arg: Annotated[
        list[str] | None,
        typer.Option(
            "--engine-arg",
            metavar="NAME=VALUE",
            help="Further argument of vLLM's AsyncEngineArgs: --engine-arg block_size=64.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    trust_remote_code: TrustRemoteCode = False,
    revision: Revision = None,
    lora: Annotated[
        str | None,
        typer.Option(
            "--lora",
            metavar="NAME",
            help="LoRA adapter that the app applies, from the option lora_modules: --option "
            '\'lora_modules={"sql": "/models/sql"}\' --lora sql. It is also the default name of the app.',
            rich_help_panel=MODEL,
        ),
    ] = None,
    drawer: Annotated[
        str | None,
        typer.Option(
            "--drawer",
            metavar="MODEL",
            help="Image model with which the app draws when a chat asks for a picture: a directory or Hugging Face id.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    media_io_kwargs: MediaIoKwargs = None,
    mm_processor_kwargs: MmProcessorKwargs = None,
    allow_path: Annotated[
        list[Path] | None,
        typer.Option(
            "--allow-path",
            metavar="PATH",
            help="File or directory that the app's code may read and change, where the gateway runs, besides its "
            "temporary files. Can be repeated.",
            rich_help_panel=APP,
        ),
    ] = None,
    log_messages: Annotated[
        bool,
        typer.Option(
            "--log-messages",
            help="Log the messages of errors of the app's code, not only their types. They may quote requests.",
            rich_help_panel=APP,
        ),
    ] = False,
    plan: Annotated[
        Path | None,
        typer.Option(
            "--plan",
            metavar="FILE",
            help="Deploy the cells of this plan file, which `cornserve plan --save` writes.",
            rich_help_panel=INPUTS,
        ),
    ] = None,
    adapt: Annotated[
        list[str] | None,
        typer.Option(
            "--adapt",
            metavar="on | NAME=VALUE",
            help="Run more or fewer cells of the plan when the load changes, with these settings: --adapt max_rate=40 "
            "--adapt approval=true.",
            rich_help_panel=SERVING,
        ),
    ] = None,
    ttft: Annotated[
        float | None,
        typer.Option(
            "--ttft",
            metavar="SECONDS",
            help="Target of the time to the first chunk of a streamed response. It also limits the plan that is made.",
            rich_help_panel=SERVING,
        ),
    ] = None,
    tbt: Annotated[
        float | None,
        typer.Option(
            "--tbt",
            metavar="SECONDS",
            help="Target of the time between two chunks. It also limits the plan that is made.",
            rich_help_panel=SERVING,
        ),
    ] = None,
    e2e: Annotated[
        float | None,
        typer.Option(
            "--e2e",
            metavar="SECONDS",
            help="Target of the time to the end of the response. It also limits the plan that is made.",
            rich_help_panel=SERVING,
        ),
    ] = None,
    percentile: Percentile = None,
    admission: Annotated[
        bool,
        typer.Option(
            "--admission",
            help="Refuse requests that are not expected to meet --ttft or --e2e, with a 429.",
            rich_help_panel=SERVING,
        ),
    ] = False,
    autoscale: Annotated[
        list[str] | None,
        typer.Option(
            "--autoscale",
            metavar="EXECUTOR[=LOAD] | NAME=SECONDS",
            help="Run more or fewer replicas of this executor when its load changes, with a plan within its GPUs. One "
            "replica takes this load per second: --autoscale llm=2000tokens:1-4 --autoscale resize=8requests. By "
            "default, the most within its part of --ttft, by --profile and --workload: --autoscale llm:1-4.",
            rich_help_panel=SERVING,
        ),
    ] = None,
    gpus: Gpus = None,
    gpus_of: GpusOf = None,
    rate: Rate = None,
    objective: PlanObjective = None,
    utilization: Utilization = None,
    survive: Survive = False,
    options: Annotated[
        Path | None,
        typer.Option(
            "--options",
            metavar="FILE",
            help="File with the GPU types of the deployment options to plan.",
            rich_help_panel=INPUTS,
        ),
    ] = None,
    workload: WorkloadFile = None,
    profile: ProfileFile = None,
    measuring: Annotated[str | None, BUDGET] = None,
    timeout: WaitTimeout = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the app serves.")] = True,
    url: Url = None,
    json: Json = False,
) -> None:
    """Serve a model or an app, and show its progress while it starts.

    If an app with this name exists, the new generation replaces the current one as soon as it is ready.
    """
    from cornserve.cli.app_model import target_graph
    from cornserve.cli.local_slots import check_slots
    from cornserve.cli.planned_target import PlanBudget, plan_target
    from cornserve.client.deadline import Deadline
    from cornserve.client.deploy_target import resolve_target

    budget = PlanBudget(
        gpus=gpus,
        gpus_of=gpus_of or [],
        rate=rate,
        objective=objective,
        options=options,
        workload=workload,
        profile=profile,
        measuring=measuring,
        utilization=utilization,
        percentile=percentile,
        survive=survive,
    )
    scaling = AutoscalingOption.parse(autoscale or [])
    is_planned = budget.check(plan, reads_profile=bool(scaling.derived))
    if is_planned and share:
        raise CliError("--share: the plan determines the shares of the paths: remove it")
    if scaling.derived and plan is not None:
        raise CliError(f"--autoscale: --plan gives no load of a replica: give {scaling.derived[0]}=2000tokens")
    inputs = CapacityInputs.of(scaling.derived, ttft, workload, profile)
    deadline = Deadline(timeout)

    def resolve() -> tuple[DeployTarget, SpecGraph | None]:
        resolved = resolve_target(
            target,
            name=name,
            replicas=replicas,
            routing=routing,
            binding="late" if late_binding else "early",
            shares=_shares(share or []),
            options=engine_options(option or [], engine_arg or [], trust_remote_code),
            revision=revision,
            lora=lora,
            drawer=drawer,
            media_options=default_media_options(media_io_kwargs, mm_processor_kwargs),
            allow_paths=[os.path.abspath(path) for path in allow_path or []],
            log_messages=log_messages,
            plan=plan,
        )
        return resolved, target_graph(resolved) if is_planned or inputs else None

    resolved, graph = run_import(target, resolve, deadline)
    resolved = with_adaptation(resolved, adapt or [])
    resolved = with_latency_targets(resolved, ttft=ttft, tbt=tbt, e2e=e2e, admission=admission)
    if is_planned and graph:
        check_names(scaling.names, graph.executors.values())
    capacities = derive_capacities(resolved.name, graph, inputs) if graph and inputs and not is_planned else {}
    resolved = with_autoscaling(resolved, scaling, capacities)
    if resolved.warning:
        print_warning(resolved.warning)
    with open_client(ctx, url) as client:
        if is_planned:
            assert graph is not None
            resolved, made, measured = plan_target(client, resolved, graph.graph, budget)
            deadline = Deadline(timeout)  # Measurements have the limit of --budget.
            if inputs is not None:
                capacities = derive_capacities(resolved.name, graph, inputs._replace(profile=measured), made)
                resolved = with_autoscaling(resolved, scaling.of_plan(capacities), capacities)
        if resolved.spec.plan is not None:
            check_slots(client, resolved.spec.plan.gpus)
        with _hint_on_interrupt(resolved.name):
            view = _deploy_and_wait(client, resolved, deadline) if wait else client.deploy(resolved, wait=False)
    if json:
        print_json(view)
    if view.phase == "failed":
        _print_failure(view)
        raise typer.Exit(1)
    if not wait:
        stderr().print(f"{view.name} is being deployed: see `cornserve status {view.name}`")


def _shares(settings: list[str]) -> dict[str, float] | None:
    shares: dict[str, float] = {}
    for setting in settings:
        path, _, weight = setting.partition("=")
        try:
            shares[path] = float(weight or 1)
        except ValueError:
            raise CliError(f"{setting!r} is not a valid share: give PATH=WEIGHT, such as e-el=3") from None
    return shares or None


def _deploy_and_wait(client: Client, target: DeployTarget, deadline: Deadline) -> AppView:
    """Returns the app when it serves or has failed. Raises `CliError` after the deadline."""
    from cornserve.cli.progress_display import ProgressDisplay

    display = ProgressDisplay()
    with display.shown():
        deployed = client.deploy(target, wait=False)
        display.show(f"{deployed.name} accepted as generation {deployed.generation}")
        unfinished = (
            f"{deployed.name} does not serve after {deadline.seconds} s, and is still being deployed: "
            f"see `cornserve status {deployed.name}` and `cornserve logs {deployed.name}`"
        )
        *_, view = display.follow(client.follow(deployed, timeout=deadline.limit, on_outage=display.show), unfinished)
        if view.phase == "serving":
            display.show(f"{view.name} serves. Try: {target.example_command}")
        elif view.phase == "parked":
            display.show(f"{view.name} is parked: start it with `cornserve scale {view.name} 1`")
    return view


@contextmanager
def _hint_on_interrupt(name: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        stderr().print(
            f"\n{name} is still being deployed: see `cornserve status {name}`, or cancel it with "
            f"`cornserve delete {name}`"
        )
        raise typer.Exit(130) from None


def _print_failure(view: AppView) -> None:
    from rich.text import Text

    from cornserve.observe.logs import parse_messages

    console = stderr()
    logs = view.status.logs
    if len(logs) == 1 and view.status.message.endswith(tuple(parse_messages(logs[0]))):
        logs = []  # The message contains the only line.
    for line in logs:
        console.print(Text.assemble(("  | ", "dim"), line))
    print_error(f"{view.name} failed to start: {view.status.message}")
    serving = view.status.serving_generation
    if serving is not None:
        console.print(f"Generation {serving} continues to serve.")
