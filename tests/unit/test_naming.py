"""Naming conventions that ruff does not check."""

from __future__ import annotations

import ast
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

VAGUE_NAMES = {"it", "one"}


@pytest.fixture(scope="module")
def modules() -> dict[str, ast.Module]:
    """The tracked modules by path, without generated code."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, check=True, capture_output=True, text=True)
    files = [file for file in listed.stdout.splitlines() if "/v1/" not in file and (ROOT / file).exists()]
    return {file: ast.parse((ROOT / file).read_text()) for file in files}


def test_a_class_name_exists_once_in_the_project(modules: dict[str, ast.Module]) -> None:
    files: defaultdict[str, list[str]] = defaultdict(list)
    for file, module in modules.items():
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef):
                files[node.name].append(file)

    assert {name: places for name, places in files.items() if len(places) > 1} == {}


def test_loop_variables_have_meaningful_names(modules: dict[str, ast.Module]) -> None:
    vague = [
        f"{file}:{target.lineno}"
        for file, module in modules.items()
        for target in _loop_targets(module)
        if any(isinstance(name, ast.Name) and name.id in VAGUE_NAMES for name in ast.walk(target))
    ]

    assert vague == []


def _loop_targets(module: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(module):
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            yield node.target
