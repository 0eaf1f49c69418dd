"""An app that is deployed with a budget and a workload only: the controller has it measured, and plans it."""

from __future__ import annotations

import os
from pathlib import Path
from signal import SIGKILL

import pytest

from cornserve.app.planning import PlanningInputs, WorkloadType
from cornserve.app.record import AppView, Phase, PlanningStep
from cornserve.app.spec import AppSource, AppSpec
from cornserve.client import AsyncClient
from cornserve.control.profiling.job import TEMPORARY_PREFIX
from tests.integration.cli.cli_instance import SMALL_SLAB, CliInstance
from tests.waiting import until

pytestmark = pytest.mark.slow

SOURCE = """
from cornserve import App
from cornserve_echo.stages import Caption, CaptionRequest, StageTask

app = App("caption", [Caption(llm=StageTask(seconds={"llm": 0.05}))], probes=[CaptionRequest()])
"""

TOKEN = "t" * 32

PLANNING = PlanningInputs(
    gpus=2,
    workload={"captions": WorkloadType(components=["llm"], share=1.0)},
    profiling_seconds=20,
)


@pytest.mark.timeout(150)
async def test_a_child_process_measures_and_is_started_again_after_it_was_killed(
    instance: CliInstance, tmp_path: Path
) -> None:
    keys, admin = tmp_path / "keys", tmp_path / "admin"
    keys.write_text("k" * 16)
    admin.write_text(TOKEN)
    access = ["--api-keys", str(keys), "--admin-token", str(admin)]
    instance.do("up", "--detach", "--port", "0", "--slots", "small=2", *SMALL_SLAB, *access)
    async with AsyncClient(instance.url, admin_token=TOKEN) as client:

        async def view() -> AppView:
            return await client.app("caption")

        async def measures() -> bool:
            return any(app.name.startswith(TEMPORARY_PREFIX) for app in await client.apps())

        async def serves() -> bool:
            found = await view()
            assert found.phase is not Phase.FAILED, found.status.message
            return found.settled

        await client.deploy(AppSpec(source=AppSource(inline=SOURCE), planning=PLANNING), name="caption", wait=False)
        await until(measures, seconds=60)
        assert (await view()).status.step is PlanningStep.PROFILING
        [worker] = [each for each in instance.processes("cornserve.control")[0].children() if is_worker(each.cmdline())]
        os.kill(worker.pid, SIGKILL)
        await until(serves, seconds=90)

        spec = (await view()).spec
        assert spec.measured is not None
        assert spec.plan is not None
        assert {option.gpu_type for option in spec.plan.options.values()} == {"small"}
        assert [app.name for app in await client.apps()] == ["caption"]


def is_worker(command: list[str]) -> bool:
    return "cornserve.profiler.worker" in command
