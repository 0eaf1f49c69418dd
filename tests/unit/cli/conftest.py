"""The command line in this process, and a server that stands in for a gateway."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from cornserve.cli import file_import
from tests.unit.http_server import StubServer, serving


@pytest.fixture(autouse=True)
def _imports_are_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents the notice of a slow import on a busy machine."""
    monkeypatch.setattr(file_import, "NOTICE_SECONDS", 600.0)


@pytest.fixture
def cli() -> CliRunner:
    return CliRunner(env={"COLUMNS": "200", "CORNSERVE_URL": None, "NO_COLOR": "1"})


@pytest.fixture
def server() -> Iterator[StubServer]:
    with serving() as server:
        yield server
