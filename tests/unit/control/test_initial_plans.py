"""Apps whose specs have only the inputs of a plan, in a controller with a fake launcher."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cornserve.app.plan import AppPlan
from cornserve.app.planning import PlanningInputs
from cornserve.app.record import AppStatus, FailureReason, Phase
from cornserve.app.settings import (
    AppPolicies,
    AutoscaledExecutor,
    AutoscalingSettings,
    ConfigMapKeyRef,
    ExecutorOverride,
)
from cornserve.app.spec import AppModel, AppSource, AppSpec
from cornserve.app_host.description import AppDescription
from cornserve.control.planning.initial_plans import InitialPlans
from cornserve.control.planning.job import PlanningJob, PlanningResult
from cornserve.control.planning.planner_process import MAX_PLANNERS, PlannerProcessError
from cornserve.control.store.base import APPS, AppRecord, Record
from cornserve.task.errors import DefinitionError
from cornserve.validation_errors import describe_all
from tests.unit.app.plans import cell, plan
from tests.unit.control.running_controller import FakeLauncher, StoreClient, running_controller
from tests.waiting import until

SOURCE = """
from cornserve_echo.stages import caption_app

app = caption_app("caption", encoder=0.1, llm=0.1)
"""


def inputs(**fields: Any) -> PlanningInputs:
    workload = {"images": {"components": ["encoder", "llm"], "share": 1.0}}
    return PlanningInputs.model_validate({"gpus": 3, "workload": workload, "profile": {"version": 1}} | fields)


class OneCellPlanner:
    """A planner that returns plans of one cell with the GPUs of the job, or errors."""

    def __init__(self) -> None:
        self.jobs: list[PlanningJob] = []
        self.refusals: dict[str, str] = {}
        """The errors of apps whose inputs have no profile yet."""
        self.results: list[PlanningResult | Exception] = []
        self.may_finish = asyncio.Event()
        self.may_finish.set()
        self.running = 0

    async def __call__(self, job: PlanningJob) -> PlanningResult:
        if job.inputs.profile is None:
            return PlanningResult(error=self.refusals.get(job.app, ""))
        self.jobs.append(job)
        self.running += 1
        try:
            await self.may_finish.wait()
        finally:
            self.running -= 1
        if self.results:
            result = self.results.pop(0)
            if isinstance(result, Exception):
                raise result
            return result
        gpus = job.inputs.gpus or 1
        return PlanningResult(plan=plan(cell(gpus, {"EL": gpus}, count=1)))


async def test_the_controller_makes_the_plan_and_makes_it_again_for_other_inputs(client: StoreClient) -> None:
    planner, launcher = OneCellPlanner(), FakeLauncher()
    planner.may_finish.clear()
    async with running_controller(client, launcher, planner=planner):
        await client.deploy("caption", AppSpec(source=AppSource(inline=SOURCE), planning=inputs()))
        status = await client.wait_for_status("caption", lambda status: status.message == "a plan is being made")
        assert status.phase is Phase.STARTING
        assert launcher.groups == {}

        planner.may_finish.set()
        route = await client.wait_until_served("caption", 2)
        assert [group.replicas for group in launcher.groups.values()] == [3]
        assert route.spec.planning is None

        stored = (await client.store.get(APPS, "caption")).spec
        assert stored.plan is not None
        assert stored.plan.planned_from == inputs().digest
        await client.redeploy("caption", stored.model_copy(update={"planning": inputs(gpus=4)}))
        await client.wait_until_served("caption", 4)
        await until(lambda: [group.replicas for group in launcher.groups.values()] == [4])

    assert [job.inputs.gpus for job in planner.jobs] == [3, 4]


async def test_the_limits_of_steps_of_a_plan_become_options_of_the_model(client: StoreClient, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')

    async def planner(job: PlanningJob) -> PlanningResult:
        name, option = next((name, each) for name, each in job.graph.options.items() if each.task == "LLMTask")
        steps = [{"steps": [{"option": name, "components": option.components}]}]
        types = {"text": {"components": option.components, "share": 1.0, "paths": steps}}
        one = {"replicas": {name: 1}, "loads": {name: 0.5}, "probabilities": {"text": [1.0]}}
        planned = AppPlan.model_validate(
            {
                "options": {name: {"task": option.task, "settings": option.settings, "gpus": option.gpus}},
                "types": types,
                "default_type": "text",
                "cells": [{"gpus": 1, "count": 1, "rate": 5.0, **one}],
                "planner": "1.0",
            }
        )
        return PlanningResult(plan=planned, step_limits={name: {"max_num_seqs": 8, "max_num_batched_tokens": 512}})

    launcher = FakeLauncher()
    given = [ExecutorOverride(name="llm", options={"max_num_seqs": 4})]
    async with running_controller(client, launcher, planner=planner):
        spec = AppSpec(model=AppModel(id=str(tmp_path)), executors=given, planning=inputs())
        await client.deploy("chat", spec)
        await client.wait_until_served("chat", 2)
        stored = (await client.store.get(APPS, "chat")).spec

    assert stored.plan is not None
    assert not stored.needs_plan
    options = {"max_num_seqs": 4, "max_num_batched_tokens": 512}
    assert [override.options for override in stored.executors] == [options]
    assert [option.settings["options"] for option in stored.plan.options.values()] == [options]


async def test_an_app_that_cannot_be_planned_fails_before_anything_starts(client: StoreClient) -> None:
    planner, launcher = OneCellPlanner(), FakeLauncher()
    planner.results = [PlanningResult(error="infeasible: the budget of 3 GPUs: no cell fits")]
    async with running_controller(client, launcher, planner=planner):
        await client.deploy("caption", AppSpec(source=AppSource(inline=SOURCE), planning=inputs()))
        status = await client.wait_for_status("caption", lambda status: status.phase is Phase.FAILED)
        assert status.reason is FailureReason.PLANNING_FAILED
        assert status.message == "infeasible: the budget of 3 GPUs: no cell fits"

        await client.redeploy("caption", AppSpec(source=AppSource(inline=SOURCE), planning=inputs(gpus=8)))
        await client.wait_until_served("caption", 3)

    assert len(planner.jobs) == 2


async def test_a_plan_of_several_cells_of_an_autoscaled_app_is_refused(client: StoreClient) -> None:
    shared = plan(cell(3, {"EL": 3}, count=1, is_shared=True))
    planner, launcher = OneCellPlanner(), FakeLauncher()
    planner.results = [PlanningResult(plan=shared), PlanningResult(plan=plan(cell(3, {"EL": 3}, count=2)))]
    executors = [AutoscaledExecutor(name="stage", capacity=10, unit="requests")]
    async with running_controller(client, launcher, planner=planner):
        await client.deploy("caption", AppSpec(source=AppSource(inline=SOURCE), planning=inputs()))
        await client.wait_until_served("caption", 2)
        stored = (await client.store.get(APPS, "caption")).spec
        policies = AppPolicies(autoscaling=AutoscalingSettings(executors=executors))
        await client.redeploy("caption", stored.changed(policies=policies, planning=inputs(gpus=6)))
        status = await client.wait_for_status("caption", lambda status: status.phase is Phase.FAILED)

    assert status.reason is FailureReason.PLANNING_FAILED
    assert status.message.startswith("policies.autoscaling: a plan is autoscaled if it runs one cell")
    assert [group.replicas for group in launcher.groups.values()] == [3]


async def test_changed_code_of_a_generation_is_planned_again(client: StoreClient) -> None:
    record: AppRecord = Record(
        "caption", "uid", 1, 1, AppSpec(source=AppSource(inline="a"), planning=inputs()), AppStatus()
    )
    corrected = replace(record, version=2, spec=AppSpec(source=AppSource(inline="b"), planning=inputs()))
    described: list[str | None] = []

    async def describe(name: str, spec: AppSpec) -> AppDescription:
        described.append(spec.inline_source)
        raise DefinitionError("the source is wrong")

    plans = InitialPlans(client.store, describe, OneCellPlanner(), FakeLauncher(), lambda: None, lambda: None)
    # The status of the failed version may be followed by an older record.
    for each, failed in ((record, []), (record, ["caption"]), (record, []), (corrected, [])):
        plans.update({"caption": each}, failed)
        await until(lambda: (state := plans.state("caption")) is not None and state.failure is not None)
    await plans.close()

    assert described == ["a", "b"]


async def test_a_version_that_another_controller_could_not_plan_is_not_planned_again(client: StoreClient) -> None:
    record: AppRecord = Record(
        "caption", "uid", 1, 1, AppSpec(source=AppSource(inline="a"), planning=inputs()), AppStatus()
    )

    async def describe(name: str, spec: AppSpec) -> AppDescription:
        raise AssertionError("the app is loaded")

    plans = InitialPlans(client.store, describe, OneCellPlanner(), FakeLauncher(), lambda: None, lambda: None)
    plans.update({"caption": record}, ["caption"])

    assert plans.state("caption") is None
    await plans.close()


async def test_a_planner_that_fails_is_run_again(client: StoreClient) -> None:
    planner = OneCellPlanner()
    planner.results = [PlannerProcessError("killed")]
    async with running_controller(client, FakeLauncher(), planner=planner):
        await client.deploy("caption", AppSpec(source=AppSource(inline=SOURCE), planning=inputs()))
        await client.wait_until_served("caption", 2)

    assert len(planner.jobs) == 2


async def test_a_failed_attempt_to_plan_is_in_the_status(client: StoreClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cornserve.control.preparation.FIRST_PAUSE", 60.0)
    planner = OneCellPlanner()
    planner.results = [PlannerProcessError("killed")]
    async with running_controller(client, FakeLauncher(), planner=planner):
        await client.deploy("caption", AppSpec(source=AppSource(inline=SOURCE), planning=inputs()))
        status = await client.wait_for_status("caption", lambda status: "killed" in status.message)

    assert status.phase is Phase.STARTING
    assert status.message == "the plan will be made again: killed; the next attempt starts after 60 s"


async def test_a_newer_generation_does_not_wait_for_the_planner_of_an_older_one(client: StoreClient) -> None:
    planner = OneCellPlanner()
    planner.may_finish.clear()
    async with running_controller(client, FakeLauncher(), planner=planner):
        await client.deploy("caption", AppSpec(source=AppSource(inline=SOURCE), planning=inputs()))
        await until(lambda: planner.running == 1)

        await client.redeploy("caption", AppSpec(source=AppSource(inline=SOURCE), planning=inputs(gpus=4)))
        await until(lambda: len(planner.jobs) == 2)
        assert planner.running == 1
        planner.may_finish.set()
        await client.wait_until_served("caption", 3)

    assert [job.inputs.gpus for job in planner.jobs] == [3, 4]


async def test_planners_end_with_their_app_and_with_the_controller(client: StoreClient) -> None:
    planner = OneCellPlanner()
    planner.may_finish.clear()
    async with running_controller(client, FakeLauncher(), planner=planner):
        for name in ("caption", "deleted"):
            await client.deploy(
                name, AppSpec(source=AppSource(inline=SOURCE.replace('caption"', f'{name}"')), planning=inputs())
            )
        await until(lambda: planner.running == 2)
        await client.store.delete(APPS, "deleted")
        await until(lambda: planner.running == 1)
    assert planner.running == 0


async def test_apps_share_a_limit_of_planners(client: StoreClient) -> None:
    planner = OneCellPlanner()
    planner.may_finish.clear()
    async with running_controller(client, FakeLauncher(), planner=planner):
        for name in ("a", "b", "c"):
            await client.deploy(
                name, AppSpec(source=AppSource(inline=SOURCE.replace('caption"', f'{name}"')), planning=inputs())
            )
        await client.wait_for_status("c", lambda status: status.message == "a plan is being made")
        await until(lambda: planner.running == MAX_PLANNERS)
        planner.may_finish.set()
        for name in ("a", "b", "c"):
            await client.wait_until_served(name, 2)

    assert len(planner.jobs) == 3


@pytest.mark.parametrize(
    ("origin", "reason", "message"),
    [
        ({"source": "raise ValueError('no app')"}, FailureReason.IMPORT_FAILED, "no app"),
        (
            {"source_config_map": ConfigMapKeyRef(name="code", key="app.py")},
            FailureReason.SOURCE_NOT_FOUND,
            "create a ConfigMap 'code'",
        ),
    ],
)
async def test_an_app_that_cannot_be_loaded_cannot_be_planned(
    client: StoreClient, origin: dict[str, Any], reason: FailureReason, message: str
) -> None:
    async with running_controller(client, FakeLauncher(), planner=OneCellPlanner()):
        await client.deploy("caption", AppSpec(**origin, planning=inputs()))
        status = await client.wait_for_status("caption", lambda status: status.phase is Phase.FAILED)

    assert status.reason is reason
    assert message in status.message


async def test_a_plan_of_a_type_that_the_app_cannot_serve_is_not_stored(client: StoreClient) -> None:
    planned = plan(cell(3, {"EL": 3}, count=1)).model_dump()
    planned["types"]["images"] |= {
        "components": ["encoder"],
        "paths": [{"steps": [{"option": "EL", "components": ["encoder"]}]}] * 2,
    }
    planner = OneCellPlanner()
    planner.results = [PlanningResult(plan=AppPlan.model_validate(planned))]
    async with running_controller(client, FakeLauncher(), planner=planner):
        await client.deploy("caption", AppSpec(source=AppSource(inline=SOURCE), planning=inputs()))
        status = await client.wait_for_status("caption", lambda status: status.phase is Phase.FAILED)

    assert status.reason is FailureReason.PLANNING_FAILED
    assert "type 'images' needs encoder, but no request of the app does" in status.message
    assert (await client.store.get(APPS, "caption")).generation == 1


async def test_a_plan_that_needs_more_slots_than_exist_is_not_stored(client: StoreClient) -> None:
    async with running_controller(client, FakeLauncher(slots=2), planner=OneCellPlanner()):
        await client.deploy("caption", AppSpec(source=AppSource(inline=SOURCE), planning=inputs()))
        status = await client.wait_for_status("caption", lambda status: status.phase is Phase.FAILED)

    assert status.reason is FailureReason.INSUFFICIENT_CAPACITY
    assert "the plan needs 3 CPU slots (EL 3), but 2 exist" in status.message
    stored = await client.store.get(APPS, "caption")
    assert (stored.generation, stored.spec.plan) == (1, None)


def test_a_plan_of_a_user_is_not_made_again() -> None:
    assert not AppSpec(source=AppSource(inline=""), plan=plan(), planning=inputs()).needs_plan
    assert AppSpec(source=AppSource(inline=""), planning=inputs()).needs_plan
    made = plan(planned_from=inputs().digest)
    assert not AppSpec(source=AppSource(inline=""), plan=made, planning=inputs(profile={"version": 1.0})).needs_plan
    assert AppSpec(source=AppSource(inline=""), plan=made, planning=inputs(gpus=4)).needs_plan


@pytest.mark.parametrize("fields", [{"replicas": 2}, {"executor_replicas": {"llm": 2}}])
def test_inputs_of_a_plan_exclude_replicas(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="has the replicas of the executors"):
        AppSpec(source=AppSource(inline=""), planning=inputs(), **fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rate": 2.0}, "set exactly one of gpus, gpus_of, rate"),
        ({"gpus": None}, "set exactly one of gpus, gpus_of, rate"),
        ({"gpu_counts": {"EL": 2}, "profile": None}, "options are measured on the GPUs of their executors"),
        ({"objective": "gpus"}, "gpus and dollars are costs that a rate minimizes"),
        ({"workload": {"a": {"components": ["llm"], "share": 0.4}}}, "add up to 0.4, not 1"),
        ({"profile": {"note": "x" * 200_000}}, "bytes as JSON: at most 131072 are allowed"),
    ],
)
def test_wrong_inputs_are_refused(fields: dict[str, Any], message: str) -> None:
    fields = inputs().model_dump() | fields
    with pytest.raises(ValidationError, match=message) as refusal:
        AppSpec.model_validate({"source": {"inline": SOURCE}, "planning": fields})
    assert describe_all(refusal.value.errors()).count("planning") == 1
