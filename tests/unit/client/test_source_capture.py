from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import JsonValue

from cornserve.app.app import App
from cornserve.app.source import load_app_source
from cornserve.client.source_capture import SourceCaptureError, capture_source

IMPORTS = """
import os, sys
from cornserve import App, Client, Task
from cornserve_echo import EchoRequest, EchoResponse, EchoTask
"""
CLASSES = """
def decorated(cls): return cls

@decorated
class Hello(Task[EchoRequest, EchoResponse]):
    greeting: str = GREETING

    def post_init(self) -> None:
        self.echo = EchoTask(prefix=polite(self.greeting))

    def invoke(self, request: EchoRequest) -> EchoResponse:
        client = self.echo
        return client.invoke(request)
"""
HELPERS = """
GREETING = "Hello"; client = Client("http://127.0.0.1:9")
def polite(text): return f"{text}, "
"""
APP = 'app = App(name="hello", paths=[Hello()])'


class Notebook:
    """Runs cells like IPython, which stores their text and variables in `__main__`."""

    def __init__(self, main: ModuleType) -> None:
        self._main = main
        vars(main).update(In=[""])

    def run(self, *cells: str) -> App:
        for cell in cells:
            vars(self._main)["In"].append(cell)
            exec(cell, vars(self._main))
        app = vars(self._main)["app"]
        assert isinstance(app, App)
        return app


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    return Notebook(main)


def prefixes(source: str) -> list[JsonValue]:
    app = load_app_source(source, "captured_in_a_test")
    return [spec.config["prefix"] for spec in app.executor_specs().values()]


def test_only_the_statements_that_an_app_needs_are_captured(notebook: Notebook) -> None:
    source = capture_source(notebook.run(IMPORTS, HELPERS, "1 / 1", CLASSES, APP))
    assert prefixes(source) == ["Hello, "]
    assert "Client(" not in source
    assert "1 / 1" not in source


def test_the_last_run_of_a_cell_is_captured(notebook: Notebook) -> None:
    again = HELPERS.replace("Hello", "Good morning")
    assert prefixes(capture_source(notebook.run(IMPORTS, HELPERS, CLASSES, again, CLASSES, APP))) == ["Good morning, "]


def test_cells_that_are_not_python_are_ignored(notebook: Notebook) -> None:
    app = notebook.run(IMPORTS, HELPERS, CLASSES, APP)
    vars(sys.modules["__main__"])["In"].append("%timeit (")
    assert prefixes(capture_source(app)) == ["Hello, "]


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([HELPERS, CLASSES, f"if True:\n    {APP}"], "binds 'app', which the app uses"),
        (["for GREETING in ['Hi']: polite = str", CLASSES, APP], "binds '(GREETING|polite)', which the app uses"),
        ([HELPERS, CLASSES, APP, "app.shares = (2.0,)"], "an object was changed after its definition"),
        (["GREETING = sys.argv[0].lower() if In else 0\npolite = str", CLASSES, APP], "binds 'In', which"),
    ],
)
def test_an_app_that_cannot_be_captured_is_rejected(notebook: Notebook, cells: list[str], message: str) -> None:
    app = notebook.run(IMPORTS, *cells)
    with pytest.raises(SourceCaptureError, match=message):
        capture_source(app)


def test_an_app_without_a_variable_is_rejected(notebook: Notebook) -> None:
    notebook.run(IMPORTS, HELPERS, CLASSES, APP)
    nameless = eval(APP.removeprefix("app = "), vars(sys.modules["__main__"]))
    with pytest.raises(SourceCaptureError, match="'hello' is not assigned to a variable"):
        capture_source(nameless)


def test_the_source_of_a_script_is_captured_without_running_it_again(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    ending = "from cornserve.client.source_capture import capture_source\nprint(capture_source(app))\n"
    script.write_text(f"from __future__ import annotations\n{IMPORTS}{HELPERS}{CLASSES}{APP}\n{ending}")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert prefixes(done.stdout) == ["Hello, "]
    assert "capture_source" not in done.stdout


def test_an_app_in_the_python_shell_is_rejected() -> None:
    attempt = (
        "from cornserve.client.source_capture import *\n"
        "try: capture_source(app)\nexcept Exception as error: print(error)"
    )
    code = f"{IMPORTS}app = App(name='a', paths=[EchoTask()])\n{attempt}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Python does not store the text that is typed into this shell: deploy a file")
