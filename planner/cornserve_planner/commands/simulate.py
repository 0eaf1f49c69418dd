"""`cornserve simulate`, also available as `python -m cornserve_planner simulate`.

The command imports its dependencies when it runs, so that `--help` and shell completion start fast.
"""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Annotated

import typer

from cornserve_planner.commands.plan_options import INPUTS, TARGETS
from cornserve_planner.commands.simulation_run import read_plan, replay_decisions, run_simulation
from cornserve_planner.errors import PlannerError
from cornserve_planner.terminal import parse_bandwidth, parse_count, parse_settings, require_libraries

SIMULATE_EXAMPLES = [
    "cornserve simulate plan.json",
    "cornserve simulate plan.json --rate 12 --requests 100000 --routing power-of-two",
    "cornserve simulate plan.json --workload day.jsonl --profile profile.yaml --ttft 2 --refuse",
    "cornserve simulate plan.json --workload week.jsonl --adapt --most-gpus 64 --plot week.svg",
    "cornserve simulate plan.json --fail encoder@60 --startup 30",
    "cornserve simulate app.py --profile profile.yaml --workload day.jsonl --gpus 8",
    "cornserve simulate --replay ~/.local/share/cornserve/decisions/gateway-123.jsonl",
    "cornserve simulate plan.json --bandwidth 100Gbit/s --transfer image_encoder=4300800 --stream audio_generator",
]

GATEWAYS, TRANSFERS, REPLICAS = "Gateways", "Transfers", "Replicas that start and stop"
"""Groups of options in the help."""


def complete_routing(incomplete: str) -> list[str]:
    """Completes the names of routing policies."""
    from cornserve_policies.registry import routing_policy_names

    return [name for name in routing_policy_names() if name.startswith(incomplete)]


def simulate(
    context: typer.Context,
    plan: Annotated[
        str | None,
        typer.Argument(
            metavar="[PLAN | APP]",
            help="Plan file (.json), from `cornserve plan --save`. Or what is planned before: a Python file, a model"
            " directory, a Hugging Face id, the name of a deployed app or of a shipped model, or the planner's file of"
            " a model (.yaml).",
            show_default=False,
        ),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(
            "--replay",
            help="Repeat the decisions of this log of a gateway or a controller, instead of simulating a plan. With"
            " --routing: print the decisions of another policy.",
            rich_help_panel=INPUTS,
        ),
    ] = None,
    workload: Annotated[
        Path | None,
        typer.Option(
            "--workload",
            help="File with requests, or with shares of request types, which arrive at random times (Poisson). Default:"
            " the shares of the plan.",
            rich_help_panel=INPUTS,
        ),
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(
            "--profile",
            help="File with step models and latency curves of deployment options, and for APP their rates. Default:"
            " the seconds of the plan.",
            rich_help_panel=INPUTS,
        ),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(
            "--gpus", min=1, help="With APP: the GPUs or slots of the plan that is made.", rich_help_panel=INPUTS
        ),
    ] = None,
    replicas: Annotated[
        list[str] | None,
        typer.Option(
            "--replicas",
            metavar="OPTION=N",
            help="With APP: the replicas of an option, instead of a plan for --gpus. Needs a rate. Can be repeated.",
            rich_help_panel=INPUTS,
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            help="Requests/s. Default: the rate of the workload, or the target of the plan.",
            rich_help_panel=INPUTS,
        ),
    ] = None,
    requests: Annotated[
        int | None,
        typer.Option(
            "--requests", min=1, help="Number of requests. Default: those of a file, or 10,000.", rich_help_panel=INPUTS
        ),
    ] = None,
    routing: Annotated[
        str | None,
        typer.Option(
            "--routing",
            help="Routing policy, also of an installed package. Default: least-loaded.",
            autocompletion=complete_routing,
            rich_help_panel=GATEWAYS,
        ),
    ] = None,
    late_binding: Annotated[
        bool,
        typer.Option(
            "--late-binding",
            help="Simulate late binding, as with `cornserve deploy --late-binding`, for steps without a binding in the"
            " plan.",
            rich_help_panel=GATEWAYS,
        ),
    ] = False,
    ttft: Annotated[
        float | None, typer.Option("--ttft", help="Target: seconds until the first output.", rich_help_panel=TARGETS)
    ] = None,
    tbt: Annotated[
        float | None,
        typer.Option("--tbt", help="Target: mean seconds between two tokens of a response.", rich_help_panel=TARGETS),
    ] = None,
    e2e: Annotated[
        float | None,
        typer.Option("--e2e", help="Target: seconds until the end of the response.", rich_help_panel=TARGETS),
    ] = None,
    refuse: Annotated[
        bool,
        typer.Option(
            "--refuse",
            help="Refuse requests early that would miss --ttft or --e2e, as gateways do.",
            rich_help_panel=TARGETS,
        ),
    ] = False,
    gateways: Annotated[
        int,
        typer.Option(
            "--gateways", min=1, max=4096, help="Gateways, which see the same loads.", rich_help_panel=GATEWAYS
        ),
    ] = 1,
    gateway_seconds: Annotated[
        float,
        typer.Option("--gateway-seconds", help="Seconds that a gateway needs for a request.", rich_help_panel=GATEWAYS),
    ] = 0.0,
    bandwidth: Annotated[
        str | None,
        typer.Option(
            "--bandwidth",
            metavar="RATE",
            help="Bandwidth of a replica's transfers, such as 400Gbit/s.",
            rich_help_panel=TRANSFERS,
        ),
    ] = None,
    latency: Annotated[
        float,
        typer.Option(
            "--latency",
            help="Seconds until the first byte of a transfer between executors arrives.",
            rich_help_panel=TRANSFERS,
        ),
    ] = 0.0,
    racks: Annotated[
        str | None,
        typer.Option(
            "--racks",
            metavar="GPUS:RATE:SECONDS",
            help="GPUs of a rack, the bandwidth of its link to the other racks, and the seconds that transfers between"
            " racks take longer, such as 72:3.2Tbit/s:5e-6.",
            rich_help_panel=TRANSFERS,
        ),
    ] = None,
    transfer: Annotated[
        list[str] | None,
        typer.Option(
            "--transfer",
            metavar="OPTION=BYTES",
            help="Bytes of an option's output for a request. Can be repeated.",
            rich_help_panel=TRANSFERS,
        ),
    ] = None,
    stream: Annotated[
        list[str] | None,
        typer.Option(
            "--stream",
            metavar="COMPONENT",
            help="Component that begins with the first output of the components before it, not with the last. Can be"
            " repeated.",
            rich_help_panel=TRANSFERS,
        ),
    ] = None,
    adapt: Annotated[
        bool,
        typer.Option(
            "--adapt",
            help="Add and remove cells of the plan with the load, as the controller does.",
            rich_help_panel=REPLICAS,
        ),
    ] = False,
    autoscale: Annotated[
        list[str] | None,
        typer.Option(
            "--autoscale",
            metavar="OPTION[=RATE]",
            help="Let the replicas of an option follow its load, as the controller does. RATE: requests/s that a"
            " replica takes. Default: the most within its part of --ttft. Also window_seconds=, shrink_seconds= and"
            " dwell_seconds=. Can be repeated.",
            rich_help_panel=REPLICAS,
        ),
    ] = None,
    most_gpus: Annotated[
        int | None,
        typer.Option(
            "--most-gpus", min=1, help="With --adapt or --autoscale: the most GPUs.", rich_help_panel=REPLICAS
        ),
    ] = None,
    startup: Annotated[
        str | None,
        typer.Option(
            "--startup",
            metavar="SECONDS[,SECONDS…]",
            help="With --adapt, --autoscale or --fail: seconds until a started replica serves requests. Of several"
            " measured times, each start takes a random one. Default: those of the profile, or of the plan's options.",
            rich_help_panel=REPLICAS,
        ),
    ] = None,
    fail: Annotated[
        list[str] | None,
        typer.Option(
            "--fail",
            metavar="OPTION@SECONDS",
            help="Let a replica of an option fail at a time. Another one starts in its place. Can be repeated.",
            rich_help_panel=REPLICAS,
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", dir_okay=False, help="Draw latencies and rates over time to this file (.svg, .png, .pdf)."
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Random seed: the same one gives the same result.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Simulate how a plan or an app serves a workload, with the decisions that gateways make.

    Needs neither a cluster nor a GPU.
    """
    require_libraries()
    if replay is not None:
        if plan is not None:
            raise PlannerError("--replay: excludes PLAN: a log contains all that its decisions read")
        replay_decisions(replay, routing, json)
        return
    if plan is None:
        raise PlannerError("PLAN: is missing: give a plan file, an app, or a log with --replay")
    from cornserve_planner.commands.simulation_settings import (
        parse_autoscaling,
        parse_failure,
        parse_racks,
        parse_startup,
    )
    from cornserve_planner.files.output_file import check_output
    from cornserve_planner.simulation.serving_settings import ServingSettings
    from cornserve_planner.simulation.simulation_result import SimulationRequest
    from cornserve_policies.registry import DEFAULT_ROUTING

    autoscaled, times = parse_autoscaling(autoscale or [])
    settings = ServingSettings(
        gateways=gateways,
        gateway_seconds=gateway_seconds,
        bandwidth=None if bandwidth is None else parse_bandwidth(bandwidth, "--bandwidth"),
        racks=None if racks is None else parse_racks(racks),
        latency=latency,
        transfers=parse_settings("--transfer", "OPTION=BYTES, a name and a number", transfer, float),
        binds_late=late_binding,
        streamed=frozenset(stream or ()),
        ttft=ttft,
        tbt=tbt,
        e2e=e2e,
        refuses=refuse,
        adapts=adapt,
        most_gpus=inf if most_gpus is None else most_gpus,
        autoscaled=autoscaled,
        autoscaling_times=times,
        startup=None if startup is None else parse_startup(startup),
        seed=seed,
        failures=tuple(parse_failure(each) for each in fail or ()),
    )
    if plot is not None:
        check_output("--plot", plot, (".svg", ".png", ".pdf"))
    request = SimulationRequest(
        plan=read_plan(
            context,
            plan,
            parse_settings("--replicas", "OPTION=N, a name and a whole number", replicas, parse_count),
            gpus=gpus,
            rate=rate,
            workload=workload,
            profile=profile,
        ),
        name=Path(plan).name,
        workload=workload,
        profile=profile,
        rate=rate,
        count=requests,
        routing=routing or DEFAULT_ROUTING,
        seed=seed,
        settings=settings,
    )
    run_simulation(request, plot, json=json)


def fit_steps(
    profile: Annotated[Path, typer.Argument(metavar="PROFILE", help="Profile with a latency curve of the option.")],
    option: Annotated[str, typer.Option("--option", help="Deployment option that runs a language model.")],
    prompt: Annotated[int, typer.Option("--prompt", help="Tokens of the prompts of the measured requests.")],
    output: Annotated[int, typer.Option("--output", help="Tokens of their outputs.")],
    cache_tokens: Annotated[
        int, typer.Option("--cache-tokens", help="Tokens in the key-value cache of a replica, which vLLM logs.")
    ],
) -> None:
    """Fit a step model for `cornserve simulate` to a latency curve, and print it for the profile."""
    require_libraries()
    import yaml

    from cornserve_planner.profiles.profile import ModelProfile
    from cornserve_planner.simulation.step_fit import fit_option

    step = fit_option(ModelProfile.read(profile), option, prompt, output, cache_tokens)
    typer.echo(yaml.safe_dump({"step": step.model_dump()}, sort_keys=False, width=1000), nl=False)
