from __future__ import annotations

import pytest

from cornserve.app.declared_name import check_declared_name, declared_name
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


def test_a_name_that_is_not_known_before_the_source_runs_is_accepted() -> None:
    check_declared_name("a", "app = make()")
    with pytest.raises(DefinitionError, match="invalid app name"):
        check_declared_name("A", "app = make()")
