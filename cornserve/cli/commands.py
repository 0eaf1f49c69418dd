"""The `cornserve` program: its commands, and how it reports their errors."""

from __future__ import annotations

import errno
import os
import sys
from collections import UserDict
from collections.abc import Callable
from functools import cache, partial
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from cornserve import __version__
from cornserve.cli.app_model import app_model
from cornserve.cli.bench import bench
from cornserve.cli.chat import chat
from cornserve.cli.check_model import EXAMPLES as CHECK_EXAMPLES
from cornserve.cli.check_model import check_model
from cornserve.cli.console import CliError, print_error
from cornserve.cli.delete import delete
from cornserve.cli.demo import demo
from cornserve.cli.deploy import deploy
from cornserve.cli.doctor import doctor
from cornserve.cli.down import down
from cornserve.cli.export import export
from cornserve.cli.gateway import CONTEXT, NAMESPACE, check_runs_here
from cornserve.cli.help_examples import examples
from cornserve.cli.imagine import imagine
from cornserve.cli.import_apps import import_apps
from cornserve.cli.invoke import invoke
from cornserve.cli.logs import logs
from cornserve.cli.models import EXAMPLES as MODELS_EXAMPLES
from cornserve.cli.models import models
from cornserve.cli.options import complete_contexts
from cornserve.cli.profile import EXAMPLES as PROFILE_EXAMPLES
from cornserve.cli.profile import profile
from cornserve.cli.restart import restart
from cornserve.cli.scale import scale
from cornserve.cli.speak import speak
from cornserve.cli.status import status
from cornserve.cli.transcribe import transcribe
from cornserve.cli.try_task import try_task
from cornserve.cli.up import up
from cornserve.cli.wait import wait
from cornserve_planner.commands.plan_group import plan_app
from cornserve_planner.commands.simulate import SIMULATE_EXAMPLES, simulate
from cornserve_planner.errors import PlannerError

INSTANCE = "This machine"
APPS = "Apps"
PLANNING = "Planning"

_LOCAL_COMMANDS = ("up", "down", "demo", "plan", "simulate")
"""Commands that do not run on a cluster."""


class CommandGroup(TyperGroup):
    """Builds each command when it is used, and prints errors that a user can fix as one line, without a traceback."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.commands = _Commands()

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            raise _described(error) from error
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None:
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python writes the rest when it exits.
                print_error(f"cannot write to standard output: {error.strerror}")
                raise typer.Exit(1) from error
            if not _is_expected(error):
                raise
            print_error(str(error))
            raise typer.Exit(1) from error


def _described(error: typer.BadParameter) -> typer.BadParameter:
    """Replaces pydantic's message, which does not contain the value."""
    from pydantic import ValidationError

    from cornserve.validation_errors import describe_error

    if isinstance(error.__cause__, ValidationError):
        error.message = describe_error(error.__cause__.errors()[0])
    return error


def _is_expected(error: Exception) -> bool:
    from cornserve.client import ClientError  # a slow import

    return isinstance(error, CliError | PlannerError | ClientError)


app = typer.Typer(
    cls=CommandGroup,
    name="cornserve",
    help="Serve any-to-any models: deploy a model or a Python file, and call it through an OpenAI-compatible API.",
    epilog=examples("cornserve up", "cornserve deploy ./my-model", 'cornserve chat my-model "Hello!"'),
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"cornserve {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    ctx: typer.Context,
    context: Annotated[
        str | None,
        typer.Option(
            "--context",
            envvar=CONTEXT,
            help="Call the gateway in a Kubernetes cluster: a context of the kubeconfig. By default, its current "
            "context if --namespace is given.",
            autocompletion=complete_contexts,
            show_default=False,
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            envvar=NAMESPACE,
            help="Namespace of the gateway in the cluster. By default, the namespace of the context.",
            show_default=False,
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    ctx.obj = app_model
    if ctx.invoked_subcommand in _LOCAL_COMMANDS:
        check_runs_here(ctx)


_COMMANDS: dict[str, tuple[str, Callable[..., None] | typer.Typer, list[str]]] = {
    "up": (INSTANCE, up, ["cornserve up", "cornserve up --port 8001 --home /tmp/other", "cornserve up --detach"]),
    "down": (INSTANCE, down, ["cornserve down", "cornserve down --keep-apps"]),
    "doctor": (
        INSTANCE,
        doctor,
        ["cornserve doctor", "cornserve doctor --repair", "cornserve --context production --namespace team-a doctor"],
    ),
    "deploy": (
        APPS,
        deploy,
        [
            "cornserve deploy ./SmolLM2-135M-Instruct --name smollm2",
            "cornserve deploy Qwen/Qwen3-0.6B --replicas 2 --option max_model_len=8192",
            'cornserve deploy Qwen/Qwen2.5-VL-7B-Instruct --media-io-kwargs \'{"video": {"fps": 1}}\'',
            "cornserve deploy app.py",
            "cornserve deploy app.py --plan plan.json",
        ],
    ),
    "models": (APPS, models, MODELS_EXAMPLES),
    "scale": (
        APPS,
        scale,
        ["cornserve scale smollm2 3", "cornserve scale captions --rate 20", "cornserve scale captions --approve"],
    ),
    "wait": (APPS, wait, ["cornserve wait smollm2", "cornserve wait smollm2 --timeout 600"]),
    "restart": (APPS, restart, ["cornserve restart smollm2"]),
    "status": (
        APPS,
        status,
        ["cornserve status", "cornserve status smollm2 --events", "cornserve status --json"],
    ),
    "chat": (
        APPS,
        chat,
        [
            "cornserve chat smollm2",
            'cornserve chat smollm2 "Why is the sky blue?" --max-tokens 100',
            'cornserve chat qwen2.5-vl "What is this?" --image photo.jpg',
            """cornserve chat qwen2.5-vl "What happens?" --video clip.mp4 --media-io-kwargs '{"video": {"fps": 1}}'""",
        ],
    ),
    "transcribe": (
        APPS,
        transcribe,
        [
            "cornserve transcribe whisper speech.wav",
            "cornserve transcribe whisper rede.mp3 --language de --translate",
            "cornserve transcribe whisper speech.wav --segments",
        ],
    ),
    "imagine": (
        APPS,
        imagine,
        [
            'cornserve imagine qwen-image "a field of corn at sunset" --save corn.png',
            'cornserve imagine qwen-image "a red fox" --size 1664x928 --seed 7 --n 4 --save fox.webp',
        ],
    ),
    "demo": (APPS, demo, ["cornserve demo", "cornserve demo --samples 8 --save shapes", "cornserve demo --evaluate"]),
    "speak": (
        APPS,
        speak,
        [
            'cornserve speak mms-tts-eng "The corn is ripe." --save corn.mp3',
            'cornserve speak mms-tts-eng "The corn is ripe." --speed 1.5 --save - | mpv -',
        ],
    ),
    "invoke": (
        APPS,
        invoke,
        [
            """cornserve invoke smollm2 '{"messages": [{"role": "user", "content": "Hello!"}]}'""",
            "cornserve invoke smollm2 @request.json --stream",
        ],
    ),
    "try": (
        APPS,
        try_task,
        [
            """cornserve try agent.py '{"question": "Why?"}'""",
            """cornserve try agent.py '{"question": "Why?"}' --answers '{"LLMTask": {"text": "Because."}}'""",
            "cornserve try agent.py @request.json --answers @answers.json --json",
        ],
    ),
    "bench": (
        APPS,
        bench,
        [
            "cornserve bench smollm2",
            "cornserve bench smollm2 --concurrency 32 --duration 60 --prompt-words 200 --max-tokens 128 --ignore-eos",
            "cornserve bench smollm2 --rate 2 --requests 200 --slo ttft=500ms,tpot=100ms --save result.json",
            "cornserve bench fan-out --request request.json --json",
        ],
    ),
    "logs": (APPS, logs, ["cornserve logs smollm2", "cornserve logs smollm2 --follow"]),
    "delete": (APPS, delete, ["cornserve delete smollm2"]),
    "export": (APPS, export, ["cornserve export apps.json", "cornserve export apps.json --store state.db"]),
    "import": (APPS, import_apps, ["cornserve import apps.json"]),
    "profile": (PLANNING, profile, PROFILE_EXAMPLES),
    "simulate": (PLANNING, simulate, SIMULATE_EXAMPLES),
    "plan": (PLANNING, plan_app(lambda lines: examples(*lines)), []),
}


_SUBCOMMANDS: dict[str, dict[str, tuple[Callable[..., None], list[str]]]] = {
    "models": {"check": (check_model, CHECK_EXAMPLES)},
}


class _Commands(UserDict[str, Any]):
    """The commands by name. Typer needs 70 ms to build all of them, so it builds only those that are used."""

    def __init__(self) -> None:
        super().__init__(_COMMANDS)

    def __getitem__(self, name: str) -> Any:
        return _build(name)


@cache
def _build(name: str) -> Any:
    panel, command, lines = _COMMANDS[name]
    if isinstance(command, typer.Typer):
        group: Any = get_command(command)
        group.rich_help_panel = panel
        return group
    built = typer.Typer(name=name, add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
    subcommands = _SUBCOMMANDS.get(name, {})
    add = partial(built.callback, invoke_without_command=True) if subcommands else partial(built.command, name)
    add(rich_help_panel=panel, epilog=examples(*lines))(command)
    for subcommand, (function, further) in subcommands.items():
        built.command(subcommand, epilog=examples(*further))(function)
    return get_command(built)


def main() -> None:
    _open_missing_streams()
    app()


def _open_missing_streams() -> None:
    """Opens /dev/null for each standard stream that the program was started without, so that commands can use it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  it stays open
