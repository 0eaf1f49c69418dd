from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import JsonValue

from cornserve.app.app import App
from cornserve.app.source import load_app_source
from cornserve.client.capture import CaptureError, source_of

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
    """What is left of a notebook's cells, as IPython leaves it in `__main__`."""

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


def test_the_cells_of_a_notebook_give_what_an_app_needs_and_nothing_else(notebook: Notebook) -> None:
    source = source_of(notebook.run(IMPORTS, HELPERS, "1 / 1", CLASSES, APP))
    assert prefixes(source) == ["Hello, "]
    assert "Client(" not in source
    assert "1 / 1" not in source


def test_of_a_cell_that_ran_twice_the_second_run_counts(notebook: Notebook) -> None:
    again = HELPERS.replace("Hello", "Good morning")
    assert prefixes(source_of(notebook.run(IMPORTS, HELPERS, CLASSES, again, CLASSES, APP))) == ["Good morning, "]


def test_cells_that_are_no_python_are_nobodys(notebook: Notebook) -> None:
    app = notebook.run(IMPORTS, HELPERS, CLASSES, APP)
    vars(sys.modules["__main__"])["In"].append("%timeit (")
    assert prefixes(source_of(app)) == ["Hello, "]


@pytest.mark.parametrize(
    ("cells", "complaint"),
    [
        ([HELPERS, CLASSES, f"if True:\n    {APP}"], "binds 'app', which the app uses"),
        (["for GREETING in ['Hi']: polite = str", CLASSES, APP], "binds '(GREETING|polite)', which the app uses"),
        ([HELPERS, CLASSES, APP, "app.shares = (2.0,)"], "something was changed after it was defined"),
        (["GREETING = sys.argv[0].lower() if In else 0\npolite = str", CLASSES, APP], "binds 'In', which"),
    ],
)
def test_what_cannot_be_taken_along_is_said(notebook: Notebook, cells: list[str], complaint: str) -> None:
    app = notebook.run(IMPORTS, *cells)
    with pytest.raises(CaptureError, match=complaint):
        source_of(app)


def test_an_app_that_has_no_name_cannot_be_found(notebook: Notebook) -> None:
    notebook.run(IMPORTS, HELPERS, CLASSES, APP)
    nameless = eval(APP.removeprefix("app = "), vars(sys.modules["__main__"]))
    with pytest.raises(CaptureError, match="'hello' is not the value of a variable"):
        source_of(nameless)


def test_a_script_gives_its_apps_source_without_running_again(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    ending = "from cornserve.client.capture import source_of\nprint(source_of(app))\n"
    script.write_text(f"from __future__ import annotations\n{IMPORTS}{HELPERS}{CLASSES}{APP}\n{ending}")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert prefixes(done.stdout) == ["Hello, "]
    assert "source_of" not in done.stdout


def test_a_shell_that_keeps_no_text_says_so() -> None:
    attempt = "from cornserve.client.capture import *\ntry: source_of(app)\nexcept Exception as error: print(error)"
    code = f"{IMPORTS}app = App(name='a', paths=[EchoTask()])\n{attempt}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Python keeps no text of what is typed into this shell. Deploy a file")
