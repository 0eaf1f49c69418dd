"""`cornserve try`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cornserve.cli.console import CliError, print_json
from cornserve.cli.json_argument import read_json
from cornserve.cli.options import Json

if TYPE_CHECKING:
    from cornserve.app.app import App
    from cornserve.task import UnitTask
    from cornserve.testing import RecordedCall, TaskRun

_MODULE = "app_of_cornserve_try"
_MAX_CHARACTERS = 200
"""Longer requests and yielded values are cut."""


def try_task(
    file: Annotated[Path, typer.Argument(metavar="FILE.py", help="The source of the app.")],
    request: Annotated[
        str, typer.Argument(metavar="JSON | @FILE | -", help="The request, a file with it, or - for standard input.")
    ],
    answers: Annotated[
        str,
        typer.Option(
            "--answers",
            metavar="JSON | @FILE",
            help="The outputs of the unit tasks by name: an object for all calls, or a list with one for each call.",
        ),
    ] = "{}",
    path: Annotated[int, typer.Option("--path", min=0, help="The number of the path, from 0.")] = 0,
    json: Json = False,
) -> None:
    """Run a task with given outputs of its unit tasks, without executors, and print its calls round by round.

    A round is one run of `invoke`, up to a value that is not available. Functions that the task calls with `recorded`
    run.
    """
    run = _run(file, read_json(request, "request"), _Answers(read_json(answers, "object of answers")), path)
    if json:
        calls = [_describe(call) for call in run.calls]
        print_json({"calls": calls, "yielded": [*map(_compact, run.yielded)], "response": run.response})
        return
    for line in _lines(run):
        typer.echo(line)
    typer.echo("response")
    print_json(run.response)


class _Answers:
    """Returns the given outputs of unit tasks, in the order of their calls."""

    def __init__(self, given: Any) -> None:
        if not isinstance(given, dict):
            raise CliError('the answers are not an object: give the outputs by the names of tasks, {"LLMTask": {…}}')
        self._given = given
        self._calls: Counter[str] = Counter()

    def __call__(self, task: UnitTask[Any, Any], request: Any) -> Any:
        from cornserve.task.output import output_layout

        name, number = task.name, self._calls[task.name]
        self._calls[name] += 1
        outputs = self._given.get(name)
        fields = ", ".join(output_layout(task.output_type).values)
        if outputs is None:
            raise CliError(f"the answers have no outputs of {name}, which the task calls: add its fields {fields}")
        if not isinstance(outputs, list):
            return outputs
        if number >= len(outputs):
            times = "once" if len(outputs) == 1 else f"{len(outputs)} times"
            raise CliError(f"the task calls {name} more than {times}: add another output to the answers")
        return outputs[number]


def _run(file: Path, body: Any, answers: _Answers, path: int) -> TaskRun[Any]:
    from pydantic import TypeAdapter, ValidationError

    from cornserve.app_host.host_error import describe_error
    from cornserve.testing import AnswerError, run_task
    from cornserve.validation_errors import describe_all

    app = _load(file)
    if path >= len(app.paths):
        raise CliError(f"unknown path {path}: the number of paths is {len(app.paths)}, and the first one is 0")
    try:
        request = TypeAdapter(app.request_type).validate_python(body)
    except ValidationError as error:
        raise CliError(f"the request is not valid: {describe_all(error.errors())}") from error
    try:
        return run_task(app.paths[path], request, answers, max_invocations=app.max_invocations)
    except CliError:
        raise
    except AnswerError as error:
        raise CliError(str(error)) from error
    except Exception as error:
        described = describe_error(error, _MODULE)
        place = f" ({described.location})" if described.location else ""
        raise CliError(f"{described.type}: {described.message}{place}") from error


def _load(file: Path) -> App:
    from cornserve.app.source import load_app_source
    from cornserve.task.errors import DefinitionError

    try:
        source = file.expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"cannot read {file}: {getattr(error, 'strerror', None) or error}") from error
    try:
        return load_app_source(source, _MODULE, filename=file.name)
    except DefinitionError as error:
        raise CliError(str(error)) from error


def _lines(run: TaskRun[Any]) -> Iterator[str]:
    numbered = enumerate(run.calls)
    for play, calls in groupby(numbered, lambda pair: pair[1].play):
        yield f"round {play + 1}"
        for number, call in calls:
            yield f"  {number} {call.task.name} ({call.line}): {_text(call.request)}"
    for value in run.yielded:
        yield f"yielded {_text(value)}"


def _describe(call: RecordedCall) -> dict[str, Any]:
    return {"task": call.task.name, "round": call.play + 1, "line": call.line, "request": _compact(call.request)}


def _text(value: Any) -> str:
    text = _compact(value)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…"


def _compact(value: Any) -> str:
    """Returns the representation of a value. Fields of models that have their default value are left out."""
    from pydantic import BaseModel

    if isinstance(value, list):
        return f"[{', '.join(map(_compact, value))}]"
    if not isinstance(value, BaseModel):
        return repr(value)
    model = type(value)
    fields = {name: getattr(value, name) for name in model.model_fields}
    given = [
        f"{name}={_compact(value)}"
        for name, value in fields.items()
        if value != model.model_fields[name].get_default(call_default_factory=True)
    ]
    return f"{model.__name__}({', '.join(given)})"
