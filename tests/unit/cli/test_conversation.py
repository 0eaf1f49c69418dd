"""`cornserve chat` with a terminal, and texts of models there."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.unit.http_server import StubResponse, StubServer, json_response


class Terminal(NamedTuple):
    """A terminal: the end that shows and types, and the end of the program that runs in it."""

    screen: int
    program: int


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal(*pty.openpty())
    yield terminal
    for end in terminal:
        with suppress(OSError):  # It is closed.
            os.close(end)


def chat_response(text: str) -> StubResponse:
    chunk = json.dumps({"choices": [{"delta": {"content": text}}]})
    return StubResponse(f"data: {chunk}\n\ndata: [DONE]\n\n".encode(), type="text/event-stream")


def command(server: StubServer, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "cornserve.cli", *arguments, "--url", server.url]


def test_an_api_key_suffices_for_a_conversation(server: StubServer, terminal: Terminal) -> None:
    server.on("GET /v1/models", json_response({"data": [{"id": "a"}]}))
    server.on("POST /v1/chat/completions", chat_response("Hi."))
    os.write(terminal.screen, b"Hello!\n/quit\n")

    done = subprocess.run(
        command(server, "chat", "a"), stdin=terminal.program, capture_output=True, text=True, check=False
    )

    assert (done.returncode, "Hi." in done.stdout) == (0, True), done.stderr
    assert [call for call, _ in server.requests] == ["GET /v1/models", "POST /v1/chat/completions"]


def test_a_conversation_survives_a_broken_connection(server: StubServer, terminal: Terminal) -> None:
    server.on("GET /v1/models", json_response({"data": [{"id": "a"}]}))
    broken = StubResponse(b"", type="text/event-stream", cut=True)
    server.on("POST /v1/chat/completions", chat_response("Hi."), broken, chat_response("Yes."))
    os.write(terminal.screen, b"Hello!\nWhy?\nAre you there?\n/quit\n")

    done = subprocess.run(
        command(server, "chat", "a"), stdin=terminal.program, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert f"error: Cornserve at {server.url} closed the connection" in done.stderr
    _, last = server.requests[-1]
    assert [message["content"] for message in last["messages"]] == ["Hello!", "Hi.", "Are you there?"]


def test_standard_streams_may_be_closed(server: StubServer) -> None:
    server.on("POST /v1/chat/completions", chat_response("Hi."))

    def run(closed: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        shell = ["sh", "-c", f'exec "$@" {closed}', "sh"]
        return subprocess.run([*shell, *command(server, *arguments)], stderr=subprocess.PIPE, text=True, check=False)

    without_output, without_input = run(">&-", "chat", "a", "Hello!"), run("<&-", "chat", "a")

    assert (without_output.returncode, without_output.stderr) == (0, "")
    assert (without_input.returncode, without_input.stderr) == (
        1,
        "error: the question is missing: give it as an argument or on standard input\n",
    )


def test_a_conversation_with_an_unknown_app_is_refused(server: StubServer, terminal: Terminal) -> None:
    server.on("GET /v1/models", json_response({"data": [{"id": "a"}]}))

    done = subprocess.run(
        command(server, "chat", "b"), stdin=terminal.program, capture_output=True, text=True, check=False
    )

    assert done.stderr.startswith(f"error: no app 'b' serves at {server.url}: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "call", "response"),
    [
        (["chat", "a", "Hello!"], "POST /v1/chat/completions", chat_response("read\x1b[2J")),
        (["transcribe", "a", "speech.wav"], "POST /v1/audio/transcriptions", json_response({"text": "read\x1b[2J"})),
    ],
)
def test_texts_of_models_do_not_control_the_terminal(
    tmp_path: Path, server: StubServer, terminal: Terminal, arguments: list[str], call: str, response: StubResponse
) -> None:
    server.on(call, response)
    (tmp_path / "speech.wav").touch()

    subprocess.run(command(server, *arguments), cwd=tmp_path, stdout=terminal.program, check=True)

    assert os.read(terminal.screen, 4096).splitlines() == [rb"read\x1b[2J"]
