"""Log lines are text or JSON, with the request's id and without its content."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextvars import copy_context

import pytest

from cornserve.control.launcher.log_excerpts import MAX_LINE_CHARACTERS, find_error
from cornserve.observe import logs
from cornserve.observe.log_format import LogFormat
from cornserve.observe.redaction import redacted_traceback

Written = Callable[[], str]

SECRET = "the patient is called Smith"


@pytest.fixture
def write_as(request: pytest.FixtureRequest) -> Iterator[Callable[[LogFormat], Written]]:
    """Adds a handler of the given format; returns a function that returns its output."""
    handlers: list[logging.Handler] = []

    def start(format: LogFormat) -> Written:
        handler = logs.handler(format)
        assert isinstance(handler, logging.StreamHandler)
        stream = io.StringIO()
        handler.setStream(stream)
        handlers.append(handler)
        logging.getLogger().addHandler(handler)
        return stream.getvalue

    yield start
    for handler in handlers:
        logging.getLogger().removeHandler(handler)


def in_a_request(log: Callable[[], None]) -> None:
    def request() -> None:
        logs.bind(request_id="abc", app="echo")
        logs.bind(invocation=2)
        log()

    copy_context().run(request)


def test_json_lines_contain_the_fields_of_the_request(write_as: Callable[[LogFormat], Written]) -> None:
    written = write_as(LogFormat.JSON)

    in_a_request(lambda: logging.getLogger("a.b").warning("hello %s", "world", extra={"fields": {"status": 200}}))

    (line,) = written().splitlines()
    record = json.loads(line)
    assert record.pop("time").endswith("+00:00")
    assert record == {
        "level": "WARNING",
        "logger": "a.b",
        "message": "hello world",
        "request_id": "abc",
        "app": "echo",
        "invocation": 2,
        "status": 200,
    }


def test_text_lines_contain_the_fields_of_the_request(write_as: Callable[[LogFormat], Written]) -> None:
    written = write_as(LogFormat.TEXT)

    in_a_request(lambda: logging.getLogger("a.b").warning("hello"))
    logging.getLogger("a.b").warning("outside")

    inside, outside = written().splitlines()
    assert inside.endswith("WARNING a.b hello request_id=abc app=echo invocation=2")
    assert outside.endswith("WARNING a.b outside")


@pytest.mark.parametrize(
    "value",
    ["a status=500", "a\nb", "a\x1b[2J", "a\x85b", "a\u2028b", "a=b", 'a"b', "a\\b", "", "ä", "a\tb", '" status=500 "'],
)
def test_a_value_cannot_add_fields_or_lines(write_as: Callable[[LogFormat], Written], value: str) -> None:
    text, as_json = write_as(LogFormat.TEXT), write_as(LogFormat.JSON)

    logging.getLogger("a.b").warning("hello", extra={"fields": {"client_request_id": value, "status": 200}})

    (line,) = text().splitlines()
    quoted = line.partition("client_request_id=")[2].removesuffix(" status=200")
    assert json.loads(quoted) == value
    assert line.isascii()
    assert line.isprintable()
    (json_line,) = as_json().splitlines()
    assert json.loads(json_line)["client_request_id"] == value
    assert json.loads(json_line)["status"] == 200


def test_plain_values_are_not_quoted(write_as: Callable[[LogFormat], Written]) -> None:
    written = write_as(LogFormat.TEXT)

    logging.getLogger("a.b").warning("hello", extra={"fields": {"id": "0a-B_/:.,<>[]{}!~", "seconds": 0.5}})

    assert written().endswith(" id=0a-B_/:.,<>[]{}!~ seconds=0.5\n")


def failure() -> Exception:
    try:
        try:
            raise KeyError(SECRET)
        except KeyError as error:
            raise ValueError(SECRET) from error
    except ValueError as error:
        return error


def test_a_redacted_traceback_has_types_and_frames_and_no_messages() -> None:
    redacted = redacted_traceback(failure())

    assert SECRET not in redacted
    assert redacted.splitlines()[-1] == "builtins.ValueError"
    assert "builtins.KeyError\nled to\n" in redacted
    assert "in failure" in redacted


def test_a_redacted_traceback_of_an_app_begins_with_the_source_of_the_app() -> None:
    namespace: dict[str, Callable[[Callable[[], object]], None]] = {}
    exec(compile("def call(function): function()", "<an_app>/app.py", "exec"), namespace)

    with pytest.raises(ZeroDivisionError) as caught:
        namespace["call"](lambda: 1 / 0)

    whole, shown = redacted_traceback(caught.value), redacted_traceback(caught.value, "<an_app>/")
    assert whole.endswith(shown.replace("app.py", "<an_app>/app.py"))
    first, *further = [line for line in shown.splitlines() if line.startswith("  File")]
    assert first == '  File "app.py", line 1, in call'
    assert len(further) == 1
    assert redacted_traceback(caught.value, "<another_app>/") == whole


FAILS = """
from cornserve import recorded

def fail(library):
    try:
        recorded(len, "")  # an error outside of a request
    except Exception:
        library()
"""


def raise_from_key_error() -> None:
    try:
        raise KeyError(SECRET)
    except KeyError as error:
        raise ValueError(SECRET) from error


def test_a_redacted_traceback_of_an_app_leaves_out_errors_without_its_frames_and_frames_of_cornserve() -> None:
    namespace: dict[str, Callable[[Callable[[], None]], None]] = {}
    exec(compile(FAILS, "<an_app>/app.py", "exec"), namespace)

    with pytest.raises(ValueError, match=SECRET) as caught:
        namespace["fail"](raise_from_key_error)
    shown = redacted_traceback(caught.value, "<an_app>/")

    frames = [line.rpartition(" ")[2] for line in shown.splitlines() if line.startswith("  File")]
    assert frames == ["fail", "fail", "raise_from_key_error"]
    assert "cornserve.task.errors.OutsideRequestError\nled to\n" in shown
    assert "KeyError" not in shown.replace("raise_from_key_error", "")


def test_the_causes_of_a_redacted_traceback_end() -> None:
    error = ValueError(SECRET)
    error.__cause__ = error
    chained = KeyError(0)
    for number in range(2000):
        later = KeyError(number)
        later.__cause__, chained = chained, later

    assert redacted_traceback(error) == "builtins.ValueError"
    assert redacted_traceback(chained).count("builtins.KeyError") == 20


def test_a_redacted_traceback_has_the_members_of_exception_groups() -> None:
    inner = ExceptionGroup(SECRET, [failure()])
    error = RuntimeError(SECRET)
    error.__cause__ = ExceptionGroup(SECRET, [inner, OSError(SECRET)])

    parts = redacted_traceback(error).split("\nwith the member\n")

    assert [part.splitlines()[-1] for part in parts] == [
        "builtins.RuntimeError",
        "builtins.ExceptionGroup",
        "builtins.OSError",
        "builtins.ValueError",
    ]
    assert "in failure" in parts[-1]
    assert SECRET not in "".join(parts)


def test_the_members_of_a_redacted_traceback_end() -> None:
    group = ExceptionGroup("many", [KeyError(number) for number in range(2000)])
    group.exceptions[0].__cause__ = group

    assert redacted_traceback(group).count("builtins.KeyError") == 10


def test_a_traceback_is_a_field_in_json_and_further_lines_in_text(write_as: Callable[[LogFormat], Written]) -> None:
    json_written, text_written = write_as(LogFormat.JSON), write_as(LogFormat.TEXT)
    extra = logs.traceback_field('File "app.py", line 3\nbuiltins.KeyError')

    in_a_request(lambda: logging.getLogger("a.b").error("it failed", extra=extra))

    (line,) = json_written().splitlines()
    first, *frames = text_written().splitlines()
    assert json.loads(line)["traceback"] == 'File "app.py", line 3\nbuiltins.KeyError'
    assert first.endswith("ERROR a.b it failed request_id=abc app=echo invocation=2")
    assert frames == ['File "app.py", line 3', "builtins.KeyError"]


@pytest.mark.parametrize("format", LogFormat)
async def test_errors_that_libraries_log_are_redacted(
    write_as: Callable[[LogFormat], Written], format: LogFormat
) -> None:
    written = write_as(format)

    logging.getLogger("uvicorn.error").error("Exception in ASGI application\n", exc_info=failure())
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.set_exception(failure())
    del future  # asyncio logs an exception that was never retrieved

    assert SECRET not in written()
    assert "Exception in ASGI application" in written()
    assert "exception was never retrieved" in written()
    assert "builtins.ValueError" in written()


def test_the_exit_reason_is_found_in_a_truncated_json_line(
    write_as: Callable[[LogFormat], Written],
) -> None:
    written = write_as(LogFormat.JSON)
    try:
        raise RuntimeError("no GPU")
    except RuntimeError:
        logging.getLogger("a").exception("the executor failed")
    line = written().strip()

    assert find_error([line]) == "RuntimeError: no GPU"
    assert find_error(["{not json", line[: line.index("traceback") + 20]]) == "RuntimeError: no GPU"
    assert line.index('"traceback"') < MAX_LINE_CHARACTERS


def test_an_unknown_format_exits_with_one_line() -> None:
    code = "from cornserve.observe import logs; logs.configure()"
    environment = {"CORNSERVE_LOG_FORMAT": "xml"}

    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stderr) == (
        1,
        "unknown log format 'xml': set CORNSERVE_LOG_FORMAT to 'text' or 'json'\n",
    )


def test_warnings_are_logged_without_their_message() -> None:
    program = f"import warnings; from cornserve.observe import logs; logs.configure(); warnings.warn({SECRET!r})"
    environment = os.environ | {"CORNSERVE_LOG_FORMAT": "json"}

    command = [sys.executable, "-c", program]
    written = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stderr

    assert json.loads(written)["message"] == "<string>:1: UserWarning"
    assert SECRET not in written
