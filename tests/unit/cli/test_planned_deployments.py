"""`cornserve deploy --gpus` and `--rate` make a plan, and refuse options that contradict each other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cornserve.app.spec import AppSpec
from cornserve.cli.commands import app
from cornserve.client.plan_reader import read_plan
from cornserve.home import HOME_VARIABLE, Home
from cornserve.instance import Instance
from cornserve.profiler.device import Device
from cornserve_echo.stages import StageTask
from cornserve_planner.goodput import replay
from tests.unit.http_server import StubServer, json_response, serving

FILES = ["--workload", "workload.yaml", "--profile", "profile.yaml"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gpus", "4"], "--workload: is missing: give the file that lists requests or their types"),
        (["--budget", "5m"], "--budget: needs --gpus, --gpus-of or --rate, for which a plan is made"),
        (FILES, "--workload, --profile: needs --gpus, --gpus-of or --rate, for which a plan is made"),
        (
            ["--gpus", "4", "--objective", "gpus", *FILES],
            "--objective: gpus and dollars are costs that a rate minimizes: ",
        ),
        (["--gpus", "4", "--gpus-of", "L4=2", *FILES], "give one of --gpus, --gpus-of and --rate"),
        (["--gpus-of", "L4=2", "--rate", "4", *FILES], "give one of --gpus, --gpus-of and --rate"),
        (["--options", "gpus.yaml"], "--options: needs --gpus, --gpus-of or --rate, for which a plan is made"),
        (
            ["--utilization", "0.7", "--survive", "--percentile", "99"],
            "--utilization, --percentile, --survive: needs --gpus, --gpus-of or --rate, for which a plan is made",
        ),
        (["--gpus", "4", "--plan", "plan.json", *FILES], "--plan: is a plan already: remove --gpus, --gpus-of, --rate"),
    ],
)
def test_contradicting_options_are_refused(options: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["deploy", "app.py", *options])

    assert result.exit_code == 1
    assert message in " ".join(result.stderr.split())


SOURCE = """
from cornserve_echo.stages import caption_app

app = caption_app("caption", encoder=0.1, llm=0.05)
"""

MEASURED_WITH = {"versions": {"cornserve": "1"}, "hardware": "cpu", "driver": "6", "date": "2026-11-23"}

RATES = {"encoder": 10, "llm": 20, "encoder+llm": 2}

WORKLOAD = {
    "format": "cornserve-planner/workload",
    "version": 1,
    "types": {
        "text": {"components": ["llm"], "share": 0.9},
        "images": {"components": ["encoder", "llm"], "share": 0.1, "sizes": {"images": 1}},
    },
}


def profile(gpu: str = "cpu") -> dict[str, Any]:
    rates = {
        name: {"value": rate, "unit": "requests/s", "tag": "measured", "source": "a"} for name, rate in RATES.items()
    }
    latency = {"batch": [1], "seconds": [0.1], "tag": "measured", "source": "a"}
    options = [
        {"option": name, "gpu": gpu, "throughput": [{"rate": rate}], "measured_with": MEASURED_WITH}
        for name, rate in rates.items()
    ]
    unused = {**options[0], "gpus": 4}
    options[0] = {**options[0], "latency": [latency]}
    return {"format": "cornserve-planner/profile", "version": 1, "model": "caption", "options": [*options, unused]}


def test_a_deployment_stores_the_inputs_of_its_plan(tmp_path: Path) -> None:
    files = {"caption.py": SOURCE, "workload.json": json.dumps(WORKLOAD), "profile.json": json.dumps(profile())}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    options = ["--gpus", "4", *(f"--{name}={tmp_path}/{name}.json" for name in ("workload", "profile"))]

    with serving() as server:
        server.on("PUT /admin/v1/apps/caption", json_response({"error": {"message": "stored"}}, 400))
        CliRunner().invoke(app, ["deploy", str(tmp_path / "caption.py"), *options, "--url", server.url])
        [(_, document)] = [request for request in server.requests if request[0].startswith("PUT")]

    spec = AppSpec.model_validate(document)
    assert spec.plan is not None
    assert spec.planning is not None
    assert spec.plan.counts == {4: 1}
    assert (spec.planning.gpus, spec.planning.rate) == (4, None)
    assert {name: kind.share for name, kind in spec.planning.workload.items()} == {"text": 0.9, "images": 0.1}
    assert spec.planning.workload["images"].sizes == {"images": 1}
    assert spec.planning.profile is not None
    entries = spec.planning.profile["options"]
    assert isinstance(entries, list)
    assert len(entries) == len(RATES)
    for entry in entries:
        assert isinstance(entry, dict)
        assert entry["measured_with"] == MEASURED_WITH
        assert ("latency" in entry) == (entry["option"] == "encoder")
    assert spec.code == spec.model_copy(update={"planning": None}).code


@pytest.mark.parametrize("options", [["--gpus", "1000"], ["--rate", "1000"]])
def test_a_plan_for_more_slots_than_the_instance_has_is_not_stored(
    cli: CliRunner, instance: StubServer, tmp_path: Path, options: list[str]
) -> None:
    result = deploy(cli, tmp_path, *options, workload=WORKLOAD, profile=profile_with_latency())

    assert result.exit_code == 1
    assert "CPU slots, but the instance has 16: plan for at most 16 CPU slots with --gpus" in result.stderr
    assert not [request for request in instance.requests if request[0].startswith("PUT")]


def changed_options(**changes: dict[str, Any]) -> dict[str, Any]:
    return {"format": "cornserve-planner/options", "version": 1, "options": {"llm": {"gpu": "L4"}} | changes}


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubServer]:
    """The gateway of an instance with 16 slots, in the default home."""
    with serving() as server:
        home = Home(tmp_path / "home")
        home.path.mkdir()
        Instance.of_current_process(server.url, slots=["small=16"]).write(home)
        monkeypatch.setenv(HOME_VARIABLE, str(home.path))
        yield server


def deploy(cli: CliRunner, directory: Path, *options: str, source: str = SOURCE, **files: dict[str, Any]) -> Result:
    """Deploys an app to the instance with the options, among them some with files."""
    (directory / "caption.py").write_text(source)
    for name, document in files.items():
        (directory / f"{name}.json").write_text(json.dumps(document))
    given = [f"--{name}={directory}/{name}.json" for name in files]
    return cli.invoke(app, ["deploy", str(directory / "caption.py"), *options, *given])


def requests_of(*components: str, **fields: Any) -> dict[str, Any]:
    return WORKLOAD | {"types": {"only": {"components": components, "share": 1.0, **fields}}}


@pytest.mark.parametrize(
    ("options", "workload", "message"),
    [
        ("--gpus=4", requests_of("encoder"), "types.only: needs encoder, but no request of caption does: its types"),
        ("--gpus=4", requests_of("talker"), "types.only: needs talker, but no request of caption does"),
        (
            "--gpus=4",
            requests_of("llm", frequency={"llm": 0.5}),
            "types.only.frequency: every request of the type runs llm: remove it, or list the other requests",
        ),
        ("--gpus=1", WORKLOAD, "a plan needs at least 2 GPUs: one replica each of encoder+llm (2 GPUs)"),
        ("--rate=inf", WORKLOAD, "--rate: must be a finite number greater than 0, not inf"),
    ],
)
def test_a_plan_that_no_profile_makes_possible_is_refused_before_a_measurement(
    options: str, workload: dict[str, Any], message: str, cli: CliRunner, instance: StubServer, tmp_path: Path
) -> None:
    source = SOURCE.replace("llm=0.05", "llm=0.05, gpus=2")
    refused = deploy(cli, tmp_path, options, source=source, workload=workload)

    assert refused.exit_code == 1
    assert message in " ".join(refused.stderr.split())
    assert not instance.requests


def test_a_plan_is_made_for_an_objective_and_for_types_of_gpus(
    cli: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    entries = [entry for gpu in ("L4", "A100-80GB") for entry in profile(gpu)["options"]]
    files: dict[str, dict[str, Any]] = {"workload": WORKLOAD, "profile": profile() | {"options": entries}}
    types = dict.fromkeys(RATES, "L4")
    files["options"] = changed_options(**{name: {"gpu": gpu} for name, gpu in types.items()})
    with serving() as server:
        server.on("PUT /admin/v1/apps/caption", json_response({"error": {"message": "stored"}}, 400))
        deploy(cli, tmp_path, "--rate=5", "--objective=dollars", "--url", server.url, source=SOURCE, **files)
        [(_, document)] = [request for request in server.requests if request[0].startswith("PUT")]

    spec = AppSpec.model_validate(document)
    assert spec.plan is not None
    assert spec.planning is not None
    assert spec.plan.rate >= 5
    assert {option.gpu_type for option in spec.plan.options.values()} == {"L4"}
    assert (spec.planning.rate, spec.planning.objective) == (5, "dollars")
    assert (spec.planning.gpu_types, spec.planning.gpu_counts) == (types, {})
    assert len(document["planning"]["profile"]["options"]) == len(RATES)


def test_a_plan_is_made_for_numbers_of_gpus_by_type(
    cli: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    entries = [entry for gpu in ("L4", "A100-80GB") for entry in profile(gpu)["options"]]
    files: dict[str, dict[str, Any]] = {
        "workload": WORKLOAD,
        "profile": profile() | {"options": entries},
        "options": changed_options(**{name: {"gpu": "L4"} for name in RATES}),
    }
    with serving() as server:
        server.on("PUT /admin/v1/apps/caption", json_response({"error": {"message": "stored"}}, 400))
        deploy(cli, tmp_path, "--gpus-of=L4=3", "--url", server.url, source=SOURCE, **files)
        [(_, document)] = [request for request in server.requests if request[0].startswith("PUT")]

    spec = AppSpec.model_validate(document)
    assert spec.plan is not None
    assert spec.planning is not None
    assert spec.plan.gpus_of == {"L4": 3}
    assert (spec.planning.gpus, spec.planning.gpus_of) == (None, {"L4": 3})


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("L4=two", "--gpus-of must be TYPE=N, a type and a whole number, not 'L4=two'"),
        ("H200=2", "--gpus-of: no option of caption runs on 'H200': its options do not name GPU types"),
    ],
)
def test_numbers_of_gpus_by_type_that_no_plan_has_are_refused(
    setting: str, message: str, cli: CliRunner, instance: StubServer, tmp_path: Path
) -> None:
    refused = deploy(cli, tmp_path, f"--gpus-of={setting}", workload=WORKLOAD, profile=current_profile())

    assert refused.exit_code == 1
    assert message in " ".join(refused.stderr.split())
    assert not instance.requests


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (changed_options(talker={"gpu": "L4"}), "options.talker: is not an option of caption: use one of encoder+llm"),
        (changed_options(llm={"gpu": "L5"}), "options.llm.gpu: unknown GPU type 'L5': use one of "),
        (changed_options(llm={"gpus": 2}), "options.llm.gpus: the executor of the app has 1 GPU: remove the field"),
        (changed_options(llm={"tensor_parallel": [1, 2]}), "options.llm.tensor_parallel: the executor of the app has"),
        (changed_options(encoder={"gpu": "H200"}), "--options: names the GPU types H200, L4, but one type is measured"),
        (changed_options(), "the instance has no slots of the type 'L4': give one of small"),
    ],
)
def test_options_that_cannot_be_planned_are_refused_before_a_measurement(
    options: dict[str, Any], message: str, cli: CliRunner, instance: StubServer, tmp_path: Path
) -> None:
    refused = deploy(cli, tmp_path, "--gpus=2", workload=WORKLOAD, options=options)

    assert refused.exit_code == 1
    assert message in " ".join(refused.stderr.split())
    assert not instance.requests


def current_profile(gpu: str = "small", **conditions: Any) -> dict[str, Any]:
    """Returns a profile under the current conditions of the instance, but for those given."""
    device = Device.find(Home.default(), "small")
    current = device.conditions(StageTask(seconds={"llm": 1.0}).spec).model_dump(exclude={"device"})
    measured_with = current | {"date": "today"} | conditions
    options = profile()["options"]
    return profile() | {"options": [entry | {"gpu": gpu, "measured_with": measured_with} for entry in options]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpu": "h100"}, "encoder was measured on h100: the instance has no slots of the type 'h100': give one of"),
        ({"versions": {"cornserve": "0"}}, "encoder was measured under other conditions: cornserve was 0, is "),
        ({"model": "3f2a"}, "model was 3f2a, is unset: measure it again with `cornserve profile`, or leave out --pr"),
    ],
)
def test_a_profile_of_another_device_model_or_version_is_refused(
    changes: dict[str, Any], message: str, cli: CliRunner, instance: StubServer, tmp_path: Path
) -> None:
    refused = deploy(cli, tmp_path, "--gpus=2", workload=WORKLOAD, profile=current_profile(**changes))

    assert refused.exit_code == 1
    assert message in " ".join(refused.stderr.split())
    assert not instance.requests


def profile_of(*options: str, **fields: Any) -> dict[str, Any]:
    known = current_profile()
    return known | {"options": [entry for entry in known["options"] if entry["option"] in options], **fields}


SKETCHES = """
from cornserve import App, Task
from cornserve_echo.stages import CaptionRequest, StageRequest, StageResult, StageTask


class Sketch(Task[CaptionRequest, StageResult]):
    llm: StageTask
    draw: StageTask

    def invoke(self, request: CaptionRequest) -> StageResult:
        answer = self.llm.invoke(StageRequest(items={"llm": 1}, text=request.text))
        return self.draw.invoke(StageRequest(items={"draw": 1})) if answer.text else answer


path = Sketch(llm=StageTask(seconds={"llm": 0.01}), draw=StageTask(seconds={"draw": 0.1}))
app = App("caption", [path], probes=[CaptionRequest()])
"""


LACKS_LLM = ("encoder", "encoder+llm")
CAPTIONS, DRAWINGS = (SOURCE, WORKLOAD), (SKETCHES, requests_of("llm", "stage"))


@pytest.mark.parametrize(
    ("app", "options", "fields", "message"),
    [
        (CAPTIONS, LACKS_LLM, {}, "profile.json lacks llm, which will be measured error: the budget of 1 s of device"),
        (CAPTIONS, LACKS_LLM, {}, "starts take at least 1 s (options: 1), and measurements 2 s (mixes: 1): give"),
        (CAPTIONS, LACKS_LLM, {"model": "other"}, "the profile is for 'other', but the model is 'caption'"),
        (DRAWINGS, ("llm",), {}, "stage: runs only after a value has arrived, and cannot be measured alone: give a"),
    ],
)
def test_only_the_options_that_a_profile_lacks_are_measured(
    app: tuple[str, dict[str, Any]],
    options: tuple[str, ...],
    fields: dict[str, Any],
    message: str,
    cli: CliRunner,
    instance: StubServer,
    tmp_path: Path,
) -> None:
    (source, workload), profile = app, profile_of(*options, **fields)
    refused = deploy(cli, tmp_path, "--gpus=2", "--budget=1s", source=source, workload=workload, profile=profile)

    assert refused.exit_code == 1
    assert message in " ".join(refused.stderr.split())
    assert not instance.requests


def test_a_plan_runs_on_the_slots_of_its_profile(cli: CliRunner, instance: StubServer, tmp_path: Path) -> None:
    instance.on("PUT /admin/v1/apps/caption", json_response({"error": {"message": "stored"}}, 400))
    deploy(cli, tmp_path, "--gpus=2", workload=WORKLOAD, profile=current_profile())
    [(_, document)] = instance.requests

    assert {option["gpu_type"] for option in document["plan"]["options"].values()} == {"small"}


def test_each_cell_has_a_path_for_a_type_that_the_workload_lacks(
    cli: CliRunner, instance: StubServer, tmp_path: Path
) -> None:
    instance.on("PUT /admin/v1/apps/caption", json_response({"error": {"message": "stored"}}, 400))
    profile = current_profile()
    deploy(cli, tmp_path, "--rate=30", workload=requests_of("llm"), profile=profile)
    [(_, document)] = instance.requests

    spec = AppSpec.model_validate(document)
    assert spec.plan is not None
    assert spec.planning is not None
    assert spec.plan.types.keys() == spec.planning.workload.keys() == {"only", "encoder+llm"}
    assert 0 < spec.planning.workload["encoder+llm"].share < 1e-5
    assert all(cell.probabilities.keys() == {"only", "encoder+llm"} for cell in spec.plan.cells)


def test_components_that_follow_a_value_do_not_make_another_type(
    cli: CliRunner, instance: StubServer, tmp_path: Path
) -> None:
    instance.on("PUT /admin/v1/apps/caption", json_response({"error": {"message": "stored"}}, 400))
    known = profile_of("llm", "encoder")
    known["options"] = [entry | {"option": entry["option"].replace("encoder", "stage")} for entry in known["options"]]
    workload = requests_of("llm", "stage", frequency={"stage": 0.5})
    deploy(cli, tmp_path, "--gpus=2", source=SKETCHES, workload=workload, profile=known)
    [(_, document)] = instance.requests

    assert document["plan"]["types"].keys() == {"only"}


def profile_with_latency() -> dict[str, Any]:
    known = current_profile()
    for entry in known["options"]:
        curve = {"batch": [1], "seconds": [1 / RATES[entry["option"]]], "tag": "measured", "source": "a"}
        entry["latency"] = [curve]
    return known


@pytest.fixture
def few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans for latency targets simulate few requests."""
    monkeypatch.setattr(replay, "MOST_REQUESTS", 1000)


@pytest.mark.usefixtures("few_requests")
@pytest.mark.parametrize(
    ("options", "planning", "targets"),
    [
        ((), {}, None),
        (("--e2e=1",), {}, {"end_to_end_seconds": 1}),
        (("--ttft=1", "--percentile=99"), {"percentile": 99}, {"ttft_seconds": 1}),
        (("--utilization=0.4",), {"utilization": 0.4}, None),
        (("--survive",), {"survive": True}, None),
    ],
)
def test_a_deployment_plans_for_the_same_targets_as_the_planner(
    options: tuple[str, ...],
    planning: dict[str, float],
    targets: dict[str, float] | None,
    cli: CliRunner,
    instance: StubServer,
    tmp_path: Path,
) -> None:
    instance.on("PUT /admin/v1/apps/caption", json_response({"error": {"message": "stored"}}, 400))
    deploy(cli, tmp_path, "--gpus=6", *options, workload=WORKLOAD, profile=profile_with_latency())
    [(_, document)] = instance.requests
    spec, saved = AppSpec.model_validate(document), tmp_path / "plan.json"

    model = tmp_path / "model.yaml"
    model.write_text(cli.invoke(app, ["plan", "from", f"{tmp_path}/caption.py"]).stdout)
    files = [f"--{name}={tmp_path}/{name}.json" for name in ("workload", "profile")]
    cli.invoke(app, ["plan", str(model), "--gpus=6", *files, *options, f"--save={saved}"])

    assert spec.plan is not None
    assert spec.planning is not None
    assert spec.plan.cells == read_plan(saved).plan.cells
    found = spec.planning.model_dump(include={"utilization", "percentile", "survive"})
    assert found == {"utilization": 0.8, "percentile": 95, "survive": False} | planning
    assert document.get("policies", {}).get("targets") == targets


@pytest.mark.usefixtures("few_requests")
def test_targets_limit_the_rate_of_a_deployed_plan(cli: CliRunner, instance: StubServer, tmp_path: Path) -> None:
    rates = []
    for options in [(), ("--e2e=0.2",), ("--utilization=0.4",), ("--survive",)]:
        instance.on("PUT /admin/v1/apps/caption", json_response({"error": {"message": "stored"}}, 400))
        deploy(cli, tmp_path, "--gpus=6", *options, workload=WORKLOAD, profile=profile_with_latency())
        spec = AppSpec.model_validate(instance.requests[-1][1])
        assert spec.plan is not None
        rates.append(spec.plan.rate)

    assert max(rates[1:]) < 0.95 * rates[0]


@pytest.mark.parametrize(
    ("option", "with_profile", "message"),
    [
        ("--e2e=0.01", True, "infeasible: the latency targets: no candidate meets them"),
        ("--tbt=0.05", True, "no option has a step model or a latency between tokens in the profile: measure it"),
        ("--tbt=0.05", False, "--tbt: the time between two tokens is not measured: give a profile with a latency that"),
        ("--utilization=1.5", False, "--utilization: must be greater than 0 and at most 1, not 1.5"),
        ("--percentile=100", False, "--percentile: must be between 0 and 100, not 100"),
    ],
)
def test_targets_that_no_plan_meets_are_refused_before_a_measurement(
    option: str, with_profile: bool, message: str, cli: CliRunner, instance: StubServer, tmp_path: Path
) -> None:
    files = {"profile": profile_with_latency()} if with_profile else {}
    refused = deploy(cli, tmp_path, "--gpus=6", option, source=SOURCE, workload=WORKLOAD, **files)

    assert refused.exit_code == 1
    assert message in " ".join(refused.stderr.split())
    assert not instance.requests
