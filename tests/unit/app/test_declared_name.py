from __future__ import annotations

import pytest

from cornserve.app.declared_name import check_declared_name, declared_name, renamed_source
from cornserve.task.errors import DefinitionError

IMPORT = "from cornserve import App, Task\n"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (IMPORT + "app = App(name='a', paths=[])", "a"),
        (IMPORT + "app = App('a', [])", "a"),
        (IMPORT + "app: App = App(paths=[], name='a')", "a"),
        (IMPORT + "NAME = 'a'\napp = App(name=NAME, paths=[])", None),
        (IMPORT + "app = App(**options)", None),
        (IMPORT + "app = App(name='a', paths=[])\nother = App(name='b', paths=[])", None),
        (IMPORT + "if True:\n    app = App(name='a', paths=[])", None),
        ("from mine import App\napp = App(name='a', paths=[])", None),
        ("app = App(", None),
        ("\0", None),
        ("(" * 10_000, None),
    ],
)
def test_the_name_is_read_from_a_literal_only(source: str, name: str | None) -> None:
    assert declared_name(source) == name


@pytest.mark.parametrize(
    "definition",
    [
        "app = App(name='a', paths=[])",
        "app = App('a', [])",
        "ö = 'é'; app = App(\n    name=(\n        'a'), paths=[]\n)",
    ],
)
def test_only_the_name_changes_when_an_app_is_renamed(definition: str) -> None:
    source = f"{IMPORT}TEXT = 'äa'\n{definition}\nlast = 'a'\n"

    renamed = renamed_source(source, "try-1")

    assert renamed == source.replace(definition, definition.replace("'a'", "'try-1'"))
    assert declared_name(renamed) == "try-1"


def test_an_app_whose_name_is_computed_is_not_renamed() -> None:
    assert renamed_source(IMPORT + "NAME = 'a'\napp = App(name=NAME, paths=[])", "b") is None


def test_a_name_that_is_not_known_before_the_source_runs_is_accepted() -> None:
    check_declared_name("a", "app = make()")
    with pytest.raises(DefinitionError, match="invalid app name"):
        check_declared_name("A", "app = make()")
