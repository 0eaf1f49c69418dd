"""How tests are divided among the processes that run them."""

from __future__ import annotations

import pytest
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]


class ByRoom(LoadScopeScheduling):  # type: ignore[misc]
    """The integration tests of a folder share what they start, engines above all: one process runs them all. Of other
    tests, one process runs those of a file.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file.rpartition("/")[0] if file.startswith("tests/integration/") else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    return ByRoom(config, log) if config.getvalue("dist") == "loadscope" else None
