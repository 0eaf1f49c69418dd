"""Descriptions of the errors of an app's code."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cornserve.app.source import source_path
from cornserve.app_host.host_error import describe_error

MODULE = "an_app"

CODE = """
def parse(text):
    return int(text)

def read(text):
    try:
        return parse(text)
    except ValueError as error:
        raise LookupError("no number") from error

def own_cause():
    error = LookupError("a cycle")
    raise error from error

def group():
    try:
        parse("b")
    except ValueError as error:
        raise ExceptionGroup("two failed", [error, MemoryError()])
"""


@pytest.fixture(scope="module")
def app() -> dict[str, Callable[..., object]]:
    namespace: dict[str, Callable[..., object]] = {}
    exec(compile(CODE, source_path(MODULE, "app.py"), "exec"), namespace)
    return namespace


def test_the_location_is_that_of_the_error_and_not_of_its_cause(app: dict[str, Callable[..., object]]) -> None:
    with pytest.raises(LookupError) as caught:
        app["read"]("a")

    described = describe_error(caught.value, MODULE)

    assert (described.type, described.message) == ("LookupError", "no number")
    assert described.location == "app.py:9 in read"


def test_the_location_of_an_error_outside_of_the_app_is_that_of_its_cause(
    app: dict[str, Callable[..., object]],
) -> None:
    error = LookupError("no number")
    with pytest.raises(ValueError, match="invalid literal") as caught:
        app["parse"]("a")
    error.__cause__ = caught.value

    assert describe_error(error, MODULE).location == "app.py:3 in parse"


def test_an_error_that_is_its_own_cause_is_described(app: dict[str, Callable[..., object]]) -> None:
    with pytest.raises(LookupError) as caught:
        app["own_cause"]()

    assert describe_error(caught.value, MODULE).location == "app.py:13 in own_cause"


def test_the_traceback_has_the_members_of_a_group(app: dict[str, Callable[..., object]]) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        app["group"]()

    described = describe_error(caught.value, MODULE)

    assert described.location == "app.py:19 in group"
    first, *members = described.traceback.split("\nwith the member\n")
    assert first.endswith("ExceptionGroup")
    assert [member.splitlines()[-1] for member in members] == ["builtins.ValueError", "builtins.MemoryError"]
    assert 'File "app.py", line 3, in parse' in members[0]
    assert described.is_exhausted
