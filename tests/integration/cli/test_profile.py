"""`cornserve profile` with stages of set service times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from signal import SIGINT

import httpx2 as httpx
import pytest

from cornserve.client import Client
from cornserve.home import Home
from cornserve.profiler.temporary_apps import PREFIX
from cornserve_planner.profiles.profile import ModelProfile
from tests.integration.cli.cli_instance import SMALL_SLAB, CliInstance
from tests.waiting import until

pytestmark = pytest.mark.slow

ENCODER, LLM = 0.02, 0.04

APP = f"""
from cornserve import App
from cornserve_echo.stages import Caption, CaptionRequest, StageTask

monolith = StageTask(seconds={{"encoder": {ENCODER}, "llm": {LLM}}})
encoder, llm = StageTask(seconds={{"encoder": {ENCODER}}}), StageTask(seconds={{"llm": {LLM}}})
paths = [Caption(llm=monolith), Caption(llm=llm, encoder=encoder)]
app = App("caption", paths, probes=[CaptionRequest(), CaptionRequest(images=1)])
"""

MEASURED = {"unit": "requests/s", "tag": "measured", "source": "set times"}

QUICK = ("--error", "0.1", "--budget", "2m")


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliInstance]:
    instance = CliInstance(Home(tmp_path_factory.mktemp("home")))
    try:
        instance.do("up", "--detach", "--port", "0", "--slots", "small=2", *SMALL_SLAB)
        yield instance
    finally:
        instance.remove()


@pytest.fixture(autouse=True)
async def free_slots(serving: CliInstance) -> None:
    """Waits until the slots are free: executors of another test may still drain."""
    await until(lambda: is_clean(serving))


@pytest.fixture(scope="module")
def caption(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("apps") / "caption.py"
    file.write_text(APP)
    return str(file)


def finished(instance: CliInstance, settings: str) -> dict[str, str]:
    """Returns the contents of the files of results with a measurement that contain the text, by name."""
    files = {file.name: file.read_text() for file in (instance.home.path / "profiles").glob("stage-*.json")}
    return {name: text for name, text in files.items() if settings in text and json.loads(text)["measurements"]}


def saturated(instance: CliInstance) -> set[str]:
    """Returns the names of the files of results with a measurement that ends at the highest rate."""
    return {
        name
        for name, text in finished(instance, "").items()
        if any(measurement["is_saturated"] for measurement in json.loads(text)["measurements"])
    }


def is_clean(instance: CliInstance) -> bool:
    """Returns whether the instance has neither temporary apps nor executors."""
    apps = [app["name"] for app in instance.json("status")["apps"]]
    return not any(name.startswith(PREFIX) for name in apps) and not instance.processes("cornserve_executors.base")


@pytest.mark.timeout(100)
async def test_the_rate_is_that_of_the_service_time(serving: CliInstance, caption: str, tmp_path: Path) -> None:
    """The profiler's unit tests check intervals and mixes, with simulated replicas."""
    file = tmp_path / "profile.json"
    options = ("--error", "0.3", "--budget", "40s", "--option", "encoder")
    found = serving.json("profile", caption, *options, "--output", str(file))

    [measured] = found["options"]["encoder"]["measurements"]
    assert 0.5 / ENCODER < measured["rate"] < 1.05 / ENCODER  # A busy machine serves less.
    assert is_clean(serving)
    profile = ModelProfile.read(file)
    assert (profile.model, {option.gpu for option in profile.options}) == ("caption", {"small"})
    assert serving.json("profile", caption, *options) == found  # The store has it.


@pytest.mark.timeout(100)
async def test_an_option_is_started_once_for_its_mixes_on_all_paths(serving: CliInstance, tmp_path: Path) -> None:
    app = tmp_path / "started.py"
    app.write_text("""
from cornserve_echo.stages import caption_app

app = caption_app("started", encoder=0.021, llm=0.021)
""")
    found = serving.json("profile", str(app), "--error", "0.3", "--budget", "30s", "--option", "encoder+llm")

    results = found["options"]["encoder+llm"]
    assert len(results["startup"]) == 1
    assert len(results["measurements"]) == 3
    pure = [each for each in results["measurements"] if len(each["mix"]) == 1]
    rates = {len(each["mix"][0]["components"]): each["rate"] for each in pure}
    assert rates[1] > rates[2]
    assert is_clean(serving)


@pytest.mark.timeout(200)
async def test_killing_the_profiler_keeps_what_is_finished_and_leaves_no_executor(
    serving: CliInstance, tmp_path: Path
) -> None:
    app = tmp_path / "killed.py"
    app.write_text(APP.replace('"caption"', '"killed"').replace(f"{LLM}", "0.005").replace(f"{ENCODER}", "0.005"))
    rough = ("--error", "0.5", "--budget", "2m")  # A busy machine measures nothing precisely.
    before = saturated(serving)
    with serving.start("profile", str(app), *rough) as running:
        await until(lambda: saturated(serving) > before, seconds=120)
        await until(lambda: bool(serving.processes("cornserve_executors.base")))
        running.kill()
        running.wait()
    await until(lambda: is_clean(serving))
    states = [entry["state"] for entry in serving.json("profile", str(app), *rough, "--dry-run")]
    assert states.count("measured") >= 1
    assert "missing" in states


@pytest.mark.timeout(200)
async def test_a_deployment_measures_what_is_missing_and_continues_after_an_interrupt(
    serving: CliInstance, tmp_path: Path
) -> None:
    app, workload = tmp_path / "measured.py", tmp_path / "workload.json"
    app.write_text("""
from cornserve import App
from cornserve_echo.stages import Caption, CaptionRequest, StageTask

path = Caption(llm=StageTask(seconds={"llm": 0.021432}), encoder=StageTask(seconds={"encoder": 0.021432}))
app = App("measured", [path], probes=[CaptionRequest(images=1)])
""")
    types = {"captions": {"components": ["encoder", "llm"], "share": 1.0}}
    workload.write_text(json.dumps({"format": "cornserve-planner/workload", "version": 1, "types": types}))
    deploy = ("deploy", str(app), "--gpus", "2", "--workload", str(workload))

    with serving.start(*deploy, "--budget", "40s") as running:
        await until(lambda: len(finished(serving, "0.021432")) == 1)
        running.send_signal(SIGINT)
        _, stderr = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "measuring 2 of 2 mixes: about 40 seconds, at most 40 seconds of device time" in stderr
    assert "finished measurements are kept" in stderr
    await until(lambda: is_clean(serving))

    kept = finished(serving, "0.021432")
    profile = tmp_path / "profile.json"
    serving.do("profile", str(app), "--error", "0.05", "--show", "--output", str(profile))
    [given] = ModelProfile.read(profile).options
    [missing] = {"encoder", "llm"} - {given.option}
    deployed = serving.run(*deploy, "--budget", "20s", "--profile", str(profile))
    assert deployed.returncode == 0, deployed.stderr
    assert f"profile.json lacks {missing}, which will be measured" in deployed.stderr
    assert "measuring 1 of 1 mixes" in deployed.stderr
    assert finished(serving, "0.021432").items() >= kept.items()
    spec = serving.json("status", "measured")["spec"]
    assert {option["gpu_type"] for option in spec["plan"]["options"].values()} == {"small"}
    assert {entry["option"] for entry in spec["planning"]["profile"]["options"]} == {"encoder", "llm"}
    refused = serving.run("profile", str(app), "--error", "0.001")
    serving.do("delete", "measured")
    assert "needs 1 CPU slots of the type small, but 2 exist and 0 are free: delete an app" in refused.stderr


SKETCHES = """
from cornserve import App, Task
from cornserve_echo.stages import CaptionRequest, StageRequest, StageResult, StageTask


class Sketch(Task[CaptionRequest, StageResult]):
    llm: StageTask
    draw: StageTask

    def invoke(self, request: CaptionRequest) -> StageResult:
        answer = self.llm.invoke(StageRequest(items={"llm": 1}, text=request.text))
        return self.draw.invoke(StageRequest(items={"draw": 1}, text="drawn")) if "draw" in answer.text else answer


path = Sketch(llm=StageTask(seconds={"llm": 0.01}), draw=StageTask(seconds={"draw": 0.1}))
app = App("sketches", [path], probes=[CaptionRequest()])
"""


async def test_components_that_follow_a_value_are_planned_by_their_frequency(
    serving: CliInstance, tmp_path: Path
) -> None:
    rates = {"llm": 100, "stage": 10}
    profiled = [
        {"option": name, "gpu": "small", "throughput": [{"rate": {"value": rate, **MEASURED}}]}
        for name, rate in rates.items()
    ]
    chat = {"components": ["llm", "stage"], "share": 1.0, "frequency": {"stage": 0.1}}
    profile, workload = tmp_path / "profile.json", tmp_path / "workload.json"
    head = {"format": "cornserve-planner/profile", "version": 1, "model": "sketches"}
    profile.write_text(json.dumps(head | {"options": profiled}))
    workload.write_text(json.dumps({"format": "cornserve-planner/workload", "version": 1, "types": {"chat": chat}}))
    (tmp_path / "sketches.py").write_text(SKETCHES)
    await until(lambda: is_clean(serving))

    deploy = ("deploy", f"{tmp_path}/sketches.py", "--gpus", "2", f"--profile={profile}", f"--workload={workload}")
    deployed = serving.run(*deploy)
    assert "2 GPUs serve 80 requests/s" in deployed.stderr  # 80 % of 1 / 0.01 s, also for 0.1 drawings of 0.1 s.
    with Client(serving.url) as client:
        answers = [client.invoke("sketches", {"text": text})["text"] for text in ("a", "draw", "b", "c")]
    metrics = httpx.get(f"{serving.url}/metrics").text
    serving.do("delete", "sketches")

    assert answers == ["a", "drawn", "b", "c"]
    for option, count in (("llm", 4), ("stage", 1)):
        assert f'_type_invocations_total{{app="sketches",option="{option}",type="chat"}} {count}.0\n' in metrics


def test_what_would_be_measured_is_listed_with_its_time(serving: CliInstance, caption: str) -> None:
    listed = serving.json("profile", caption, "--dry-run", "--budget", "100s", "--option", "llm", "--error", "0.001")
    assert [(entry["option"], entry["mix"], entry["device_seconds_at_most"]) for entry in listed] == [
        ("llm", "llm", 100)
    ]


def test_a_model_is_measured_on_all_paths_of_its_family(serving: CliInstance, tmp_path: Path) -> None:
    model, requests = tmp_path / "vision", tmp_path / "requests.jsonl"
    model.mkdir()
    config = {"model_type": "qwen2_5_vl", "architectures": ["Qwen2_5_VLForConditionalGeneration"]}
    (model / "config.json").write_text(json.dumps(config))
    requests.write_text(json.dumps({"messages": [{"role": "user", "content": "Hello!"}]}) + "\n")

    listed = serving.json("profile", str(model), "--dry-run", "--requests", str(requests), "--option", "llm")

    assert [(entry["option"], entry["mix"]) for entry in listed] == [("llm", "llm")]


def test_wrong_arguments_are_refused_by_name(serving: CliInstance, caption: str, tmp_path: Path) -> None:
    requests = tmp_path / "requests.jsonl"
    requests.write_text(json.dumps({"images": "two"}) + "\n")

    def error(*arguments: str) -> str:
        done = serving.run("profile", caption, "--dry-run", *arguments)
        assert done.returncode != 0
        return done.stderr

    assert "unknown option 'talker' of caption: give one of encoder+llm, " in error("--option", "talker")
    assert "no slots of the type 'h100': give one of small" in error("--device", "h100")
    assert "request 1 is not a request of caption: images: " in error("--requests", str(requests))
    assert "'soon' is not a time: give 90s, 10m or 1h" in error("--budget", "soon")
    least = error("--budget", "1s", "--option", "llm", "--error", "0.001")
    assert "too small: starts take at least 1 s (options: 1), and measurements 2 s (mixes: 1): give" in least
    assert "/missing is not a directory: create it" in error("--output", "/missing/profile.json")
