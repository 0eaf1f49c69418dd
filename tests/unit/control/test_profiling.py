"""Apps whose inputs of a plan have no profile, in a controller with a fake launcher and made measurements."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from cornserve.app.planning import AppProfile
from cornserve.app.record import AppStatus, FailureReason, Phase, PlanningStep
from cornserve.app.settings import AppPolicies
from cornserve.app.spec import AppModel, AppSource, AppSpec, Restart
from cornserve.control.profiling.job import (
    TEMPORARY_PREFIX,
    ProfilerProcessError,
    ProfilingJob,
    ProfilingMessage,
    run_name,
)
from cornserve.control.profiling.runs import WAITING, WAITING_FOR_PREVIOUS
from cornserve.control.store.base import APPS, StoreError
from tests.loop_clock import LoopClock
from tests.unit.control.running_controller import FakeLauncher, StoreClient, running_controller
from tests.unit.control.test_initial_plans import SOURCE, OneCellPlanner, inputs
from tests.waiting import until

PROFILE: dict[str, Any] = {"version": 1, "rate": 2.5}


class FakeProfiler:
    """Processes that report progress, wait, and return a profile, an error of the app or an error of the process."""

    def __init__(self, *results: ProfilingMessage | Exception) -> None:
        self.results = list(results)
        self.jobs: list[ProfilingJob] = []
        self.running: list[str] = []
        self.may_finish = asyncio.Event()
        self.may_finish.set()
        self.may_end = asyncio.Event()
        """Set when processes may end after they are stopped."""
        self.may_end.set()

    def stay_running(self) -> None:
        """Ends the running process. The next ones do not end."""
        self.may_finish.set()
        self.may_finish = asyncio.Event()

    async def __call__(self, job: ProfilingJob) -> AsyncGenerator[ProfilingMessage, None]:
        self.jobs.append(job)
        self.running.append(job.app)
        try:
            yield ProfilingMessage(progress="llm with llm: 4 requests/s")
            await self.may_finish.wait()
            result = self.results.pop(0) if self.results else ProfilingMessage(profile=PROFILE)
            if isinstance(result, Exception):
                raise result
            yield result
        finally:
            await self.may_end.wait()
            self.running.remove(job.app)


@pytest.fixture(autouse=True)
def fast_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cornserve.control.profiling.runs.REMOVE_SECONDS", 0.02)


def spec(source: str = SOURCE, **fields: Any) -> AppSpec:
    return AppSpec(source=AppSource(inline=source), planning=inputs(**{"profile": None} | fields))


async def progress(client: StoreClient, app: str, text: str) -> AppStatus:
    return await client.wait_for_status(app, lambda status: status.message == f"profiling: {text}")


async def test_a_missing_profile_is_measured_before_the_plan_is_made(client: StoreClient) -> None:
    planner, launcher = OneCellPlanner(), FakeLauncher()
    profiler = FakeProfiler(ProfilingMessage(profile=PROFILE, gpu_type="small"))
    profiler.may_finish.clear()
    async with running_controller(client, launcher, planner=planner, profiler=profiler):
        await client.deploy("caption", spec(profiling_seconds=30))
        status = await progress(client, "caption", "llm with llm: 4 requests/s")
        assert (status.phase, status.step) == (Phase.STARTING, PlanningStep.PROFILING)
        assert (launcher.groups, planner.jobs) == ({}, [])

        profiler.may_finish.set()
        route = await client.wait_until_served("caption", 3)  # The controller has stored a profile and a plan.
        assert (route.spec.planning, route.spec.measured) == (None, None)
        stored = (await client.store.get(APPS, "caption")).spec
        assert stored.planning == inputs(profile=None, profiling_seconds=30)
        assert stored.measured == AppProfile(profile=PROFILE, gpu_type="small", measured_from=stored.profile_digest)
        assert stored.plan is not None
        assert {option.gpu_type for option in stored.plan.options.values()} == {"small"}

        await client.redeploy("caption", stored.model_copy(update={"planning": inputs(profile=None, gpus=4)}))
        await client.wait_until_served("caption", 5)
        planning = inputs(profile=None, gpus=4, workload={"text": {"components": ["llm"], "share": 1.0}})
        await client.redeploy("caption", stored.model_copy(update={"planning": planning}))
        await client.wait_until_served("caption", 8)

    assert [job.inputs.profile for job in planner.jobs] == [PROFILE] * 3
    assert [(job.seconds, list(job.workload)) for job in profiler.jobs] == [(30, ["images"]), (600, ["text"])]
    assert profiler.jobs[0].spec == AppSpec(source=AppSource(inline=SOURCE))


@pytest.mark.parametrize("changed", [spec(gpus=2), spec().changed(restart=Restart(id="again"))])
async def test_an_app_that_cannot_be_measured_fails_until_it_changes(client: StoreClient, changed: AppSpec) -> None:
    profiler = FakeProfiler(ProfilingMessage(error="llm cannot be measured: no slots"))
    async with running_controller(client, FakeLauncher(), planner=OneCellPlanner(), profiler=profiler):
        await client.deploy("caption", spec())
        status = await client.wait_for_status("caption", lambda status: status.phase is Phase.FAILED)
        assert status.reason is FailureReason.PROFILING_FAILED
        assert status.message == "llm cannot be measured: no slots"
        await client.redeploy("caption", changed)
        await client.wait_until_served("caption", 4)

    assert len(profiler.jobs) == 2


async def test_interrupted_measurements_are_tried_again_until_they_succeed(
    client: StoreClient, clock: LoopClock
) -> None:
    interruptions = [ProfilerProcessError("killed"), StoreError("no disk"), RuntimeError("unknown")]
    profiler = FakeProfiler(*interruptions * 2)
    async with running_controller(client, FakeLauncher(), planner=OneCellPlanner(), profiler=profiler):
        await client.deploy("caption", spec())
        await clock.advance_during(client.wait_until_served("caption", 3), step=0.1)

    assert len(profiler.jobs) == 7


async def test_an_option_that_never_ends_its_start_is_not_tried_again_until_the_app_changes(
    client: StoreClient, clock: LoopClock
) -> None:
    slow, other = (
        ProfilingMessage(interruption=f"{name}: does not serve: give more device time", slow_start=name)
        for name in ("llm", "encoder")
    )
    profiler = FakeProfiler(slow, other, slow, ProfilerProcessError("killed"), other, slow)
    async with running_controller(client, FakeLauncher(), planner=OneCellPlanner(), profiler=profiler):
        await client.deploy("caption", spec())
        failed = client.wait_for_status("caption", lambda status: status.phase is Phase.FAILED)
        status = await clock.advance_during(failed, step=0.1)
        assert status.reason is FailureReason.PROFILING_FAILED
        assert status.message == "llm: does not serve: give more device time; it was started 3 times"
        assert len(profiler.jobs) == 6

        await client.redeploy("caption", spec(profiling_seconds=1200))
        await client.wait_until_served("caption", 4)


async def test_other_apps_are_measured_during_the_pause_after_an_interruption(
    client: StoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cornserve.control.preparation.FIRST_PAUSE", 60)
    profiler = FakeProfiler(ProfilerProcessError("killed"))
    async with running_controller(client, FakeLauncher(), planner=OneCellPlanner(), profiler=profiler):
        await client.deploy("caption", spec())
        status = await progress(client, "caption", "measured again in 60 s: killed")
        assert (status.phase, status.step) == (Phase.STARTING, PlanningStep.PROFILING)
        await client.deploy("other", spec(SOURCE.replace('"caption"', '"other"')))
        await client.wait_until_served("other", 3)

    assert [job.app for job in profiler.jobs] == ["caption", "other"]


async def test_apps_are_measured_one_after_the_other_and_deleted_ones_not_at_all(client: StoreClient) -> None:
    profiler = FakeProfiler()
    profiler.may_finish.clear()
    async with running_controller(client, FakeLauncher(), planner=OneCellPlanner(), profiler=profiler):
        await client.deploy("first", spec(SOURCE.replace('"caption"', '"first"')))
        await progress(client, "first", "llm with llm: 4 requests/s")
        await client.deploy("second", spec(SOURCE.replace('"caption"', '"second"')))
        await progress(client, "second", WAITING)
        assert profiler.running == ["first"]

        await client.store.delete(APPS, "first")
        await until(lambda: profiler.running == ["second"])


async def test_changes_that_do_not_affect_measurements_do_not_end_them(client: StoreClient) -> None:
    profiler = FakeProfiler()
    profiler.may_finish.clear()
    async with running_controller(client, FakeLauncher(), planner=OneCellPlanner(), profiler=profiler):
        await client.deploy("caption", spec())
        await progress(client, "caption", "llm with llm: 4 requests/s")
        await client.redeploy(
            "caption", spec().changed(policies=AppPolicies(routing="static"), restart=Restart(id="again"))
        )
        await client.wait_for_status("caption", lambda status: status.generation == 2)
        profiler.may_finish.set()
        route = await client.wait_until_served("caption", 4)

    assert route.spec.policies.routing == "static"
    assert len(profiler.jobs) == 1


async def test_a_refusal_does_not_wait_for_the_measurements_of_another_app(client: StoreClient) -> None:
    profiler, planner = FakeProfiler(), OneCellPlanner()
    profiler.may_finish.clear()
    planner.refusals["second"] = "a plan needs at least 2 GPUs"
    async with running_controller(client, FakeLauncher(), planner=planner, profiler=profiler):
        await client.deploy("first", spec(SOURCE.replace('"caption"', '"first"')))
        await progress(client, "first", "llm with llm: 4 requests/s")
        await client.deploy("second", spec(SOURCE.replace('"caption"', '"second"')))
        status = await client.wait_for_status("second", lambda status: status.phase is Phase.FAILED)

        assert (status.reason, status.message) == (FailureReason.PROFILING_FAILED, planner.refusals["second"])
        assert profiler.running == ["first"]


async def test_an_app_that_waits_shows_why_its_last_measurements_were_interrupted(client: StoreClient) -> None:
    profiler = FakeProfiler(ProfilerProcessError("killed"))
    profiler.may_finish.clear()
    async with running_controller(client, FakeLauncher(), planner=OneCellPlanner(), profiler=profiler):
        await client.deploy("first", spec(SOURCE.replace('"caption"', '"first"')))
        await progress(client, "first", "llm with llm: 4 requests/s")
        await client.deploy("second", spec(SOURCE.replace('"caption"', '"second"')))
        await progress(client, "second", WAITING)
        profiler.stay_running()
        await progress(client, "first", f"{WAITING}; the last attempt was interrupted: killed")


async def test_an_app_waits_for_the_measurements_of_its_previous_version(client: StoreClient) -> None:
    profiler = FakeProfiler()
    profiler.may_finish.clear()
    profiler.may_end.clear()
    async with running_controller(client, FakeLauncher(), planner=OneCellPlanner(), profiler=profiler):
        await client.deploy("caption", spec())
        await progress(client, "caption", "llm with llm: 4 requests/s")
        await client.redeploy("caption", spec(SOURCE + "\n"))
        await progress(client, "caption", WAITING_FOR_PREVIOUS)
        profiler.may_end.set()
        await progress(client, "caption", "llm with llm: 4 requests/s")
        assert len(profiler.jobs) == 2


async def test_temporary_apps_of_ended_measurements_are_deleted(client: StoreClient) -> None:
    profiler = FakeProfiler()
    profiler.may_finish.clear()
    async with running_controller(client, FakeLauncher(), planner=OneCellPlanner(), profiler=profiler):
        await client.deploy("caption", spec())
        await progress(client, "caption", "llm with llm: 4 requests/s")
        running = f"{profiler.jobs[0].prefix}1"
        left = f"{TEMPORARY_PREFIX}{run_name('another')}-1"
        similar = [f"{TEMPORARY_PREFIX}{end}" for end in ("apples-1", "12345678", "12345678-1a")]
        for name in (running, left, *similar):
            await client.deploy(name, AppSpec(source=AppSource(inline=SOURCE.replace('"caption"', repr(name)))))

        async def remain(*names: str) -> bool:
            return {each.name for each in (await client.store.list(APPS)).records} == {*names}

        await until(lambda: remain("caption", running, *similar))
        profiler.may_finish.set()
        await until(lambda: remain("caption", *similar))


async def test_a_measured_profile_is_of_one_code_and_of_one_set_of_types() -> None:
    made = spec()
    assert (made.needs_plan, made.needs_profile) == (True, True)
    made = made.model_copy(
        update={"measured": AppProfile(profile=PROFILE, measured_from=made.profile_digest)},
    )
    assert (made.needs_plan, made.needs_profile) == (True, False)
    assert made.code == spec().code
    assert made.with_source(inline=SOURCE + "\n").needs_profile
    assert not AppSpec(source=AppSource(inline=SOURCE), planning=inputs(), measured=None).needs_profile


@pytest.mark.parametrize(
    "change", [{"restart": Restart(id="1")}, {"model": AppModel(id="org/model", shares={"multimodal": 1})}]
)
async def test_restarts_and_the_shares_of_a_plan_need_no_other_measurements(change: dict[str, Any]) -> None:
    made = AppSpec(model=AppModel(id="org/model"), planning=inputs(profile=None))
    changed = made.changed(**change)
    assert changed.code != made.code
    assert changed.profile_digest == made.profile_digest


async def test_a_plan_from_a_given_profile_has_no_measured_type(client: StoreClient) -> None:
    measured = AppProfile(profile=PROFILE, gpu_type="small", measured_from="0" * 12)
    async with running_controller(client, FakeLauncher(), planner=OneCellPlanner(), profiler=FakeProfiler()):
        await client.deploy("caption", AppSpec(source=AppSource(inline=SOURCE), planning=inputs(), measured=measured))
        await client.wait_until_served("caption", 2)
        plan = (await client.store.get(APPS, "caption")).spec.plan
        assert plan is not None
        assert {option.gpu_type for option in plan.options.values()} == {None}


async def test_measurements_that_hang_are_ended_and_tried_again(
    client: StoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cornserve.control.preparation.FIRST_PAUSE", 60)
    monkeypatch.setattr("cornserve.control.profiling.job.MARGIN_SECONDS", -600)
    profiler = FakeProfiler()
    profiler.may_finish.clear()
    async with running_controller(client, FakeLauncher(), planner=OneCellPlanner(), profiler=profiler):
        await client.deploy("caption", spec())
        await progress(client, "caption", "measured again in 60 s: the profiler has not ended after 0 s")
        assert profiler.running == []


async def test_an_interruption_that_the_process_reports_is_no_failure_of_the_app(
    client: StoreClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("cornserve.control.preparation.FIRST_PAUSE", 60)
    profiler = FakeProfiler(ProfilingMessage(interruption="other measurements use the home"))
    async with running_controller(client, FakeLauncher(), planner=OneCellPlanner(), profiler=profiler):
        await client.deploy("caption", spec())
        await progress(client, "caption", "measured again in 60 s: other measurements use the home")
    logged = [record.levelname for record in caplog.records if "measurements" in record.message]
    assert logged == ["WARNING"]


def test_a_message_is_found_in_its_line_only() -> None:
    job = ProfilingJob(app="caption", uid="uid", spec=AppSpec(source=AppSource(inline=SOURCE)), workload={}, seconds=1)
    message = ProfilingMessage(progress="starts")
    assert job.message(job.line(message) + "\n") == message
    other = job.model_copy(update={"uid": "another"})
    for line in ("", job.run, f"{job.run} text", message.model_dump_json(), other.line(message)):
        assert job.message(line) is None
