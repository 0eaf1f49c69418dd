"""The README of a package lists its files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "package",
    [
        "cornserve/app_host",
        "cornserve/control",
        "cornserve/gateway",
        "cornserve/kubernetes",
        "cornserve/kubernetes_resources",
        "cornserve/transport",
        "executors/cornserve_executors",
        "plan/cornserve_plan",
        "planner/cornserve_planner",
        "policies/cornserve_policies",
    ],
)
def test_a_package_readme_lists_exactly_the_files_of_the_package(package: str) -> None:
    directory = ROOT / package
    rows = [line.split("|")[1] for line in (directory / "README.md").read_text().splitlines() if line.startswith("| `")]
    named = {directory / name for row in rows for name in re.findall("`(.+?)`", row)}
    files = {file for file in directory.rglob("*.py") if file.name != "__init__.py"}

    assert {path for path in named if not path.exists()} == set()
    assert {file for file in files if not named & {file, *file.parents}} == set()
