"""An instance starts, runs beside others, and ends, in whatever way it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from cornserve.control.store.base import APPS
from cornserve.control.store.sqlite import SqliteStore
from cornserve.home import Home
from tests.integration.cli.machine import Machine, write_app
from tests.waiting import until


async def apps_stored(home: Home) -> list[str]:
    store = await SqliteStore.open(home.store)
    try:
        return [record.name for record in (await store.list(APPS)).records]
    finally:
        await store.close()


async def assert_nothing_is_left(machine: Machine, port: int) -> None:
    assert machine.processes() == []
    assert not machine.home.instance.exists()
    assert await apps_stored(machine.home) == []
    socket.create_server(("127.0.0.1", port)).close()


def port_of(machine: Machine) -> int:
    port = urlsplit(machine.url).port
    assert port is not None
    return port


async def answers(machine: Machine, app: str, text: str) -> bool:
    done = await asyncio.to_thread(machine.run, "invoke", app, f'{{"text": "{text}"}}')
    return done.returncode == 0 and text in done.stdout


async def test_down_leaves_nothing(machine: Machine, tmp_path: Path) -> None:
    machine.up()
    port = port_of(machine)
    machine.do("deploy", write_app(tmp_path, "echo"))
    assert "Deleted: echo" in machine.do("down")
    await assert_nothing_is_left(machine, port)


async def test_down_can_keep_the_apps(machine: Machine, tmp_path: Path) -> None:
    machine.up()
    machine.do("deploy", write_app(tmp_path, "echo"))
    machine.do("down", "--keep-apps")
    assert machine.processes() == []
    assert await apps_stored(machine.home) == ["echo"]
    machine.up()
    await until(lambda: answers(machine, "echo", "again"), seconds=60)


async def test_two_instances_never_meet(new_machine: Callable[[], Machine], tmp_path: Path) -> None:
    one, other = new_machine(), new_machine()
    for machine, prefix in ((one, "one"), (other, "other")):
        machine.up()
        machine.do("deploy", write_app(tmp_path, "echo", prefix=f"{prefix} "))
    assert one.url != other.url
    assert one.json("invoke", "echo", '{"text": "x"}')["text"] == "one x"
    one.do("down")
    assert other.json("invoke", "echo", '{"text": "x"}')["text"] == "other x"


def test_a_second_up_is_refused_without_harm(machine: Machine, tmp_path: Path) -> None:
    machine.up()
    machine.do("deploy", write_app(tmp_path, "echo"))
    for arguments in (["up", "--port", "0"], ["up", "--detach", "--port", "0"]):
        second = machine.run(*arguments)
        assert second.returncode == 1
        assert second.stderr.startswith(f"error: Cornserve already runs for {machine.home.path}, at {machine.url}")
        assert len(second.stderr.splitlines()) == 1
    assert machine.json("invoke", "echo", '{"text": "x"}')["text"] == "x"


@pytest.mark.parametrize("detach", [[], ["--detach"]])
def test_a_taken_port_is_said_in_one_line(machine: Machine, detach: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        refused = machine.run("up", "--port", str(port), *detach)
    assert refused.returncode == 1
    assert (
        refused.stderr == f"error: port {port} of 127.0.0.1 is in use: choose another with --port or CORNSERVE_PORT\n"
    )
    assert machine.processes() == []


async def test_after_kill_9_of_everything_a_new_up_serves_the_apps_again(machine: Machine, tmp_path: Path) -> None:
    machine.up()
    machine.do("deploy", write_app(tmp_path, "echo"))
    machine.kill_everything()
    machine.up()
    port = port_of(machine)
    await until(lambda: answers(machine, "echo", "again"), seconds=60)
    machine.do("down")
    await assert_nothing_is_left(machine, port)


async def test_down_cleans_up_after_kill_9(machine: Machine, tmp_path: Path) -> None:
    machine.up()
    port = port_of(machine)
    machine.do("deploy", write_app(tmp_path, "echo"))
    executors = machine.processes("cornserve_executors.base")
    for process in machine.processes():
        if process not in executors:
            process.kill()
    assert "Deleted: echo" in machine.do("down")
    await assert_nothing_is_left(machine, port)


async def test_gateway_and_controller_end_with_their_supervisor(machine: Machine) -> None:
    machine.up()
    os.kill(machine.pid, signal.SIGKILL)
    await until(lambda: machine.processes() == [])
    machine.up()
    assert "No apps" in machine.do("status")


@pytest.mark.parametrize("module", ["cornserve.gateway", "cornserve.control"])
async def test_what_dies_is_started_again(machine: Machine, tmp_path: Path, module: str) -> None:
    def running() -> psutil.Process | None:
        return next(iter(machine.processes(module)), None)

    machine.up()
    machine.do("deploy", write_app(tmp_path, "echo"))
    first = running()
    assert first is not None
    first.kill()
    await until(lambda: running() not in (None, first))
    await until(lambda: answers(machine, "echo", "still"), seconds=60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_up_and_its_executors_but_keeps_the_apps(
    machine: Machine, tmp_path: Path, number: signal.Signals
) -> None:
    with machine.start("up", "--port", "0") as up:
        assert up.stdout is not None
        assert up.stdout.readline().startswith("Cornserve listens on http://127.0.0.1:")
        machine.do("deploy", write_app(tmp_path, "echo"))
        up.send_signal(number)
        up.communicate()
    assert up.returncode == 0
    assert machine.processes() == []
    assert await apps_stored(machine.home) == ["echo"]


async def test_a_second_signal_does_not_wait_for_requests(machine: Machine, tmp_path: Path) -> None:
    with machine.start("up", "--port", "0") as up:
        assert up.stdout is not None
        up.stdout.readline()
        machine.do("deploy", write_app(tmp_path, "echo"))
        request = json.dumps({"text": "word " * 1000, "seconds": 600})
        with machine.start("invoke", "echo", request, "--stream") as invoking:
            assert invoking.stdout is not None
            assert "word" in invoking.stdout.readline()
            up.send_signal(signal.SIGINT)
            assert up.stderr is not None
            assert up.stderr.readline() == "stopping\n"
            up.send_signal(signal.SIGINT)
            up.communicate()
            invoking.communicate()
    assert invoking.returncode == 1
    assert machine.processes() == []


def test_down_without_an_instance_is_no_error(machine: Machine) -> None:
    assert machine.do("down") == f"No Cornserve runs for {machine.home.path}\n"
    assert not machine.home.path.exists()
