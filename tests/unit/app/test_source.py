"""Tests of importing the source of an app."""

from __future__ import annotations

import sys

import pytest

from cornserve.app.source import SourceError, load_app_source, unload_app

SOURCE = """
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoResponse, EchoTask

class Say(Task[EchoRequest, EchoResponse]):
    def post_init(self) -> None:
        self.echo = EchoTask(prefix="{prefix}")

    def invoke(self, request: EchoRequest) -> EchoResponse:
        return self.echo.invoke(request)

app = App(name="say", paths=[Say()])
"""


def test_two_versions_of_an_app_can_be_loaded_at_once() -> None:
    apps = [load_app_source(SOURCE.replace("{prefix}", prefix), f"version_{prefix}") for prefix in "ab"]

    try:
        prefixes = [spec.config["prefix"] for app in apps for spec in app.executor_specs().values()]
        assert prefixes == ["a", "b"]
        assert type(apps[0].paths[0]) is not type(apps[1].paths[0])
    finally:
        for prefix in "ab":
            unload_app(f"version_{prefix}")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("x = (", r"^app.py:1: SyntaxError: '\(' was never closed$"),
        ("x = 1\0", r"^app.py: SyntaxError: source code string cannot contain null bytes$"),
        ("x = 1\n\neval('1 +')", r"^app.py:3: SyntaxError: invalid syntax \(<string>, line 1\)$"),
        ("raise ValueError('first\\nsecond')", r"^app.py:1: ValueError: first second$"),
        ("import nothing_like_this", r"app.py:1: ModuleNotFoundError: No module named 'nothing_like_this'"),
        ("x = 1\ny = x / 0", r"app.py:2: ZeroDivisionError"),
        ("raise SystemExit(3)", r"app.py:1: SystemExit: 3"),
        (
            SOURCE.replace("[Say()]", "Say()"),
            r"app.py:\d+: the paths of app 'say' must be a list of tasks, not Say",
        ),
        (SOURCE.replace("Say()", "Say(x=1)"), r"app.py:\d+: invalid fields of Say: x: is not a known field: remove it"),
        ("x = 1", r"must define exactly one App .* but defines 0"),
        (SOURCE + "other = App(name='b', paths=[Say()])", r"must define exactly one App .* but defines 2"),
    ],
)
def test_a_source_without_an_app_is_rejected_with_line_and_reason(source: str, reason: str) -> None:
    with pytest.raises(SourceError, match=reason):
        load_app_source(source, "broken")

    assert "broken" not in sys.modules


def test_a_class_that_pydantic_refuses_is_an_error_without_an_address() -> None:
    with pytest.raises(SourceError, match=r"app\.py:5: .*`invoke = None`") as refused:
        load_app_source(SOURCE[: SOURCE.index("    def post_init")] + "    invoke = None\n", "without_invoke")

    assert "http" not in str(refused.value)
