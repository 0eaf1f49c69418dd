"""`cornserve plan` and its subcommands, also available as `python -m cornserve_planner plan`.

The commands import their dependencies when they run, so that `--help` and shell completion start fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from cornserve_planner.commands.plan import EXAMPLES as MODEL_EXAMPLES
from cornserve_planner.commands.plan import plan
from cornserve_planner.commands.plan_file import adapt, check
from cornserve_planner.commands.plan_from import from_app

EXAMPLES = {
    "model": MODEL_EXAMPLES,
    "from": [
        "cornserve plan from app.py > model.yaml",
        "cornserve plan from Qwen/Qwen2.5-VL-3B-Instruct --json",
        "cornserve plan from app.py --options gpus.yaml > model.yaml",
    ],
    "adapt": ["cornserve plan adapt plan.json --rate 13 --save next.json"],
    "check": ["cornserve plan check plan.json --workload newer.jsonl"],
}

HELP = (
    "Plan a model: `cornserve plan MODEL` is short for `cornserve plan model MODEL`. Needs neither a cluster nor a GPU."
)


class PlanGroup(TyperGroup):
    """Arguments that do not begin with a subcommand belong to the subcommand `model`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["model", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        model = self.commands["model"]
        if incomplete.startswith("-"):
            return model.shell_complete(ctx, incomplete)
        name, *_ = model.params
        return [*super().shell_complete(ctx, incomplete), *name.shell_complete(ctx, incomplete)]


def plan_app(epilog: Callable[[Sequence[str]], str]) -> typer.Typer:
    """Returns the commands.

    Args:
        epilog: takes examples, and returns the end of a help text.
    """
    app = typer.Typer(
        cls=PlanGroup,
        name="plan",
        help=HELP,
        epilog=epilog([lines[0] for lines in EXAMPLES.values()]),
        subcommand_metavar="COMMAND | MODEL [ARGS]...",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
    )
    for name, function in (("model", plan), ("from", from_app), ("adapt", adapt), ("check", check)):
        app.command(name, epilog=epilog(EXAMPLES[name]))(function)
    return app
