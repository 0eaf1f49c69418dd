"""Deploying, calling and deleting apps with the command line."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from tests.integration.cli.cli_instance import CliInstance, write_app
from tests.waiting import until

TWICE = """
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoResponse, EchoTask

class Twice(Task[EchoRequest, EchoResponse]):
    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: EchoRequest) -> EchoResponse:
        first = self.echo.invoke(request)
        print("first", first.text)
        if first.text == "weeds":
            raise ValueError("no corn")
        return self.echo.invoke(EchoRequest(text=f"{first.text} again"))

app = App(name="twice", paths=[Twice()])
"""


async def test_an_app_is_deployed_called_and_deleted(shared: CliInstance, tmp_path: Path) -> None:
    assert "No apps" in shared.do("status")

    deployed = shared.run("deploy", write_app(tmp_path, "echo", prefix="> ", start_seconds=0.5))
    assert deployed.returncode == 0, deployed.stderr
    assert "loading words" in deployed.stderr
    assert "echo serves. Try: cornserve invoke echo JSON" in deployed.stderr

    assert "serving" in shared.do("status")
    assert shared.json("status", "echo")["status"]["phase"] == "serving"
    assert shared.json("invoke", "echo", '{"text": "a b"}')["text"] == "> a b"
    streamed = [json.loads(line) for line in shared.do("invoke", "echo", '{"text": "b"}', "--stream").splitlines()]
    assert [event["item"] for event in streamed[:-1]] == [">", "b"]
    assert streamed[-1]["response"]["text"] == "> b"
    assert "executor ready" in shared.do("logs", "echo")

    assert shared.do("delete", "echo") == "echo deleted\n"
    assert shared.run("status", "echo").stderr.startswith("error: unknown app 'echo'")
    await until(lambda: not shared.processes("cornserve_executors.base"))


def test_a_failed_deployment_shows_its_reason_and_the_log_of_the_executor(shared: CliInstance, tmp_path: Path) -> None:
    failed = shared.run("deploy", write_app(tmp_path, "broken", fail_start="out of words"), "--json")
    assert failed.returncode == 1
    lines = failed.stderr.splitlines()
    assert lines[-1].startswith("error: broken failed to start: ")
    assert lines[-1].endswith("out of words")
    assert any(line.startswith("  | ") and "out of words" in line for line in lines)
    assert json.loads(failed.stdout)["status"]["phase"] == "failed"
    assert "out of words" in shared.do("logs", "broken")


@pytest.mark.slow
def test_the_previous_generation_serves_after_a_failed_deployment(shared: CliInstance, tmp_path: Path) -> None:
    shared.deploy(write_app(tmp_path, "echo", prefix="1 "))
    failed = shared.run("deploy", write_app(tmp_path, "echo", fail_start="out of words"))
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1] == "Generation 1 continues to serve."
    assert shared.json("invoke", "echo", '{"text": "x"}')["text"] == "1 x"


@pytest.mark.slow
def test_a_deployment_without_waiting_suggests_the_command_status(shared: CliInstance, tmp_path: Path) -> None:
    slow = write_app(tmp_path, "slow", start_seconds=300)
    deployed = shared.run("deploy", slow, "--no-wait")
    assert deployed.returncode == 0
    assert "slow is being deployed: see `cornserve status slow`" in deployed.stderr
    deployed = shared.run("deploy", slow, "--timeout", "10")
    assert deployed.returncode == 1
    assert "slow does not serve after 10.0 s, and is still being deployed" in deployed.stderr


def test_a_deployment_continues_after_ctrl_c(shared: CliInstance, tmp_path: Path) -> None:
    with shared.start("deploy", write_app(tmp_path, "slow", start_seconds=300)) as deploying:
        assert deploying.stderr is not None
        for line in deploying.stderr:
            if "loading words" in line:
                break
        deploying.send_signal(signal.SIGINT)
        errors = deploying.stderr.read()
        deploying.wait()
    assert deploying.returncode == 130
    assert "slow is still being deployed" in errors
    assert "Traceback" not in errors
    assert shared.json("status", "slow")["status"]["phase"] == "starting"


def test_logs_can_be_followed(shared: CliInstance, tmp_path: Path) -> None:
    shared.deploy(write_app(tmp_path, "echo"))
    with shared.start("logs", "echo", "--follow") as following:
        assert following.stdout is not None
        assert any("executor ready" in line for line in following.stdout)
        shared.deploy(write_app(tmp_path, "echo", prefix="2 "))
        assert any("executor ready" in line for line in following.stdout)
        following.send_signal(signal.SIGINT)
        assert following.stderr is not None
        assert following.stderr.read() == ""
        following.wait()
    assert following.returncode == 0


@pytest.mark.slow
def test_a_file_is_tried_as_a_temporary_app(shared: CliInstance, tmp_path: Path) -> None:
    file = tmp_path / "twice.py"
    file.write_text(TWICE)

    tried = shared.run("try", str(file), '{"text": "corn"}')
    failed = shared.run("try", str(file), '{"text": "corn", "fail": "no more"}')
    raised = shared.run("try", str(file), '{"text": "weeds"}')

    lines = [number for number, line in enumerate(TWICE.splitlines(), start=1) if "self.echo.invoke" in line]
    assert tried.returncode == 0, tried.stderr
    assert tried.stdout.splitlines()[:6] == [
        "round 1",
        f'  0 EchoTask (twice.py:{lines[0]}): {{"text": "corn"}}',
        '    returned {"text": "corn", "words_sent": 1}',
        "round 2",
        f'  1 EchoTask (twice.py:{lines[1]}): {{"text": "corn again"}}',
        '    returned {"text": "corn again", "words_sent": 2}',
    ]
    assert json.loads(tried.stdout.partition("response\n")[2])["text"] == "corn again"
    assert re.search(r"^twice\.py:\d+: first corn$", tried.stderr, re.MULTILINE)
    assert failed.returncode == 1
    assert "    failed: " in failed.stdout
    assert failed.stderr.splitlines()[-1].startswith("error: ")
    assert re.search(
        r'^twice\.py:\d+: first weeds\n  File "twice\.py", line \d+, in invoke\n    raise ValueError\("no corn"\)\n'
        r"builtins\.ValueError\nerror: ValueError: no corn \(.*\)$",
        raised.stderr,
        re.MULTILINE,
    )
    assert raised.stderr.count("no corn") == 2  # in the line of the source, and in the error
    assert shared.json("status")["apps"] == []


@pytest.mark.slow
def test_a_deployed_app_is_tried(shared: CliInstance, tmp_path: Path) -> None:
    shared.deploy(write_app(tmp_path, "echo", prefix="> "))

    run = shared.json("try", "echo", '{"text": "a"}')

    assert [(call["task"], call["output"]["text"]) for call in run["calls"]] == [("EchoTask", "> a")]
    assert run["response"]["text"] == "> a"
    assert shared.run("try", "absent", "{}").stderr.startswith("error: unknown model 'absent'")
