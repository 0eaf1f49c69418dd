"""`cornserve try`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from cornserve.cli.console import CliError, expanded, json_text, print_json, without_empty_values
from cornserve.cli.file_import import run_import
from cornserve.cli.gateway import open_client
from cornserve.cli.json_argument import read_json
from cornserve.cli.options import Json, Url
from cornserve_plan.bounded_file import read_bounded
from cornserve_plan.printable import printable

if TYPE_CHECKING:
    from cornserve.app.app import App
    from cornserve.app.run_record import RunRecord
    from cornserve.client import Client
    from cornserve.task import UnitTask
    from cornserve.testing import RecordedCall, TaskRun

_MODULE = "app_of_cornserve_try"
_MAX_CHARACTERS = 200
"""Longer requests and yielded values are cut."""


def try_task(
    ctx: typer.Context,
    target: Annotated[str, typer.Argument(metavar="FILE.py | APP", help="The source of an app, or a deployed app.")],
    request: Annotated[
        str, typer.Argument(metavar="JSON | @FILE | -", help="The request, a file with it, or - for standard input.")
    ],
    answers: Annotated[
        str | None,
        typer.Option(
            "--answers",
            metavar="JSON | @FILE",
            help="The outputs of the unit tasks by name, which then run without executors: an object for all calls, "
            "or a list with one for each call.",
        ),
    ] = None,
    path: Annotated[
        int, typer.Option("--path", min=0, help="The number of the path, from 0. Only with --answers.")
    ] = 0,
    url: Url = None,
    json: Json = False,
) -> None:
    """Run a task once, and print its calls of unit tasks round by round.

    A FILE.py is deployed on the instance as a temporary app, and deleted at the end. The prints and tracebacks of the
    code go to standard error. With --answers, no instance needs to run. A round ends with a value that is not
    available. Functions that the task calls with `recorded` run.
    """
    body = read_json(request, "request")
    if answers is None:
        if path:
            raise CliError("--path needs --answers: on an instance, the shares of the app choose the path")
        _try_on_instance(ctx, target, body, url, as_json=json)
        return
    given = _Answers(read_json(answers, "object of answers"))
    text, error = run_import(target, partial(_try_with_answers, Path(target), body, given, path, as_json=json))
    if text:
        typer.echo(text)
    if error is not None:
        raise CliError(error)


def _try_with_answers(file: Path, body: Any, answers: _Answers, path: int, *, as_json: bool) -> tuple[str, str | None]:
    """Returns the calls and the response as text, and the error of the task."""
    from pydantic_core import to_jsonable_python

    calls: list[RecordedCall] = []
    try:
        run = _run(file, body, answers, path, calls.append)
    except _TaskFailure as failure:
        error = str(failure)
        if as_json:
            return json_text({"calls": [*map(_describe, calls)], "error": error}), error
        return "\n".join(_call_lines(calls)), error
    if as_json:
        yielded = [*map(_compact, run.yielded)]
        return json_text({"calls": [*map(_describe, calls)], "yielded": yielded, "response": run.response}), None
    yielded = [f"yielded {_text(value)}" for value in run.yielded]
    response = json_text(without_empty_values(to_jsonable_python(run.response)))
    return "\n".join([*_call_lines(calls), *yielded, "response", response]), None


def _try_on_instance(ctx: typer.Context, target: str, body: Any, url: str | None, *, as_json: bool) -> None:
    """Prints the calls and the response. Raises `CliError` with the error of the task."""
    with open_client(ctx, url) as client, _deployed(client, target) as app:
        run = client.record(app, body)
    for line in run.log:
        typer.echo(printable(line), err=True)
    if as_json:
        print_json(run.model_dump(exclude_none=True, exclude={"log"}))
    else:
        for line in _recorded_lines(run):
            typer.echo(printable(line))
    if run.error is not None:
        raise CliError(run.error)
    if not as_json:
        typer.echo("response")
        print_json(without_empty_values(run.response))


@contextmanager
def _deployed(client: Client, target: str) -> Iterator[str]:
    """Yields the name of an app: that of a temporary one for a file."""
    from cornserve.app.declared_name import renamed_source
    from cornserve.app.spec import AppSource, AppSpec
    from cornserve.cli.temporary_app import temporary_app
    from cornserve.client.deploy_target import resolve_target, source_filename

    if not target.endswith(".py"):
        yield target
        return
    source = renamed_source(_read_source(Path(target)), f"try-{uuid4().hex[:8]}")
    if source is None:
        raise CliError(
            f'{target} has no statement `app = App(name="…", …)`: add it, or deploy the app and give its name'
        )
    app_source = AppSource(inline=source, filename=source_filename(Path(target)))
    resolved = run_import(target, partial(resolve_target, AppSpec(source=app_source)))
    with temporary_app(client, resolved, target) as name:
        yield name


def _recorded_lines(run: RunRecord) -> Iterator[str]:
    numbered = enumerate(run.calls)
    for number, calls in groupby(numbered, lambda pair: pair[1].round):
        yield f"round {number}"
        for index, call in calls:
            yield f"  {index} {call.task} ({call.line}): {_cut(_json_text(call.request))}"
            if call.error is not None:
                yield f"    failed: {call.error}"
            elif call.output is not None:
                yield f"    returned {_cut(_json_text(call.output))}"


def _json_text(value: dict[str, Any]) -> str:
    """Returns the JSON of an object without its empty values."""
    return dumps(without_empty_values(value), ensure_ascii=False)


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


class _TaskFailure(CliError):
    """The task has raised an error."""


def _run(
    file: Path, body: Any, answers: _Answers, path: int, on_call: Callable[[RecordedCall], object]
) -> TaskRun[Any]:
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
        return run_task(app.paths[path], request, answers, max_invocations=app.max_invocations, on_call=on_call)
    except CliError:
        raise
    except AnswerError as error:
        raise CliError(str(error)) from error
    except Exception as error:
        described = describe_error(error, _MODULE)
        place = f" ({described.location})" if described.location else ""
        text = f"{described.type}: {described.message}".removesuffix(": ")
        raise _TaskFailure(f"{text}{place}") from error


def _load(file: Path) -> App:
    from cornserve.app.source import load_app_source
    from cornserve.task.errors import DefinitionError

    try:
        return load_app_source(_read_source(file), _MODULE, filename=file.name)
    except DefinitionError as error:
        raise CliError(str(error)) from error


def _read_source(file: Path) -> str:
    from cornserve.client.deploy_target import MAX_SOURCE_MIB

    try:
        return read_bounded(expanded(file), MAX_SOURCE_MIB)
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"cannot read {file}: {getattr(error, 'strerror', None) or error}") from error


def _call_lines(calls: Sequence[RecordedCall]) -> Iterator[str]:
    for round_number, numbered in groupby(enumerate(calls), lambda pair: pair[1].round):
        yield f"round {round_number}"
        for number, call in numbered:
            yield f"  {number} {call.task.name} ({call.line}): {_text(call.request)}"


def _describe(call: RecordedCall) -> dict[str, Any]:
    return {"task": call.task.name, "round": call.round, "line": call.line, "request": _compact(call.request)}


def _text(value: Any) -> str:
    return _cut(_compact(value))


def _cut(text: str) -> str:
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
