"""What users do with apps, from the command line."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from tests.integration.cli.machine import Machine, write_app
from tests.waiting import until


async def test_an_app_is_deployed_looked_at_called_and_deleted(machine: Machine, tmp_path: Path) -> None:
    machine.up()
    assert "No apps" in machine.do("status")

    deployed = machine.run("deploy", write_app(tmp_path, "echo", prefix="> ", start_seconds=0.5))
    assert deployed.returncode == 0, deployed.stderr
    assert "loading words" in deployed.stderr
    assert "echo serves. Try: cornserve invoke echo JSON" in deployed.stderr

    assert "serving" in machine.do("status")
    assert machine.json("status", "echo")["status"]["phase"] == "serving"
    assert machine.json("invoke", "echo", '{"text": "a b"}')["text"] == "> a b"
    streamed = [json.loads(line) for line in machine.do("invoke", "echo", '{"text": "b"}', "--stream").splitlines()]
    assert [event["item"] for event in streamed[:-1]] == [">", "b"]
    assert streamed[-1]["response"]["text"] == "> b"
    assert "executor ready" in machine.do("logs", "echo")

    assert machine.do("delete", "echo") == "echo is deleted\n"
    assert machine.run("status", "echo").stderr == "error: there is no app 'echo'\n"
    await until(lambda: not machine.processes("cornserve_executors.base"))


def test_a_deployment_that_fails_shows_the_reason_and_what_the_executor_wrote(machine: Machine, tmp_path: Path) -> None:
    machine.up()
    failed = machine.run("deploy", write_app(tmp_path, "broken", fail_start="out of words"), "--json")
    assert failed.returncode == 1
    lines = failed.stderr.splitlines()
    assert lines[-1].startswith("error: broken does not serve: ")
    assert lines[-1].endswith("out of words")
    assert any(line.startswith("  | ") and "out of words" in line for line in lines)
    assert json.loads(failed.stdout)["status"]["phase"] == "failed"
    assert "out of words" in machine.do("logs", "broken")


def test_a_version_that_fails_leaves_the_one_before_serving(machine: Machine, tmp_path: Path) -> None:
    machine.up()
    machine.do("deploy", write_app(tmp_path, "echo", prefix="1 "))
    failed = machine.run("deploy", write_app(tmp_path, "echo", fail_start="out of words"))
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1] == "Generation 1 serves on."
    assert machine.json("invoke", "echo", '{"text": "x"}')["text"] == "1 x"


def test_whoever_does_not_wait_is_told_where_to_look(machine: Machine, tmp_path: Path) -> None:
    machine.up()
    slow = write_app(tmp_path, "slow", start_seconds=300)
    deployed = machine.run("deploy", slow, "--no-wait")
    assert deployed.returncode == 0
    assert "slow is being deployed: `cornserve status slow`" in deployed.stderr
    deployed = machine.run("deploy", slow, "--timeout", "0.5")
    assert deployed.returncode == 1
    assert "slow does not serve after 0.5 s. It is still being deployed" in deployed.stderr


def test_a_deployment_goes_on_after_ctrl_c(machine: Machine, tmp_path: Path) -> None:
    machine.up()
    with machine.start("deploy", write_app(tmp_path, "slow", start_seconds=300)) as deploying:
        assert deploying.stderr is not None
        for line in deploying.stderr:
            if "loading words" in line:
                break
        deploying.send_signal(signal.SIGINT)
        said = deploying.stderr.read()
        deploying.wait()
    assert deploying.returncode == 130
    assert "slow is still being deployed" in said
    assert "Traceback" not in said
    assert machine.json("status", "slow")["status"]["phase"] == "starting"


def test_logs_can_be_followed(machine: Machine, tmp_path: Path) -> None:
    machine.up()
    machine.do("deploy", write_app(tmp_path, "echo"))
    with machine.start("logs", "echo", "--follow") as following:
        assert following.stdout is not None
        assert any("executor ready" in line for line in following.stdout)
        machine.run("deploy", write_app(tmp_path, "echo", prefix="2 "))
        assert any("executor ready" in line for line in following.stdout)
        following.send_signal(signal.SIGINT)
        assert following.stderr is not None
        assert following.stderr.read() == ""
        following.wait()
    assert following.returncode == 0
