"""`cornserve try` runs a task with given outputs of its unit tasks."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest
from typer.testing import CliRunner, Result

from cornserve.cli import file_import
from cornserve.cli.commands import app
from tests.unit.http_server import StubServer, json_response, sse_response

SOURCE = """
from collections.abc import Generator
from typing import Any

from pydantic import BaseModel

from cornserve import App, Task, recorded
from cornserve_echo import EchoRequest, EchoTask

class Question(BaseModel):
    question: str

class Reply(BaseModel):
    text: str

class Agent(Task[Question, Reply]):
    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: Question) -> Generator[Any, None, Reply]:
        both = [self.echo.invoke(EchoRequest(text=f"{request.question} {n}")) for n in range(2)]
        yield "counting"
        count = recorded(len, both[0].text)
        if both[1].text == "bad":
            raise ValueError("no good")
        return Reply(text=self.echo.invoke(EchoRequest(text=f"{both[1].text} {count}")).text)

app = App(name="agent", paths=[Agent()])
"""

ANSWERS = {"EchoTask": [{"text": text, "words_sent": 1} for text in ("four", "b", "c")]}

OUTPUT = """\
round 1
  0 EchoTask (agent.py:21): EchoRequest(text='Why? 0')
  1 EchoTask (agent.py:21): EchoRequest(text='Why? 1')
round 3
  2 EchoTask (agent.py:26): EchoRequest(text='b 4')
yielded 'counting'
response
{
  "text": "c"
}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (file := tmp_path / "agent.py").write_text(SOURCE)
    return file


def run(file: Path, *options: str, request: str = '{"question": "Why?"}') -> Result:
    return CliRunner().invoke(app, ["try", str(file), request, *options])


def test_the_calls_are_printed_by_round(file: Path) -> None:
    result = run(file, "--answers", json.dumps(ANSWERS))

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == OUTPUT


def test_the_calls_before_an_error_are_printed(file: Path) -> None:
    answers = {"EchoTask": {"text": "bad", "words_sent": 1}}

    result = run(file, "--answers", json.dumps(answers))
    document = json.loads(run(file, "--answers", json.dumps(answers), "--json").stdout)

    assert (result.exit_code, result.stdout) == (1, OUTPUT.partition("round 3")[0])
    assert "ValueError: no good (agent.py:25 in invoke)" in result.stderr
    assert [call["line"] for call in document["calls"]] == ["agent.py:21", "agent.py:21"]
    assert document["error"] == "ValueError: no good (agent.py:25 in invoke)"


def test_json_contains_the_calls_and_the_response(file: Path, tmp_path: Path) -> None:
    (tmp_path / "answers.json").write_text(json.dumps(ANSWERS))

    document = json.loads(run(file, "--answers", f"@{tmp_path / 'answers.json'}", "--json").stdout)

    assert [(call["round"], call["line"]) for call in document["calls"]] == [
        (1, "agent.py:21"),
        (1, "agent.py:21"),
        (3, "agent.py:26"),
    ]
    assert (document["yielded"], document["response"]) == (["'counting'"], {"text": "c"})


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ("{}", "the answers have no outputs of EchoTask, which the task calls: add its fields text, words_sent"),
        (
            '{"EchoTask": [{"text": "a", "words_sent": 1}]}',
            "the task calls EchoTask more than once: add another output",
        ),
        ('{"EchoTask": {"texts": 1}}', "EchoTask has no output 'texts' that a test can give: its outputs are text, "),
        ('{"EchoTask": {"text": "bad", "words_sent": 1}}', "ValueError: no good (agent.py:25 in invoke)"),
        ("[]", "the answers are not an object: give the outputs by the names of tasks"),
        ("{", "the object of answers is not valid JSON"),
    ],
)
def test_wrong_answers_and_errors_of_the_task_are_one_line(file: Path, answers: str, error: str) -> None:
    result = run(file, "--answers", answers)

    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {error}")
    assert result.stderr.count("\n") == 1


def test_a_slow_import_is_reported(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_import, "NOTICE_SECONDS", 0.0)

    result = run(file, "--answers", json.dumps(ANSWERS))

    assert result.exit_code == 0, result.stderr
    assert result.stderr == "importing agent.py …\n"


def test_a_file_may_have_any_name(file: Path, server: StubServer) -> None:
    renamed = file.rename(file.with_name("agent (copy) é.py"))

    result = run(renamed, "--url", server.url)

    assert result.stderr.startswith("error: no response for PUT /admin/v1/apps/try-")
    assert server.requests[0][1]["source"]["filename"] == "app.py"


def test_a_temporary_app_that_cannot_be_deleted_is_named(
    file: Path, server: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cornserve.cli.try_task.uuid4", lambda: UUID(int=0))
    status = {"phase": "failed", "generation": 1, "message": "no memory"}
    view = {"name": "try-00000000", "uid": "u", "generation": 1, "version": 1, "spec": {"model": {"id": "/m"}}}
    server.on("PUT /admin/v1/apps/try-00000000", json_response(view | {"status": {}}))
    server.on("GET /admin/v1/apps/try-00000000/events", sse_response(("put", view | {"status": status})))
    server.on("DELETE /admin/v1/apps/try-00000000", json_response({"error": {"message": "the disk is full"}}, 503))

    result = run(file, "--url", server.url)

    assert result.exit_code == 1
    warning, error = result.stderr.splitlines()
    assert warning == (
        "warning: the app try-00000000 may still exist: the disk is full: delete it with "
        "`cornserve delete try-00000000`"
    )
    assert error == f"error: {file} failed to start: no memory"


def test_wrong_files_requests_and_paths_are_one_line(file: Path, tmp_path: Path) -> None:
    given = ("--answers", "{}")
    (broken := tmp_path / "broken.py").write_text("app = 1 / 0")

    assert (
        run(file, *given, request='{"q": 1}').stderr
        == "error: the request is not valid: question: is required: add it\n"
    )
    assert run(file, *given, "--path", "1").stderr.startswith("error: unknown path 1: the number of paths is 1")
    assert run(broken, *given).stderr == "error: broken.py:1: ZeroDivisionError: division by zero\n"
    assert run(tmp_path / "missing.py", *given).stderr.startswith("error: cannot read ")
