"""The command line in this process, and a server that stands in for a gateway."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from tests.unit.http_server import StubServer, serving


@pytest.fixture
def cli() -> CliRunner:
    return CliRunner(env={"COLUMNS": "200", "CORNSERVE_URL": None, "NO_COLOR": "1"})


@pytest.fixture
def server() -> Iterator[StubServer]:
    with serving() as server:
        yield server
