"""The cluster for tests on machines that cannot run it, and the supervisor of its processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from scripts.cluster.__main__ import CANNOT_RUN, main
from scripts.cluster.host import prepare_host
from scripts.cluster.programs import ROOT
from scripts.cluster.shell import LocalClusterError
from tests.waiting import until


def test_a_user_who_is_not_root_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    with pytest.raises(SystemExit, match="cluster: the cluster for tests needs Linux and root"):
        main(["up"])


def test_the_check_distinguishes_a_machine_that_cannot_run_the_cluster_from_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    with pytest.raises(SystemExit) as ended:
        main(["check"])

    assert ended.value.code == CANNOT_RUN
    assert capsys.readouterr().err.startswith("cluster: the cluster for tests needs Linux and root")


@pytest.mark.skipif(os.geteuid() != 0, reason="other users cannot run the cluster anyway")
class TestRestrictedRoot:
    def test_missing_control_groups_are_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("scripts.cluster.host.STATE", tmp_path / "state")
        monkeypatch.setattr("scripts.cluster.host._CGROUPS", tmp_path / "missing")

        with pytest.raises(LocalClusterError, match="does not permit"):
            prepare_host()

    def test_the_root_of_a_user_namespace_is_not_the_root_of_the_machine(self) -> None:
        command = ["unshare", "--user", "--map-root-user", sys.executable, "-m", "scripts.cluster", "check"]

        result = subprocess.run(command, capture_output=True, text=True, check=False)

        assert result.returncode == CANNOT_RUN
        assert "needs Linux and root" in result.stderr

    def test_a_full_disk_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("scripts.cluster.host.STATE", tmp_path / "state")
        monkeypatch.setattr("scripts.cluster.host._FREE_BYTES", 10**18)

        with pytest.raises(LocalClusterError, match="GB of free disk, and the nodes need"):
            prepare_host()


def test_a_skipped_test_of_the_cluster_fails_in_ci() -> None:
    name = "test_another_checkout_uses_a_cluster_that_is_up"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "cluster", "-k", name]
    command += ["tests/cluster/test_cluster.py"]
    environment = {**os.environ, "CORNSERVE_TEST_CONTEXT": "missing", "CI": "1"}

    failed = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)

    assert failed.returncode == 1
    assert "skipped in CI: " in failed.stdout


def test_a_machine_that_does_not_exist_is_named() -> None:
    with pytest.raises(SystemExit, match="cluster: unknown machine 'node-99'"):
        main(["stop", "node-99", "kubelet"])


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Path]:
    """The directory of a machine with the process `sleeper`, which writes its PID to the file `pid` when it starts."""
    sleeper = ["sh", "-c", "echo $$ > pid.new; mv pid.new pid; exec sleep 1000"]
    (tmp_path / "machine.json").write_text(json.dumps({"mounts": [], "processes": {"sleeper": sleeper}}))
    command = [sys.executable, "-m", "scripts.cluster.supervisor", str(tmp_path)]
    supervisor = subprocess.Popen(command, start_new_session=True)
    yield tmp_path
    os.killpg(supervisor.pid, signal.SIGKILL)
    supervisor.wait()


def running_pid(machine: Path) -> int:
    """Returns the PID of the sleeper, or 0 if it does not run."""
    file = machine / "pid"
    pid = int(file.read_text()) if file.exists() else 0
    return pid if pid and psutil.pid_exists(pid) else 0


async def test_a_process_that_ends_is_started_again(machine: Path) -> None:
    await until(lambda: running_pid(machine) > 0)
    first = running_pid(machine)

    os.kill(first, signal.SIGKILL)

    await until(lambda: running_pid(machine) not in (0, first))


async def test_a_stopped_process_stays_away_until_it_is_started(machine: Path) -> None:
    await until(lambda: running_pid(machine) > 0)
    first = running_pid(machine)

    (machine / "sleeper.stopped").touch()
    await until(lambda: running_pid(machine) == 0)
    (machine / "sleeper.stopped").unlink()

    await until(lambda: running_pid(machine) not in (0, first))
