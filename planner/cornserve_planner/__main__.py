"""The planner as a standalone program: `python -m cornserve_planner`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import typer
from typer.core import TyperGroup

from cornserve_plan.printable import printable_line
from cornserve_planner.commands.plan_group import plan_app
from cornserve_planner.commands.simulate import SIMULATE_EXAMPLES, fit_steps, simulate
from cornserve_planner.errors import PlannerError
from cornserve_planner.terminal import require_libraries
from cornserve_planner.workload.command import app as workload


class PlannerCommandGroup(TyperGroup):
    """Prints a `PlannerError` in one line and exits with status 1."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PlannerError as error:
            typer.echo(f"error: {printable_line(str(error))}", err=True)
            raise typer.Exit(1) from error


app = typer.Typer(
    cls=PlannerCommandGroup,
    name="python -m cornserve_planner",
    help="Plans which components of a model to run together or apart, and how many replicas of each.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _own_examples(lines: Iterable[str]) -> str:
    return "\n\n".join(line.replace("cornserve", "python -m cornserve_planner", 1) for line in lines)


app.add_typer(plan_app(_own_examples))
app.command(epilog=_own_examples(SIMULATE_EXAMPLES))(simulate)
app.command()(fit_steps)
app.add_typer(workload, name="workload")


@app.command()
def models() -> None:
    """List the shipped models."""
    require_libraries()
    from cornserve_planner.model.shipped import shipped_model, shipped_models

    for name in shipped_models():
        typer.echo(f"{name:<24} {shipped_model(name).description}")


if __name__ == "__main__":
    app()
