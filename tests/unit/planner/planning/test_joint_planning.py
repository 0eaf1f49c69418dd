"""`cornserve plan --model-rate`: one plan for several models, whose options with equal executors share replicas."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cornserve.cli.commands import app
from cornserve_planner.model.graph import DeploymentOption
from cornserve_planner.model.problem import PlanningProblem, RequestPath
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.planning.joint_plan import JointPlan, JointRequest, ModelRate, plan_models
from cornserve_planner.planning.model_plan import make_plan
from cornserve_planner.planning.request import PlanRequest
from cornserve_planner.profiles.gpus import GpuCatalog
from tests.unit.planner.brute_force import SECONDS, BruteForce
from tests.unit.planner.examples import seeds

SHARED = {"task": "LLMTask", "settings": {"model_id": "llm"}}
UTILIZATION = 0.8
A100, L4 = "A100-80GB", "L4"
INTERN, OMNI, VISION = "internvl3-38b", "qwen2.5-omni-7b", "qwen2.5-vl-32b"


def write(path: Path, kind: str, **fields: Any) -> Path:
    path.write_text(json.dumps({"format": f"cornserve-planner/{kind}", "version": 1, **fields}))
    return path


def model(
    at: Path,
    name: str,
    seconds: dict[str, float],
    rate: float,
    executor: Any = SHARED,
    gpus: tuple[str, str] = (A100, A100),
) -> ModelRate:
    """Writes a model whose requests take the seconds of E, then of L, or those of EL.

    Args:
        executor: that of L.
        gpus: the GPU types of E and EL, and of L.
    """
    parts = {"E": ["encoder"], "L": ["llm"], "EL": ["encoder", "llm"]}
    options = {
        option: {
            "components": parts[option],
            "gpu": gpus[option == "L"],
            "executor": executor if option == "L" else None,
        }
        for option in seconds
    }
    throughput = {
        option: [{"rate": {"value": 1 / each, "unit": "requests/s", "tag": "measured", "source": "a test"}}]
        for option, each in seconds.items()
    }
    entries = [{"option": o, "gpu": options[o]["gpu"], "throughput": rates} for o, rates in throughput.items()]
    paths = [["E", "L"], *([["EL"]] if "EL" in seconds else [])]
    document = write(
        at / f"{name}.json", "model",
        name=name, components={"encoder": {}, "llm": {"after": ["encoder"]}}, options=options, paths=paths,
    )  # fmt: skip
    profile = write(at / f"{name}-profile.json", "profile", model=name, options=entries)
    types = {"image": {"components": ["encoder", "llm"], "share": 1.0}}
    workload = write(at / f"{name}-workload.json", "workload", types=types)
    return ModelRate(str(document), rate, profile, workload)


def plan(*models: ModelRate) -> JointPlan:
    return plan_models(JointRequest(models))


@pytest.mark.parametrize("seed", seeds(4, 12))
def test_the_joint_plan_costs_as_much_as_the_best_of_all_plans(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    seconds = {name: {option: rng.choice(SECONDS) for option in ("E", "L", "EL")} for name in "ab"}
    rates = {name: rng.choice([0.3, 0.5, 1.0, 1.2]) for name in "ab"}
    gpus = (A100, rng.choice([A100, L4]))
    if gpus[1] == L4:  # EL on an A100 would need a measurement of L there
        seconds = {name: {"E": each["E"], "L": each["L"]} for name, each in seconds.items()}
    found = plan(*(model(tmp_path, name, seconds[name], rates[name], gpus=gpus) for name in "ab"))

    own = [DeploymentOption(f"{name}{option}", (option,), 1, A100) for name in "ab" for option in ("E", "EL")]
    total = sum(rates.values())
    everything = PlanningProblem(
        options=(*own, DeploymentOption("L", ("L",), 1, gpus[1])),
        shares={name: rate / total for name, rate in rates.items()},
        paths=tuple(
            path
            for name, each in seconds.items()
            for path in (
                RequestPath(name, "apart", {f"{name}E": each["E"], "L": each["L"]}),
                *([RequestPath(name, "together", {f"{name}EL": each["EL"]})] if "EL" in each else []),
            )
        ),
        gpus={gpu.name: gpu for gpu in GpuCatalog.shipped().types()},
        max_utilization=dict.fromkeys([*(option.name for option in own), "L"], UTILIZATION),
    )
    all_plans = BruteForce(everything, 12)
    costs = all_plans.dollars_of if gpus[1] == L4 else all_plans.gpus_of
    assert found.plan.value == pytest.approx(costs[all_plans.serving(total)].min())


def test_models_without_common_executors_need_the_sum_of_their_plans() -> None:
    rates = {INTERN: 0.4, VISION: 0.4}
    found = plan_models(JointRequest(tuple(ModelRate(name, rate) for name, rate in rates.items())))
    separate = [make_plan(PlanRequest(name, rate=rate, whole=True)) for name, rate in rates.items()]

    assert found.plan.gpus == sum(sum(result.file.total_gpus.values()) for result in separate)
    assert found.file.rate >= 0.8 * (1 - 1e-5)


def test_equal_executors_share_a_replica(tmp_path: Path) -> None:
    apart = {"E": 0.5, "L": 0.5}
    other = {"task": "LLMTask", "settings": {"model_id": "another"}}
    first = model(tmp_path, "a", apart, 0.6)
    shared = plan(first, model(tmp_path, "b", {"E": 0.5, "L": 1.0}, 0.4))

    assert shared.plan.replicas == {"a: E": 1, "a: L + b: L": 1, "b: E": 1}
    used = shared.explanation.utilization["a: L + b: L"]
    assert used == pytest.approx(0.6 * 0.5 + 0.4 * 1.0), "a request takes the seconds of its own model"
    for executor, gpus in ((other, (A100, A100)), (None, (A100, A100)), (SHARED, (A100, L4))):
        separate = plan(first, model(tmp_path, "b", apart, 0.4, executor, gpus))
        assert separate.plan.replicas == {"a: E": 1, "a: L": 1, "b: E": 1, "b: L": 1}


def test_the_saved_plan_names_the_model_of_each_type_and_is_checked(tmp_path: Path) -> None:
    found = plan(*(model(tmp_path, name, {"E": 0.5, "L": 0.5}, rate) for name, rate in (("a", 0.6), ("b", 0.2))))
    saved = tmp_path / "plan.json"
    found.file.write(saved)
    file = PlanFile.read(saved)

    assert file.problem == found.problem
    assert {name: kind.model for name, kind in file.types.items()} == {"a: image": "a", "b: image": "b"}
    assert [kind.share for kind in file.types.values()] == pytest.approx([0.75, 0.25])
    assert file.options["a: L + b: L"].components == ("a: llm", "b: llm")
    types = {"b: image": {"components": ["b: encoder", "b: llm"], "share": 1.0}}
    checked = run(
        "check", str(saved), "--workload", str(write(tmp_path / "new.json", "workload", types=types)), "--json"
    )
    assert json.loads(checked.stdout)["rate"] == pytest.approx(UTILIZATION / 0.5)
    requests = tmp_path / "new.jsonl"
    requests.write_text("{}\n")
    refused = run("check", str(saved), "--workload", str(requests))
    assert refused.exit_code == 1
    assert "which do not name their model, but the plan serves a, b: give the shares" in refused.stderr


@pytest.mark.slow
def test_the_command_prints_and_saves_the_plan(tmp_path: Path) -> None:
    arguments = ["--model-rate", f"{INTERN}=0.4", "--model-rate", f"{VISION}=0.4"]
    saved = tmp_path / "plan.json"
    text = run(*arguments, "--save", str(saved))
    printed = json.loads(run(*arguments, "--json").stdout)

    assert f"{sum(printed['gpus'].values())} GPUs serve" in text.stdout
    assert "(target: 0.8): one plan" in text.stdout
    assert f"{INTERN}: encoder → {INTERN}: llm" in text.stdout
    assert PlanFile.read(saved).models.keys() == printed["models"].keys() == {INTERN, VISION}
    assert printed["confidence"]["rate"]["low"] <= printed["rate"] <= printed["confidence"]["rate"]["high"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model-rate", OMNI], "--model-rate must be MODEL=RATE or MODEL,PROFILE,WORKLOAD=RATE"),
        (["--model-rate", "=1"], "--model-rate: must be MODEL=RATE"),
        (["--model-rate", "a.yaml,b.yaml=1"], "must be MODEL=RATE or MODEL,PROFILE,WORKLOAD=RATE, not a.yaml,b.yaml=1"),
        (["--model-rate", f"{OMNI}=0"], f"--model-rate {OMNI}: must be a finite number greater than 0"),
        (["--model-rate", f"{OMNI}=nan"], "must be a finite number greater than 0"),
        (["--model-rate", f"{OMNI}=1", "--model-rate", f"{OMNI}=2"], f"{OMNI!r} is given twice"),
        (["--model-rate", "qwen=1"], "unknown model 'qwen'"),
        (["--model-rate", f"{OMNI}=1", "--rate", "2"], "--rate: has no effect with --model-rate"),
        (["--model-rate", f"{OMNI}=1", "--profile", "p.yaml"], "--profile: has no effect with --model-rate"),
        (["--model-rate", f"{OMNI}=1", VISION], "MODEL: has no effect with --model-rate"),
        (["--model-rate", f"{OMNI}=1", "--gpus-of", "H100=1"], "no option runs on 'H100': use one of A100-80GB"),
        (["--model-rate", f"{OMNI}=9", "--gpus-of", "A100-80GB=1"], "infeasible"),
        (
            ["--model-rate", "llava-1.5-7b=1", "--model-rate", f"{OMNI}=1", "--objective", "gpus"],
            "GPUs of different types cannot be added",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line(arguments: list[str], message: str) -> None:
    result = run(*arguments)

    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_models_without_shipped_files_need_their_own(tmp_path: Path) -> None:
    document = model(tmp_path, "mine", {"E": 0.5, "L": 0.5}, 1.0).model
    assert (
        "mine.json has no shipped profile: write MODEL,PROFILE,WORKLOAD=RATE"
        in run("--model-rate", f"{document}=1").stderr
    )


def test_long_names_are_refused(tmp_path: Path) -> None:
    name = "m" * 99
    result = run(*parameter(model(tmp_path, name, {"E": 0.5, "L": 0.5}, 1.0)))
    assert "is longer than 100 characters: shorten the names in the model files" in result.stderr


def parameter(given: ModelRate) -> list[str]:
    return ["--model-rate", f"{given.model},{given.profile},{given.workload}={given.rate}"]


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, ["plan", *arguments])
