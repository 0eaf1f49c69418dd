"""Distributes the tests among pytest-xdist workers."""

from __future__ import annotations

import pytest
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]


class DirectoryScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Runs the integration tests of a directory in one worker, because they share engines, and other tests by file."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file.rpartition("/")[0] if file.startswith("tests/integration/") else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    return DirectoryScheduling(config, log) if config.getvalue("dist") == "loadscope" else None
