"""The reference says what the code has, no more and no less."""

from __future__ import annotations

import re
from typing import Any, cast
from urllib.parse import urldefrag

import pytest
from fastapi.routing import APIRoute
from pydantic import BaseModel

import cornserve
from cornserve.app.record import AppSpec
from cornserve.control.store.base import Store
from cornserve.gateway.api import create_api
from cornserve.gateway.logs import Logs
from cornserve.gateway.metrics import Metrics
from cornserve.gateway.openai.chat import ChatCompletionRequest
from cornserve.task import errors
from cornserve.v1 import executor_pb2 as pb
from cornserve_tasklib import LLMTask
from tests.integration.docs import cli_reference
from tests.integration.docs.pages import ROOT, pages

REFERENCE = ROOT / "docs/reference"


def _section(page: str, heading: str) -> str:
    """From a heading to the next of the same level or above."""
    text = (REFERENCE / page).read_text()
    level = heading.split(" ", maxsplit=1)[0]
    start = text.index(f"\n{heading}\n")
    end = re.search(rf"^#{{1,{len(level)}}} ", text[start + 1 + len(heading) :], re.MULTILINE)
    return text[start:] if end is None else text[start : start + 1 + len(heading) + end.start()]


def _first_column(text: str, header: str) -> set[str]:
    """The names in the first column of the table whose first heading is `header`."""
    table = text[text.index(f"\n| {header} |") + 1 :].split("\n\n", maxsplit=1)[0]
    cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_the_commands_are_those_of_help() -> None:
    assert cli_reference.written().strip() == cli_reference.reference().strip(), (
        "docs/reference/cli.md is behind the commands: run `python -m tests.integration.docs.cli_reference`"
    )


def test_every_command_is_in_the_overview() -> None:
    overview = _first_column((REFERENCE / "cli.md").read_text(), "Command")

    assert overview == set(re.findall(r"^## cornserve (\w+)$", cli_reference.reference(), re.MULTILINE))


@pytest.mark.parametrize(
    ("page", "heading", "header", "model"),
    [
        ("http-api.md", "## Chat completions", "Field", ChatCompletionRequest),
        ("http-api.md", "### Deploying", "Field", AppSpec),
        ("task-api.md", "### LLMTask", "Setting", LLMTask),
    ],
)
def test_the_fields_are_those_of_the_code(page: str, heading: str, header: str, model: type[BaseModel]) -> None:
    assert _first_column(_section(page, heading), header) == set(model.model_fields)


def test_every_route_of_the_gateway_is_told() -> None:
    overview = (REFERENCE / "http-api.md").read_text().split("\n## ", maxsplit=1)[0]
    told = set(re.findall(r"`([A-Z]+ /[^`]*)`", overview))
    api = create_api(cast("Store", None), cast("Logs", None))
    routes = [route for route in api.routes if isinstance(route, APIRoute)]

    assert told == {f"{method} {route.path}" for route in routes for method in route.methods}


def test_every_metric_of_the_gateway_is_told() -> None:
    told = re.findall(r"^\| `(cornserve_\w+)", _section("http-api.md", "## Health and metrics"), re.MULTILINE)
    families = [family for family in Metrics().registry.collect() if family.name.startswith("cornserve")]

    assert {name.removesuffix("_total") for name in told} == {family.name for family in families}


def test_every_public_name_is_told() -> None:
    told = _first_column((REFERENCE / "task-api.md").read_text(), "Name")

    assert told == set(cornserve.__all__)


def test_every_error_is_told_with_its_base() -> None:
    section = _section("task-api.md", "## Errors")
    told = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", section, re.MULTILINE))

    assert told == {
        name: error.__bases__[0].__name__
        for name, error in vars(errors).items()
        if isinstance(error, type) and issubclass(error, BaseException)
    }


@pytest.mark.parametrize(("enum", "heading"), [(pb.Code, "### Codes"), (pb.Phase, "### Phases")])
def test_every_code_and_phase_is_told(enum: Any, heading: str) -> None:
    section = _section("executor-contract.md", heading)
    names = [name.split("_", 1)[1] for name in enum.keys() if not name.endswith("UNSPECIFIED")]  # noqa: SIM118

    assert [name for name in names if f"`{name}`" not in section] == []


def test_the_modules_that_the_architecture_names_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    places = [ROOT / "cornserve", ROOT, ROOT / "executors/cornserve_executors"]
    named = set(re.findall(r"`([\w/.*-]+(?:\.py|/))`", text))
    missing = {
        name
        for name in named
        if not any(next(place.glob(name.rstrip("/")), None) for place in [*places, *(it / "control" for it in places)])
    }

    assert named
    assert missing == set()


def test_the_links_of_the_readme_lead_somewhere() -> None:
    """mkdocs looks after those of the other pages."""
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / "README.md").read_text())
    local = [urldefrag(link) for link in links if "://" not in link]

    for path, fragment in local:
        assert (ROOT / path).exists(), path
        if fragment:
            headings = re.findall(r"^#+ (.+)$", (ROOT / path).read_text(), re.MULTILINE)
            assert fragment in {re.sub(r"[^\w-]", "", it.lower().replace(" ", "-")) for it in headings}


def test_pages_name_no_registry_and_no_place_of_one_machine() -> None:
    registry = r"https?://(?!127\.0\.0\.1)[\w.]*(pypi|pytorch|conda|mirror)"
    for page in pages():
        assert not re.search(rf"{registry}|/(?:home|root|work)/\w", (ROOT / page).read_text()), page
