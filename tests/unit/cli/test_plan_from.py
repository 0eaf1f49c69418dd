"""`cornserve plan from`, which derives the planner's model from an app."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cornserve.app.graph_recording import record_graph
from cornserve.cli.commands import app
from cornserve_echo.stages import caption_app
from cornserve_planner.__main__ import app as planner
from cornserve_planner.model.document import ModelDocument
from tests.unit.http_server import StubServer, json_response

CAPTIONS = """
from cornserve_echo.stages import caption_app

app = caption_app(name="captions", encoder=0.1, llm=0.3)
"""

PROFILE = """
format: cornserve-planner/profile
version: 1
model: captions
options:
  - {option: encoder, gpu: L4, throughput: [{rate: {value: 10, unit: requests/s, tag: measured, source: test}}]}
  - {option: llm, gpu: L4, throughput: [{rate: {value: 3, unit: requests/s, tag: measured, source: test}}]}
  - {option: encoder+llm, gpu: L4, throughput: [{rate: {value: 2, unit: requests/s, tag: measured, source: test}}]}
"""

WORKLOAD = """
format: cornserve-planner/workload
version: 1
types:
  encoder+llm: {components: [encoder, llm], share: 1.0}
"""

OPTIONS = """
format: cornserve-planner/options
version: 1
options:
  encoder: {gpu: L4}
  llm: {gpu: L4}
  encoder+llm: {gpu: L4}
"""


@pytest.fixture
def captions(tmp_path: Path) -> Path:
    return written(tmp_path / "captions.py", CAPTIONS)


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def plan(*arguments: str | Path) -> Result:
    runner = CliRunner(env={"COLUMNS": "200", "CORNSERVE_URL": None, "NO_COLOR": "1"})
    return runner.invoke(app, ["plan", *map(str, arguments)])


def test_the_model_of_a_python_file_is_printed(captions: Path) -> None:
    model = ModelDocument.parse(plan("from", captions).stdout, source="model.yaml")

    assert model.name == "captions"
    assert {name: entry.after for name, entry in model.components.items()} == {"encoder": (), "llm": ("encoder",)}
    assert model.paths == (("encoder+llm",), ("encoder", "llm"), ("encoder", "encoder+llm"))
    executor = model.options["llm"].executor
    assert executor is not None
    assert (executor.task, executor.settings) == ("StageTask", {"seconds": {"llm": 0.3}})
    assert model.modalities is None
    assert {name: set(components) for name, components in model.types.items()} == {
        "llm": {"llm"},
        "encoder+llm": {"encoder", "llm"},
    }


def test_the_model_of_a_known_family_has_all_paths_and_modalities() -> None:
    model = ModelDocument.parse(plan("from", "Qwen/Qwen2.5-VL-3B-Instruct", "--json").stdout, source="model.json")

    encoder = "image_encoder+video_encoder"
    assert model.paths == ((f"{encoder}+llm",), (encoder, "llm"), (encoder, f"{encoder}+llm"))
    assert model.modalities is not None
    assert model.modalities.always == ("llm",)
    assert model.modalities.inputs == {"image": ("image_encoder",), "video": ("video_encoder",)}


def test_the_model_of_a_deployed_app_comes_from_the_gateway(server: StubServer) -> None:
    graph = record_graph(caption_app("captions", encoder=0.1, llm=0.3))
    assert graph is not None
    server.on("GET /admin/v1/apps/captions/graph", json_response(graph.model_dump(mode="json")))

    model = ModelDocument.parse(plan("from", "captions", "--url", server.url).stdout, source="model.yaml")

    assert model.options.keys() == {"encoder", "llm", "encoder+llm"}


def test_gpu_types_and_numbers_of_gpus_are_added_to_options(tmp_path: Path, captions: Path) -> None:
    text = OPTIONS.replace("llm: {gpu: L4}", "llm: {gpu: H100-80GB, tensor_parallel: [1, 2]}", 1)
    options = written(tmp_path / "options.yaml", text)

    model = ModelDocument.parse(plan("from", captions, "--options", options).stdout, source="model.yaml")

    assert (model.options["llm"].gpu, model.options["llm"].tensor_parallel) == ("H100-80GB", (1, 2))
    assert (model.options["encoder"].gpu, model.options["encoder"].gpus) == ("L4", 1)


def test_changes_of_unknown_options_are_refused_by_name(tmp_path: Path, captions: Path) -> None:
    options = written(tmp_path / "options.yaml", OPTIONS.replace("encoder: {", "decoder: {", 1))

    result = plan("from", captions, "--options", options)

    assert result.exit_code == 1
    assert "options.decoder: is not an option of captions: use one of encoder+llm, llm, encoder" in result.stderr


def test_an_app_without_probes_is_refused(tmp_path: Path) -> None:
    source = "from cornserve_echo.stages import *\nfrom cornserve import App\n"
    source += "app = App(name='captions', paths=[Caption(llm=StageTask(seconds={'llm': 1}))])"

    result = plan("from", written(tmp_path / "app.py", source))

    assert result.exit_code == 1
    assert "the executor graph of 'captions' is unknown" in result.stderr
    assert "probes=" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["from", "missing.py"], "cannot read missing.py"),
        (["--gpus", "4"], "MODEL: is missing"),
    ],
)
def test_wrong_uses_are_refused(arguments: list[str], message: str) -> None:
    result = plan(*arguments)

    assert result.exit_code == 1
    assert message in result.stderr


def test_the_planner_alone_reads_no_apps() -> None:
    result = CliRunner().invoke(planner, ["plan", "from", "app.py"])

    assert result.exit_code == 1
    assert "app.py: `python -m cornserve_planner` cannot read apps: use `cornserve`" in result.stderr


def test_each_cell_of_a_saved_plan_has_a_path_for_a_type_that_the_workload_lacks(captions: Path) -> None:
    profile = written(captions.with_name("profile.yaml"), PROFILE)
    options = written(captions.with_name("options.yaml"), OPTIONS)
    workload = written(
        captions.with_name("workload.yaml"),
        WORKLOAD.replace("encoder+llm: {components: [encoder, llm]", "text: {components: [llm]"),
    )
    saved = captions.with_name("plan.json")

    model = written(captions.with_name("model.yaml"), plan("from", captions, "--options", options).stdout)
    result = plan(model, "--profile", profile, "--workload", workload, "--rate", "4", "--save", saved)

    assert result.exit_code == 0
    for cell in json.loads(saved.read_text())["cells"]:
        assert all(cell["probabilities"][name] for name in ("text", "encoder+llm"))


def test_types_of_the_app_whose_components_are_not_measured_are_named(captions: Path) -> None:
    lines = [line for line in PROFILE.splitlines(keepends=True) if "option: encoder," not in line]
    text = "".join(lines).replace("[{rate: {value: 2", "[{mix: [{components: [llm], share: 1}], rate: {value: 2")
    profile = written(captions.with_name("profile.yaml"), text)
    options = written(captions.with_name("options.yaml"), OPTIONS)
    workload = written(
        captions.with_name("workload.yaml"),
        WORKLOAD.replace("encoder+llm: {components: [encoder, llm]", "text: {components: [llm]"),
    )
    model = written(captions.with_name("model.yaml"), plan("from", captions, "--options", options).stdout)
    inputs: list[str | Path] = [model, "--profile", profile, "--workload", workload, "--gpus", "4"]

    result = plan(*inputs)

    assert result.exit_code == 0, result.stderr
    warning = (
        "no path for requests of type encoder+llm: encoder is not measured: `cornserve deploy` refuses this plan "
        "unless the paths of the default type serve them"
    )
    assert f"warning: {warning}" in result.stderr
    assert json.loads(plan(*inputs, "--json").stdout)["warnings"] == [warning]
