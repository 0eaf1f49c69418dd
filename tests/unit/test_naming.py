"""Naming conventions that ruff does not check."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

VAGUE_NAMES = {"it", "one"}


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    """The tracked modules by path, without generated code."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, check=True, capture_output=True, text=True)
    files = [file for file in listed.stdout.splitlines() if "/v1/" not in file and (ROOT / file).exists()]
    return {file: (ROOT / file).read_text() for file in files}


def test_a_class_name_exists_once_in_the_project(sources: dict[str, str]) -> None:
    named = {file: set(re.findall(r"\bclass\s+(\w+)", source)) for file, source in sources.items()}
    counts = Counter(name for names in named.values() for name in names)
    files: defaultdict[str, list[str]] = defaultdict(list)
    for file, source in sources.items():
        # Strings also contain classes. Parsing all files would take seconds.
        if any(counts[name] > 1 for name in named[file]):
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.ClassDef):
                    files[node.name].append(file)

    assert {name: places for name, places in files.items() if len(places) > 1} == {}


def test_loop_variables_have_meaningful_names(sources: dict[str, str]) -> None:
    names = "|".join(VAGUE_NAMES)
    vague = [
        f"{file}:{target.lineno}"
        for file, source in sources.items()
        if re.search(rf"\bfor\b[^:]*?\b({names})\b[^:]*?\bin\b", source)
        for target in _loop_targets(ast.parse(source))
        if any(isinstance(name, ast.Name) and name.id in VAGUE_NAMES for name in ast.walk(target))
    ]

    assert vague == []


def _loop_targets(module: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(module):
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            yield node.target
