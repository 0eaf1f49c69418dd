"""The file of `cornserve deploy --options`: GPU types and numbers of GPUs of the deployment options of an app."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cornserve.cli.console import CliError

if TYPE_CHECKING:
    from cornserve.app.graph import AppGraph
    from cornserve_planner.model.document import ModelDocument


def with_options(model: ModelDocument, graph: AppGraph, file: Path) -> ModelDocument:
    """Returns the model, changed by the file.

    Raises `PlannerError` if the file is not valid, and `CliError` for numbers of GPUs that the app's executors do not
    have.
    """
    from cornserve_planner.model.option_changes import OptionChanges

    changes = OptionChanges.read(file)
    changed = changes.apply(model)
    for name, change in changes.options.items():
        gpus = graph.options[name].gpus
        if change.tensor_parallel is not None:
            raise _fixed_gpus(file, f"{name}.tensor_parallel", gpus)
        if gpus and change.gpus not in (None, gpus):
            raise _fixed_gpus(file, f"{name}.gpus", gpus)
    return changed


def _fixed_gpus(file: Path, field: str, gpus: int) -> CliError:
    return CliError(
        f"{file.name}: options.{field}: the executor of the app has {gpus} GPU{'' if gpus == 1 else 's'}: remove the "
        "field, and add a path to the app for each other number"
    )


def option_fields(model: ModelDocument, graph: AppGraph) -> dict[str, Any]:
    """Returns the fields of `PlanningInputs` with the changes of the model's options."""
    types = {name: option.gpu for name, option in model.options.items() if option.gpu is not None}
    counts = {
        name: option.gpus for name, option in model.options.items() if option.gpus != max(1, graph.options[name].gpus)
    }
    return {"gpu_types": types, "gpu_counts": counts}
