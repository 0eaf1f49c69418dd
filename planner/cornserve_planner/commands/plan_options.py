"""Options that `cornserve plan` and `cornserve deploy` share. None stands for the default."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

BUDGET, INPUTS, TARGETS = "Budget", "Inputs", "Targets"
"""Groups of options in the help."""

Gpus = Annotated[
    int | None,
    typer.Option(
        "--gpus",
        min=1,
        help="Maximize the rate, or with targets the goodput, within this many GPUs or slots.",
        rich_help_panel=BUDGET,
    ),
]
GpusOf = Annotated[
    list[str] | None,
    typer.Option(
        "--gpus-of",
        metavar="TYPE=N",
        help="Maximize the rate, or with targets the goodput, within N GPUs or slots of this type, in one plan. Can be"
        " repeated.",
        rich_help_panel=BUDGET,
    ),
]
Rate = Annotated[
    float | None,
    typer.Option("--rate", min=0, help="Serve this many requests/s at the lowest cost.", rich_help_panel=BUDGET),
]
PlanObjective = Annotated[
    Literal["gpus", "dollars", "goodput"] | None,
    typer.Option(
        "--objective",
        help="Cost that a --rate minimizes: gpus, or dollars, the default for several GPU types. With a budget:"
        " goodput, the most requests/s that meet the targets.",
        rich_help_panel=BUDGET,
    ),
]
Survive = Annotated[
    bool,
    typer.Option(
        "--survive",
        help="Serve the rate also after losing any one replica, in one plan for all GPUs.",
        rich_help_panel=BUDGET,
    ),
]
WorkloadFile = Annotated[
    Path | None,
    typer.Option(
        "--workload",
        metavar="FILE",
        help="File with shares of request types, or with requests. Needed, except for shipped models, which have the"
        " workload of the published measurements.",
        rich_help_panel=INPUTS,
    ),
]
ProfileFile = Annotated[
    Path | None,
    typer.Option(
        "--profile",
        metavar="FILE",
        help="File with rates of deployment options. Shipped models have the published rates, and `cornserve deploy`"
        " measures the options that the file lacks.",
        rich_help_panel=INPUTS,
    ),
]
Utilization = Annotated[
    float | None,
    typer.Option(
        "--utilization",
        "--utilisation",
        help="Maximum fraction of the replicas' time to use, by default 0.8. The rest is headroom: queues grow without"
        " bound at 1. With latency targets, simulations decide.",
        rich_help_panel=TARGETS,
    ),
]
Percentile = Annotated[
    float | None,
    typer.Option(
        "--percentile",
        help="Percentage of the requests that meet all of their targets, by default 95.",
        rich_help_panel=TARGETS,
    ),
]
