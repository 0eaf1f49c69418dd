"""The options of a model's executors, as commands receive them."""

from __future__ import annotations

from collections.abc import Sequence
from json import loads
from typing import TYPE_CHECKING, Annotated

import typer

from cornserve.cli.console import CliError

if TYPE_CHECKING:
    from pydantic import JsonValue

MODEL = "Model"
"""Group of options in the help."""

EngineOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="Option of the model's engine: --option max_model_len=32768 --option llm.seed=7 (one executor).",
        rich_help_panel=MODEL,
    ),
]

TrustRemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code",
        help="Run Python code of the model's repository in its executors, with all of their permissions.",
        rich_help_panel=MODEL,
    ),
]

Revision = Annotated[
    str | None,
    typer.Option(
        "--revision",
        help="Branch, tag or commit of the repository of a Hugging Face id. By default, its main branch.",
        show_default=False,
        rich_help_panel=MODEL,
    ),
]


def engine_options(
    settings: Sequence[str], engine_args: Sequence[str], trust_remote_code: bool
) -> dict[str, JsonValue]:
    """Returns the options by name. Raises `CliError` for one without a value, and for an argument that is set twice."""
    options: dict[str, JsonValue] = {"trust_remote_code": True} if trust_remote_code else {}
    for setting in settings:
        name, value = _setting("--option", setting, "max_model_len=32768")
        if name in options:
            raise CliError(f"--option {name} is given twice: give it once")
        options[name] = value
    if not engine_args:
        return options
    from cornserve_tasklib.engine import EngineOptions
    from cornserve_tasklib.model_options import ChatOptions

    given = options.get("engine_args", {})
    if not isinstance(given, dict):
        raise CliError(f"engine_args={given} is not an object: give each argument with --engine-arg")
    options_of_engine = {*EngineOptions.model_fields, *ChatOptions.model_fields}
    arguments = dict(given)
    for setting in engine_args:
        name, value = _setting("--engine-arg", setting, "block_size=64")
        name = name.replace("-", "_")  # Hyphens are the form of vLLM's command line.
        if name in options_of_engine:
            raise CliError(f"--engine-arg {name}: is an option: give --option {name}=VALUE")
        if name in given:
            raise CliError(f"{name} is set by --engine-arg and by --option engine_args: give it once")
        if name in arguments:
            raise CliError(f"--engine-arg {name} is given twice: give it once")
        arguments[name] = value
    return options | {"engine_args": arguments}


def _setting(option: str, setting: str, example: str) -> tuple[str, JsonValue]:
    """Returns the name and the value of NAME=VALUE. The value is JSON, or else a text."""
    name, separator, value = setting.partition("=")
    if not (name and separator):
        raise CliError(f"{setting!r} is not a valid {option}: give NAME=VALUE, such as {example}")
    try:
        return name, loads(value)
    except ValueError:
        return name, value
