"""The child processes that measure apps on the local launcher."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cornserve.access import ADMIN_TOKEN, API_KEY
from cornserve.app.spec import AppSource, AppSpec
from cornserve.control.profiling.job import PROFILER_TOKEN, ProfilerProcessError, ProfilingJob
from cornserve.control.profiling.local_process import run_local_profiler
from cornserve.home import Home
from cornserve.instance import Instance
from cornserve.instance_secret import InstanceSecret

JOB = ProfilingJob(app="caption", uid="uid", spec=AppSpec(source=AppSource(inline="app = ...")), workload={}, seconds=1)

PROCESS = f"""#!/bin/sh
echo "{JOB.run} {{\\"progress\\": \\"$* ${ADMIN_TOKEN} ${API_KEY}.\\"}}"
"""
"""Reports its arguments and its secrets."""


async def test_a_process_has_a_token_for_temporary_apps_in_its_environment_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path)
    Instance.of_current_process("http://127.0.0.1:1").write(home)
    with pytest.raises(ProfilerProcessError, match="cannot read the instance's secret"):
        await anext(run_local_profiler(home, JOB))

    token = InstanceSecret.load_or_create(home.secret).token(PROFILER_TOKEN)
    process = tmp_path / "python"
    process.write_text(PROCESS)
    process.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(process))
    monkeypatch.setenv(ADMIN_TOKEN, "")
    monkeypatch.setenv(API_KEY, "the key of another instance")

    messages = [message async for message in run_local_profiler(home, JOB)]

    assert [message.progress for message in messages] == [f"-m cornserve.profiler.worker {token} ."]
