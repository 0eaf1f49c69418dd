"""The committed files of the console."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from pydantic import BaseModel

from cornserve.app import overview
from cornserve.app.graph import AppGraph
from cornserve.app.record import ReplicaLog
from cornserve.gateway.console.middleware import SessionView
from cornserve.gateway.endpoints.admin import AppLogs
from tests.programs import require_program

ROOT = Path(__file__).parents[3]
SOURCES, BUILT = ROOT / "console", ROOT / "cornserve/gateway/console/static"

TYPES = SOURCES / "src/api/types.ts"

DOCUMENTS: dict[str, type[BaseModel]] = {
    "Session": SessionView,
    "Percentiles": overview.SecondsPercentiles,
    "Gateways": overview.ReadGateways,
    "TargetFigures": overview.TargetFigures,
    "AppFigures": overview.AppFigures,
    "AppEvent": overview.OverviewEvent,
    "Attention": overview.Attention,
    "Overview": overview.Overview,
    "Replica": overview.LiveReplica,
    "Node": overview.LiveNode,
    "Edge": overview.LiveEdge,
    "Path": overview.LivePath,
    "PlannedPath": overview.LivePlannedPath,
    "Cell": overview.LiveCell,
    "Plan": overview.LivePlan,
    "Proposal": overview.LiveProposal,
    "LiveApp": overview.LiveApp,
    "Series": overview.AppSeries,
    "RequestSummary": overview.RequestSummary,
    "RequestLists": overview.RequestList,
    "Span": overview.RequestSpan,
    "RequestTimeline": overview.RequestTimeline,
    "ReplicaLog": ReplicaLog,
    "ReplicaLogs": AppLogs,
    "AppGraph": AppGraph,
}
"""The models of the gateway by the interfaces of the page."""

MAX_BYTES = 400_000
"""The maximum size of the page and all its files, compressed."""


def test_the_page_is_small() -> None:
    sizes = [len(gzip.compress(file.read_bytes())) for file in BUILT.rglob("*") if file.is_file()]

    assert 0 < sum(sizes) < MAX_BYTES


def test_the_locked_packages_name_no_registry() -> None:
    assert '"resolved"' not in (SOURCES / "package-lock.json").read_text()


@pytest.mark.parametrize(("name", "model"), DOCUMENTS.items())
def test_the_page_reads_fields_that_documents_have(name: str, model: type[BaseModel]) -> None:
    [fields] = re.findall(rf"^export interface {name}\b[^{{]*{{\n(.*?)^}}", TYPES.read_text(), re.MULTILINE | re.DOTALL)

    read = set(re.findall(r"^  (\w+)\??:", fields, re.MULTILINE))
    assert read
    assert read - set(model.model_fields) == set()


@pytest.mark.slow
def test_the_sources_have_no_errors_and_build_the_committed_files(tmp_path: Path) -> None:
    npm = require_program("npm")
    console = tmp_path / "console"
    shutil.copytree(SOURCES, console, ignore=shutil.ignore_patterns("node_modules"))

    for command in (["install", "--no-audit", "--no-fund"], ["run", "check"], ["run", "build"]):
        subprocess.run([npm, *command], cwd=console, check=True)

    assert _files(tmp_path / "cornserve/gateway/console/static") == _files(BUILT)


def _files(directory: Path) -> dict[Path, bytes]:
    return {file.relative_to(directory): file.read_bytes() for file in directory.rglob("*") if file.is_file()}
