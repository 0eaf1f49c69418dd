from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cornserve.cli import doctor_checks
from cornserve.cli.commands import app
from cornserve.home import Home
from cornserve.instance import Instance


@pytest.fixture
def cli(tmp_path: Path) -> CliRunner:
    return CliRunner(env={"CORNSERVE_HOME": str(tmp_path), "COLUMNS": "200", "NO_COLOR": "1"})


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return str(listener.getsockname()[1])


def check(home: Home, name: str) -> doctor_checks.CheckResult:
    results = doctor_checks.run_checks(home, "127.0.0.1", int(free_port()))
    return next(result for result in results if result.name == name)


def test_doctor_runs_all_checks(cli: CliRunner, tmp_path: Path) -> None:
    result = cli.invoke(app, ["doctor", "--port", free_port(), "--json"])
    names = [check["name"] for check in json.loads(result.stdout)["checks"]]
    assert names == [
        "Python", "vLLM", "GPUs", "libnuma", "memory", "/dev/shm", "home", "disk", "instance", "port",
    ]  # fmt: skip


def test_a_port_in_use_is_an_essential_failure_with_a_remedy(cli: CliRunner) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        result = cli.invoke(app, ["doctor", "--port", str(listener.getsockname()[1])])
    assert result.exit_code == 1
    assert "✗ port" in result.stdout
    assert "cornserve up --port" in result.stdout


def test_the_port_of_a_running_instance_is_not_checked(cli: CliRunner, tmp_path: Path) -> None:
    Instance.of_current_process("http://127.0.0.1:1").write(Home(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        result = cli.invoke(app, ["doctor", "--port", str(listener.getsockname()[1])])
    assert "runs at http://127.0.0.1:1" in result.stdout
    assert "✗ port" not in result.stdout


def test_a_gateway_that_does_not_respond_is_an_essential_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_checks, "RESPONSE_SECONDS", 0.1)
    home = Home(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        Instance.of_current_process(f"http://127.0.0.1:{listener.getsockname()[1]}").write(home)
        result = check(home, "gateway")
    assert (result.ok, result.is_essential) == (False, True)
    assert "its event loop is blocked" in result.found
    assert "gateway.log" in result.remedy


def test_a_killed_instance_is_not_an_essential_failure(tmp_path: Path) -> None:
    home = Home(tmp_path)
    Instance(pid=1, started=-100.0, boot="another", url="http://127.0.0.1:1").write(home)
    result = check(home, "instance")
    assert (result.ok, result.is_essential) == (False, False)
    assert "cornserve up" in result.remedy


def test_a_read_only_home_is_an_essential_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    home = Home(tmp_path / "file" / "home")
    result = check(home, "home")
    assert (result.ok, result.is_essential) == (False, True)
