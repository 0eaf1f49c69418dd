"""The reference documents exactly what the code has."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast, get_args, get_origin
from urllib.parse import urldefrag

import pytest
from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector
from pydantic import BaseModel

import cornserve
from cornserve import client
from cornserve.app.adaptation_status import AutoscaledLoad
from cornserve.app.costs import CostReport
from cornserve.app.overview import (
    AppFigures,
    AppSeries,
    LiveApp,
    Overview,
    ReadGateways,
    RequestList,
    RequestTimeline,
)
from cornserve.app.record import AppStatus, ReplicaState
from cornserve.app.settings import LatencyTargetSettings
from cornserve.app.spec import AppModel, AppSource, AppSpec
from cornserve.control.launcher.base import ExecutorGroup, GroupKey, Replica, ReplicaId
from cornserve.control.launcher.local.device_slots import DeviceSlots
from cornserve.control.launcher.local.launcher import LocalLauncher
from cornserve.control.metrics import ControllerMetrics
from cornserve.gateway.api import create_api
from cornserve.gateway.context import GatewayContext
from cornserve.gateway.endpoints.admin import AppHistory, AppLogs
from cornserve.gateway.endpoints.openai.chat import ChatCompletionRequest
from cornserve.gateway.endpoints.openai.classification import ClassifyRequest
from cornserve.gateway.endpoints.openai.common_fields import GenerationRequest
from cornserve.gateway.endpoints.openai.completions import TextCompletionRequest
from cornserve.gateway.endpoints.openai.embeddings import CreateEmbeddingRequest
from cornserve.gateway.endpoints.openai.images import CreateImageRequest
from cornserve.gateway.endpoints.openai.scoring import RerankRequest, ScoreRequest
from cornserve.gateway.endpoints.openai.transcriptions import TranscriptionForm
from cornserve.gateway.http.admission import RequestAdmission
from cornserve.gateway.live.cost_history import GroupUse
from cornserve.gateway.live.cost_metrics import CostMetrics
from cornserve.gateway.live.feed import LiveFeed
from cornserve.gateway.observe.gateway_metrics import GatewayMetrics
from cornserve.gateway.observe.replica_metrics import ReplicaMetrics, ReplicaStatsRegistry
from cornserve.home import Home
from cornserve.limits import Limits
from cornserve.task import errors
from cornserve.task.spec import ExecutorSpec
from cornserve.transport import Transport
from cornserve.v1 import executor_pb2 as pb
from cornserve_executors.base.metrics import ExecutorMetrics
from cornserve_planner.adaptation.drift import check_drift
from cornserve_planner.adaptation.saved_plan import adapt_plan
from cornserve_planner.inputs.planning_inputs import load_inputs
from cornserve_planner.model.solution import Solution
from cornserve_planner.plan_file import parts
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.planning.model_plan import make_plan
from cornserve_planner.planning.request import PlanRequest
from cornserve_planner.workload.request_files import request_lines_schema
from cornserve_policies.path_table import CellPath
from cornserve_tasklib import (
    ClassificationTask,
    EmbeddingTask,
    EncoderTask,
    ImageGenerator,
    LLMTask,
    OmniTask,
    ScoringTask,
    TalkerTask,
    TranscriptionTask,
)
from cornserve_tasklib.sampling_fields import SamplingFields
from cornserve_tasklib.talker import TalkerRequest
from tests.credentials import CREDENTIALS
from tests.integration.docs import cli_reference
from tests.integration.docs.documented_metrics import DocumentedMetrics, documented_metrics
from tests.integration.docs.pages import ROOT, pages
from tests.waiting import until

REFERENCE = ROOT / "docs/reference"


def _section(page: str, heading: str) -> str:
    """Returns the text from a heading to the next heading of the same or a higher level."""
    text = (REFERENCE / page).read_text()
    level = heading.split(" ", maxsplit=1)[0]
    start = text.index(f"\n{heading}\n")
    end = re.search(rf"^#{{1,{len(level)}}} ", text[start + 1 + len(heading) :], re.MULTILINE)
    return text[start:] if end is None else text[start : start + 1 + len(heading) + end.start()]


def _first_column(text: str, header: str) -> set[str]:
    """Returns the names in the first column of the table whose first header is `header`."""
    table = text[text.index(f"\n| {header} |") + 1 :].split("\n\n", maxsplit=1)[0]
    cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_the_command_reference_equals_the_help_texts() -> None:
    assert cli_reference.committed().strip() == cli_reference.generated().strip(), (
        "docs/reference/cli.md is outdated: run `python -m tests.integration.docs.cli_reference`"
    )


def test_the_usage_of_a_command_has_its_subcommands_and_required_options() -> None:
    usages = set(re.findall(r"^    (cornserve .*)$", cli_reference.generated(), re.MULTILINE))

    assert usages >= {
        "cornserve plan COMMAND | MODEL [ARGS]...",
        "cornserve plan adapt FILE --rate RATE [OPTIONS]",
        "cornserve plan check FILE --workload WORKLOAD [OPTIONS]",
        "cornserve models [OPTIONS] [COMMAND [ARGS]...]",
        "cornserve wait APP [OPTIONS]",
    }


def test_every_command_is_in_the_overview() -> None:
    overview = _first_column((REFERENCE / "cli.md").read_text(), "Command")

    assert overview == set(re.findall(r"^## cornserve (\w+)$", cli_reference.generated(), re.MULTILINE))


@pytest.mark.parametrize(
    ("page", "heading", "header", "model"),
    [
        ("http-api.md", "## Chat completions", "Field", ChatCompletionRequest),
        ("http-api.md", "## Embeddings", "Field", CreateEmbeddingRequest),
        ("http-api.md", "## Transcriptions and translations", "Field", TranscriptionForm),
        ("task-api.md", "### LLMTask", "Setting", LLMTask),
        ("task-api.md", "### EmbeddingTask", "Setting", EmbeddingTask),
        ("task-api.md", "### ScoringTask", "Setting", ScoringTask),
        ("task-api.md", "### ClassificationTask", "Setting", ClassificationTask),
        ("http-api.md", "## Classify", "Field of `/classify`", ClassifyRequest),
        ("task-api.md", "### TranscriptionTask", "Setting", TranscriptionTask),
        ("http-api.md", "## Image generation", "Field", CreateImageRequest),
        ("task-api.md", "### ImageGenerator", "Setting", ImageGenerator),
        ("task-api.md", "### TalkerTask", "Setting", TalkerTask),
        ("task-api.md", "### OmniTask", "Setting", OmniTask),
        ("task-api.md", "### EncoderTask", "Setting", EncoderTask),
    ],
)
def test_documented_fields_equal_the_fields_of_the_model(
    page: str, heading: str, header: str, model: type[BaseModel]
) -> None:
    assert _first_column(_section(page, heading), header) == set(model.model_json_schema()["properties"])


def test_documented_fields_of_a_deployment_equal_those_of_its_spec() -> None:
    parts: dict[str, type[BaseModel]] = {"": AppSpec, "model.": AppModel, "source.": AppSource}

    assert _first_column(_section("http-api.md", "### Deployment"), "Field") == {
        f"{prefix}{field}" for prefix, part in parts.items() for field in part.model_fields
    }


def test_documented_fields_of_a_talker_equal_those_of_its_requests() -> None:
    section = _section("task-api.md", "### TalkerTask")  # A stream of tensors has no JSON schema.

    assert _first_column(section, "Field of a `TalkerRequest`") == set(TalkerRequest.model_fields)


@pytest.mark.parametrize(("path", "model"), [("/v1/rerank", RerankRequest), ("/v1/score", ScoreRequest)])
def test_documented_fields_of_scores_equal_the_fields_of_the_models(path: str, model: type[BaseModel]) -> None:
    section = _section("http-api.md", "## Rerank and score")
    own = _first_column(section, f"Field of `{path}`")

    assert own | _first_column(section, "Shared field") == set(model.model_fields)


def test_completions_document_the_shared_fields_and_their_own() -> None:
    own = _first_column(_section("http-api.md", "## Completions"), "Field")
    shared = {*SamplingFields.model_fields, *GenerationRequest.model_fields}

    assert own | shared == set(TextCompletionRequest.model_fields)


@pytest.mark.parametrize(
    ("header", "model", "elsewhere"),
    [
        ("Object of the overview", Overview, ()),
        ("Object of an app", LiveApp, (AppFigures, ReadGateways)),
        ("Object of a series", AppSeries, (ReadGateways,)),
        ("Object of the costs", CostReport, (ReadGateways,)),
        ("Object of the requests", RequestList, (ReadGateways,)),
        ("Object of a timeline", RequestTimeline, (ReadGateways,)),
        ("Object of the history", AppHistory, ()),
        ("Object of the logs", AppLogs, ()),
    ],
)
def test_documented_objects_equal_those_that_the_gateway_returns(
    header: str, model: type[BaseModel], elsewhere: tuple[type[BaseModel], ...]
) -> None:
    text = (REFERENCE / "http-api.md").read_text()
    table = text[text.index(f"\n| {header} |") + 1 :].split("\n\n", maxsplit=1)[0]
    documented = {
        path: set(re.findall(r"`([^`]+)`", fields))
        for objects, fields in (line.split("|")[1:3] for line in table.splitlines()[2:])
        for path in re.findall(r"`([^`]+)`", objects) or [""]
    }

    assert documented == dict(_objects(model, elsewhere))


def _objects(
    model: type[BaseModel], elsewhere: tuple[type[BaseModel], ...], path: str = ""
) -> Iterator[tuple[str, set[str]]]:
    """Yields the paths of the objects in a document, with their fields, but for the models `elsewhere`."""
    yield path, set(model.model_fields)
    for name, field in model.model_fields.items():
        is_list = get_origin(field.annotation) is list
        kinds = [kind for kind in (field.annotation, *get_args(field.annotation)) if isinstance(kind, type)]
        for kind in kinds:
            if issubclass(kind, BaseModel) and kind not in elsewhere:
                yield from _objects(kind, elsewhere, ".".join(filter(None, [path, name])) + "[]" * is_list)


def test_every_route_of_the_gateway_is_documented() -> None:
    overview = (REFERENCE / "http-api.md").read_text().split("\n## ", maxsplit=1)[0]
    documented = set(re.findall(r"`([A-Z]+ /[^`]*)`", overview))
    api = create_api(cast("GatewayContext", None), cast("LiveFeed", None))
    routes = [route for route in api.routes if isinstance(route, APIRoute)]

    assert documented == {f"{method} {route.path}" for route in routes for method in route.methods}


@pytest.mark.parametrize(
    ("header", "part"),
    [
        ("Field", PlanFile),
        ("Field of a model", parts.PlannedModel),
        ("Field of a GPU type", parts.PlannedGpuType),
        ("Field of an option", parts.PlannedOption),
        ("Field of a type", parts.PlannedType),
        ("Field of a step", parts.PlannedStep),
        ("Field of a cell", parts.PlannedCell),
        ("Field of the provenance", parts.Provenance),
    ],
)
def test_every_field_of_plan_files_is_documented(header: str, part: type[BaseModel]) -> None:
    written = {name for name, field in part.model_fields.items() if not field.exclude}
    assert _first_column((REFERENCE / "plans.md").read_text(), header) == written


def test_every_field_of_the_json_output_of_the_planner_is_documented() -> None:
    found = make_plan(PlanRequest("qwen2.5-omni-7b", gpus=1)).as_document()
    page = (REFERENCE / "plans.md").read_text()

    assert _first_column(page, "Field of the search") == found.keys() - PlanFile.model_fields
    assert _first_column(page, "Field of a plan without cells") == set(Solution.model_fields)
    assert _first_column(page, "Field of an explanation") == found["explanations"][0].keys()
    assert _first_column(page, "Field of the confidence") == found["confidence"].keys()


def test_every_field_of_adaptations_and_checks_is_documented() -> None:
    file = make_plan(PlanRequest("qwen-image", gpus=1)).file
    page = (REFERENCE / "plans.md").read_text()

    adapted = adapt_plan(file, 1.0).as_document()
    checked = check_drift(file, load_inputs("qwen-image").workload).as_document()
    assert _first_column(page, "Field of an adaptation") == adapted.keys() - file.as_document().keys()
    assert _first_column(page, "Field of a check") == checked.keys()


def test_the_schema_of_plan_files_is_current() -> None:
    committed = json.loads((REFERENCE / "plan-file.schema.json").read_text())

    assert committed == PlanFile.json_schema(), "run `cornserve plan --schema > docs/reference/plan-file.schema.json`"


def test_the_schema_of_files_of_requests_is_current() -> None:
    committed = json.loads((REFERENCE / "requests.schema.json").read_text())

    command = "python -m cornserve_planner workload schema > docs/reference/requests.schema.json"
    assert committed == request_lines_schema(), f"run `{command}`"


def test_every_limit_is_documented_with_its_default() -> None:
    text = (ROOT / "docs/how-to/limit-requests.md").read_text()
    documented = dict(re.findall(r"^\| `([a-z-]+)` \| (\d+|an eighth of the memory)[, ]", text, re.MULTILINE))
    shares = {name for name, value in documented.items() if not value.isdigit()}

    assert shares == {"bodies-mib", "slab-mib"}
    assert {name.replace("-", "_"): int(value) for name, value in documented.items() if name not in shares} == {
        name: value for name, value in asdict(Limits()).items() if name not in ("bodies_mib", "slab_mib")
    }


def _metrics_of(registry: CollectorRegistry) -> DocumentedMetrics:
    families = [family for family in registry.collect() if family.name.startswith("cornserve")]
    return {
        (family.name, family.type, frozenset(label for sample in family.samples for label in sample.labels) - {"le"})
        for family in families
    }


def test_every_metric_of_the_gateway_is_documented() -> None:
    metrics = GatewayMetrics()
    stats = ReplicaStatsRegistry()
    stats.add("group", "endpoint", "replica")
    stats.for_endpoint("endpoint").record_start()
    stats.for_endpoint("endpoint").record_end("OK", 1)
    metrics.registry.register(ReplicaMetrics(stats, lambda: {"group": 1}))
    metrics.registry.register(RequestAdmission())
    metrics.registry.register(CostMetrics({"group": GroupUse(1, 2.5)}))
    metrics.record_error(404, "model_not_found")
    metrics.set_targets("app", LatencyTargetSettings(end_to_end_seconds=1.0, admission=True))
    request = metrics.new_request("app")
    request.admit(streams=False)
    request.record_media(["image"])
    planned = CellPath("text", "4-0", 0)
    request.record_path(0, planned)
    request.record_invocation("group", "executor", 1)
    request.begin_attempt("Task", "group", "replica", index=0, attempt=0, after=[], queued=0.0)
    request.record_compute_time("group", 1.0)
    request.record_edges([], "group")
    metrics.set_planned_shares("app", [(planned, 1.0)])
    metrics.retain_groups("app", {"group"}, {"executor": "option"})
    request.record_end(500)

    assert documented_metrics("## Gateway") == _metrics_of(metrics.registry)


def test_every_metric_of_executors_is_documented() -> None:
    metrics = ExecutorMetrics(lambda: ())
    with metrics.invocation():
        pass

    assert documented_metrics("## Executors") == _metrics_of(metrics.registry)


def test_every_metric_of_the_transport_is_documented(tmp_path: Path) -> None:
    transport = Transport(tmp_path, CREDENTIALS, slab_bytes=1 << 20, request_bytes=1 << 20)

    class Tensors(Collector):
        def collect(self) -> Iterator[Metric]:
            yield from transport.metrics()

    registry = CollectorRegistry()
    registry.register(Tensors())

    assert documented_metrics("## Tensors") == _metrics_of(registry)


async def test_every_metric_of_the_controller_is_documented(tmp_path: Path) -> None:
    launcher = LocalLauncher(Home(tmp_path), DeviceSlots.cpu(0))
    await launcher.start()
    await launcher.apply(ExecutorGroup(ExecutorSpec(executor="echo", gpus=1), 1))  # fails: too many GPUs
    await until(lambda: any(replica.state is ReplicaState.FAILED for replica in launcher.replicas()))
    metrics = ControllerMetrics(launcher)
    for state in (ReplicaState.STARTING, ReplicaState.READY):
        metrics.observe([*launcher.replicas(), Replica(ReplicaId("echo-1"), GroupKey("echo"), state)])
    metrics.count_rollout("app", AppStatus(), AppStatus(serving_generation=1))
    metrics.count_adaptation("app")
    metrics.set_rates("app", {"text": (1.0, 2.0)})
    metrics.set_loads("app", [(AutoscaledLoad(name="llm", unit="tokens", load=1.0, capacity=2.0), 1)])

    assert documented_metrics("## Controller") == _metrics_of(metrics.registry)
    await launcher.close()


def test_every_public_name_is_documented() -> None:
    documented = _first_column((REFERENCE / "task-api.md").read_text(), "Name")

    assert documented == set(cornserve.__all__)


@pytest.mark.parametrize("kind", [cornserve.Client, cornserve.AsyncClient])
def test_every_method_of_the_clients_is_documented_with_its_parameters(kind: type) -> None:
    documented = _first_column((REFERENCE / "sdk.md").read_text(), "Method")
    members = {name: member for name, member in vars(kind).items() if not name.startswith("_")}
    methods = {name: member for name, member in members.items() if not isinstance(member, property)}

    assert documented == {f"{name}({_parameters(method)})" for name, method in methods.items()}


def _parameters(method: Any) -> str:
    function = method.__func__ if isinstance(method, classmethod) else method
    _, *parameters = inspect.signature(function).parameters.values()
    return ", ".join("…" if parameter.kind is parameter.VAR_KEYWORD else parameter.name for parameter in parameters)


def test_every_argument_and_error_of_the_clients_is_documented() -> None:
    text = (REFERENCE / "sdk.md").read_text()
    _, *arguments = inspect.signature(cornserve.Client.__init__).parameters
    errors = {name for name, item in vars(client).items() if isinstance(item, type) and issubclass(item, Exception)}

    assert _first_column(text, "Argument") == set(arguments)
    assert _first_column(text, "Error") | {"ClientError"} == errors


def test_every_error_is_documented_with_its_base_class() -> None:
    section = _section("task-api.md", "## Errors")
    documented = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", section, re.MULTILINE))

    assert documented == {
        name: error.__bases__[0].__name__
        for name, error in vars(errors).items()
        if isinstance(error, type) and issubclass(error, BaseException)
    }


@pytest.mark.parametrize(("enum", "heading"), [(pb.Code, "### Codes"), (pb.Phase, "### Observers")])
def test_every_code_and_phase_is_documented(enum: Any, heading: str) -> None:
    section = _section("executor-contract.md", heading)
    names = [name.split("_", 1)[1] for name in enum.keys() if not name.endswith("UNSPECIFIED")]  # noqa: SIM118

    assert [name for name in names if f"`{name}`" not in section] == []


def test_the_modules_in_the_architecture_page_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    places = [ROOT / "cornserve", ROOT, ROOT / "executors/cornserve_executors"]
    named = set(re.findall(r"`([\w/.*-]+(?:\.py|/))`", text))
    missing = {
        name
        for name in named
        if not any(
            next(place.glob(name.rstrip("/")), None) for place in [*places, *(place / "control" for place in places)]
        )
    }

    assert named
    assert missing == set()


def test_the_links_of_the_readme_have_targets() -> None:
    """mkdocs checks the links of the other pages."""
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / "README.md").read_text())
    local = [urldefrag(link) for link in links if "://" not in link]

    for path, fragment in local:
        assert (ROOT / path).exists(), path
        if fragment:
            headings = re.findall(r"^#+ (.+)$", (ROOT / path).read_text(), re.MULTILINE)
            assert fragment in {re.sub(r"[^\w-]", "", heading.lower().replace(" ", "-")) for heading in headings}


def test_pages_name_neither_a_package_registry_nor_a_local_path() -> None:
    registry = r"https?://(?!127\.0\.0\.1)[\w.]*(pypi|pytorch|conda|mirror)"
    for page in pages():
        assert not re.search(rf"{registry}|/(?:home|root|work)/\w", (ROOT / page).read_text()), page


def test_the_page_about_upgrades_lists_all_private_names_of_vllm_and_their_tests() -> None:
    page = (ROOT / "docs/how-to/upgrade-vllm.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    tree = ast.parse((ROOT / "executors/cornserve_executors/vllm/private_api.py").read_text())
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr.startswith("_")}

    listed = {name for first, *_ in rows for name in re.findall(r"`(_\w+)`", first)}
    tests = {name for *_, last in rows for name in re.findall(r"`(.+?)`", last)}

    assert listed == names
    assert {test for test in tests if not (ROOT / test).is_file()} == set()
