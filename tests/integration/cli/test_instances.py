"""Starting, stopping and killing instances."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import httpx2 as httpx
import psutil
import pytest
from _pytest.mark import ParameterSet

from cornserve.control.store.base import APPS
from cornserve.control.store.sqlite import SqliteStore
from cornserve.home import Home
from cornserve.instance import Instance
from tests.integration.cli.cli_instance import CliInstance, write_app
from tests.unit.gateway.raw_http import post, raw_connection
from tests.waiting import until


def slow(value: object) -> ParameterSet:
    """Returns a parameter of a test that runs in the slow tier."""
    return pytest.param(value, marks=pytest.mark.slow)


async def apps_stored(home: Home) -> list[str]:
    store = await SqliteStore.open(home.store)
    try:
        return [record.name for record in (await store.list(APPS)).records]
    finally:
        await store.close()


async def assert_removed(instance: CliInstance, port: int) -> None:
    assert instance.processes() == []
    assert not instance.home.instance.exists()
    assert await apps_stored(instance.home) == []
    socket.create_server(("127.0.0.1", port)).close()


def port_of(instance: CliInstance) -> int:
    port = urlsplit(instance.url).port
    assert port is not None
    return port


def peer_ports(process: psutil.Process) -> set[int]:
    return {found.raddr.port for found in process.net_connections("tcp") if found.status == psutil.CONN_ESTABLISHED}


async def ready_gateways(instance: CliInstance) -> list[str]:
    """Returns a `host:port` for each of the two gateways. A gateway that another test has killed starts again."""

    def are_ready() -> bool:
        addresses = instance.gateway_addresses()
        return len(addresses) == 2 and all(map(is_ready, addresses))

    await until(are_ready)
    return instance.gateway_addresses()


def is_ready(gateway: str) -> bool:
    try:
        return httpx.get(f"http://{gateway}/readyz", trust_env=False).is_success
    except httpx.TransportError:
        return False


def invokes(gateway: str, app: str, text: str) -> bool:
    return httpx.post(f"http://{gateway}/v1/apps/{app}/invoke", json={"text": text}, trust_env=False).is_success


def test_only_the_owner_can_access_the_files_of_an_instance(shared: CliInstance, tmp_path: Path) -> None:
    """The home of the instance was created before, with a mode that all users can read."""
    shared.deploy(write_app(tmp_path, "echo"))

    files = [shared.home.path, *shared.home.path.rglob("*")]

    assert {file.name for file in files} >= {"secret", "state.db", "instance.json", "gateway.log", "endpoint", "log"}
    modes = {str(file): oct(file.stat().st_mode & 0o7777) for file in files}
    assert {path for path, mode in modes.items() if int(mode, 8) & 0o077} == set()


@pytest.mark.slow
async def test_down_can_keep_the_apps(instance: CliInstance, tmp_path: Path) -> None:
    instance.up()
    instance.deploy(write_app(tmp_path, "echo"))
    instance.do("down", "--keep-apps")
    assert instance.processes() == []
    assert await apps_stored(instance.home) == ["echo"]
    instance.up()
    await until(lambda: instance.responds("echo"))


@pytest.mark.slow
async def test_two_instances_are_independent(new_instance: Callable[[], CliInstance], tmp_path: Path) -> None:
    one, other = new_instance(), new_instance()
    for instance, prefix in ((one, "one"), (other, "other")):
        instance.up()
        instance.deploy(write_app(tmp_path, "echo", prefix=f"{prefix} "))
    assert one.url != other.url
    assert one.json("invoke", "echo", '{"text": "x"}')["text"] == "one x"
    one.do("down")
    assert other.json("invoke", "echo", '{"text": "x"}')["text"] == "other x"


def test_a_second_up_is_rejected_without_effect(shared: CliInstance, tmp_path: Path) -> None:
    shared.deploy(write_app(tmp_path, "echo"))
    for arguments in (["up", "--port", "0"], ["up", "--detach", "--port", "0"]):
        second = shared.run(*arguments)
        assert second.returncode == 1
        assert second.stderr.startswith(f"error: Cornserve already runs for {shared.home.path}, at {shared.url}")
        assert len(second.stderr.splitlines()) == 1
    assert shared.json("invoke", "echo", '{"text": "x"}')["text"] == "x"


@pytest.mark.parametrize("detach", [[], ["--detach"]])
def test_a_port_in_use_is_reported_in_one_line(instance: CliInstance, detach: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        refused = instance.run("up", "--port", str(port), *detach)
    assert refused.returncode == 1
    assert (
        refused.stderr == f"error: port {port} of 127.0.0.1 is in use: choose another with --port or CORNSERVE_PORT\n"
    )
    assert instance.processes() == []


async def test_up_serves_the_apps_again_after_all_processes_were_killed_and_down_removes_everything(
    instance: CliInstance, tmp_path: Path
) -> None:
    instance.up()
    instance.deploy(write_app(tmp_path, "echo"))
    instance.kill_everything()
    instance.up()
    port = port_of(instance)
    await until(lambda: instance.responds("echo"))
    assert "Deleted: echo" in instance.do("down")
    await assert_removed(instance, port)


@pytest.mark.slow
async def test_down_cleans_up_after_a_killed_supervisor(instance: CliInstance, tmp_path: Path) -> None:
    instance.up()
    port = port_of(instance)
    instance.deploy(write_app(tmp_path, "echo"))
    executors = instance.processes("cornserve_executors.base")
    for process in instance.processes():
        if process not in executors:
            process.kill()
    assert "Deleted: echo" in instance.do("down")
    await assert_removed(instance, port)


@pytest.mark.slow
@pytest.mark.parametrize("module", ["cornserve.gateway", "cornserve.control", "cornserve_executors.base"])
async def test_up_takes_over_from_a_killed_supervisor_although_a_process_hangs(
    instance: CliInstance, tmp_path: Path, module: str
) -> None:
    instance.up()
    port = port_of(instance)
    instance.deploy(write_app(tmp_path, "echo"))
    executors = instance.processes("cornserve_executors.base")
    [hanging] = instance.processes(module)
    app_hosts = [child for child in hanging.children(recursive=True) if "cornserve.app_host" in child.cmdline()]
    for process in (hanging, *app_hosts):
        process.suspend()
    os.kill(instance.pid, signal.SIGKILL)

    restarted = instance.run("up", "--detach", "--port", str(port), "--cpu-slots", "4")

    assert restarted.returncode == 0, restarted.stderr
    assert instance.processes("cornserve_executors.base") == executors
    await until(lambda: not any(process.is_running() for process in app_hosts))
    if hanging in executors:
        hanging.resume()
    else:
        assert f"of a killed instance, which is stopped (process {hanging.pid})" in restarted.stderr
    await until(lambda: instance.responds("echo"))


@pytest.mark.slow
async def test_a_second_up_spares_a_running_instance_although_its_file_is_damaged(shared: CliInstance) -> None:
    url = shared.url
    shared.home.instance.write_text("}")
    second = shared.run("up", "--port", "0")
    assert second.returncode == 1
    # The supervisor may have written the file again meanwhile.
    assert f"another instance uses {shared.home.path}" in second.stderr or "already runs for" in second.stderr
    await until(lambda: Instance.find_running(shared.home) is not None)
    assert shared.url == url
    assert "No apps" in shared.do("status")


@pytest.mark.slow
@pytest.mark.parametrize("module", ["cornserve.gateway", "cornserve.control"])
async def test_the_supervisor_replaces_a_blocked_process(shared: CliInstance, tmp_path: Path, module: str) -> None:
    shared.deploy(write_app(tmp_path, "echo"))
    blocked, *others = shared.processes(module)
    blocked.suspend()
    await until(lambda: not blocked.is_running())
    await until(lambda: len(shared.processes(module)) > len(others))
    await until(lambda: shared.responds("echo"))
    assert "its event loop has not run for 10 s" in (shared.home.logs / "supervisor.log").read_text()


@pytest.mark.slow
def test_doctor_reports_a_blocked_gateway(instance: CliInstance) -> None:
    instance.up("--limit", "blocked-seconds=100")
    [gateway] = instance.processes("cornserve.gateway")
    gateway.suspend()
    assert "its event loop is blocked" in instance.run("doctor").stdout
    gateway.resume()
    assert f"{instance.url} responds" in instance.run("doctor").stdout


async def test_a_killed_gateway_breaks_only_its_own_connections(shared: CliInstance, tmp_path: Path) -> None:
    shared.deploy(write_app(tmp_path, "echo"))
    for address in await ready_gateways(shared):
        await until(partial(invokes, address, "echo", "one"))
    gateways = shared.processes("cornserve.gateway")
    async with AsyncExitStack() as connections:
        clients = [await connections.enter_async_context(raw_connection(port_of(shared))) for _ in range(60)]
        invocation = b'{"text": "one two", "seconds": 10}'
        for client in clients:
            await client.send(post("/v1/apps/echo/invoke", f"Content-Length: {len(invocation)}") + invocation)
        killed = gateways[0]
        ports = {client.local_port for client in clients}
        await until(lambda: set().union(*map(peer_ports, gateways)) >= ports)
        broken = peer_ports(killed) & ports
        killed.kill()
        responses = await asyncio.gather(*(client.read_response() for client in clients), return_exceptions=True)

    failed = {
        client.local_port
        for client, response in zip(clients, responses, strict=True)
        if isinstance(response, BaseException)
    }
    assert failed == broken
    assert 0 < len(broken) < 60
    assert {response.status for response in responses if not isinstance(response, BaseException)} == {200}
    await until(lambda: len(set(shared.processes("cornserve.gateway")) - {killed}) == 2)


async def test_each_gateway_is_a_target_of_prometheus_and_is_checked_by_doctor(shared: CliInstance) -> None:
    gateways = await ready_gateways(shared)
    for process in shared.processes("cornserve.gateway"):
        listening = {found.laddr.port for found in process.net_connections("tcp") if found.status == psutil.CONN_LISTEN}
        [own] = [gateway for gateway in gateways if int(gateway.rpartition(":")[2]) in listening]
        assert listening == {port_of(shared), int(own.rpartition(":")[2])}
        assert "cornserve_gateway" in httpx.get(f"http://{own}/metrics", trust_env=False).text
    checked = shared.run("doctor").stdout
    assert all(f"http://{gateway} responds" in checked for gateway in gateways)
    assert (shared.home.logs / "gateway-2.log").exists()


PRINTER = """
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoResponse, EchoTask

class Printer(Task[EchoRequest, EchoResponse]):
    '''Prints the text, and returns it.'''

    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: EchoRequest) -> EchoResponse:
        print("got", request.text)
        return self.echo.invoke(request)

app = App(name="printer", paths=[Printer()])
"""


async def test_the_logs_of_an_app_have_the_prints_in_each_gateway(shared: CliInstance, tmp_path: Path) -> None:
    source = tmp_path / "printer.py"
    source.write_text(PRINTER)
    shared.deploy(str(source))
    prints = dict(zip(await ready_gateways(shared), ("one", "two"), strict=True))
    for gateway, text in prints.items():
        await until(partial(invokes, gateway, "printer", text))

    logs = json.loads(shared.run("logs", "printer", "--json").stdout)["replicas"]

    written = {
        log["id"]: [line.partition(" ")[2].partition(" request_id=")[0] for line in log["lines"]] for log in logs
    }
    line = next(number for number, text in enumerate(PRINTER.splitlines(), start=1) if "print(" in text)
    assert {gateway: written[f"gateway {gateway}"] for gateway in prints} == {
        gateway: [f"PRINT printer.py:{line}: got {text}"] for gateway, text in prints.items()
    }


@pytest.mark.parametrize("number", [signal.SIGTERM, *map(slow, (signal.SIGINT, signal.SIGHUP))])
async def test_a_signal_stops_all_processes_and_keeps_the_apps(
    instance: CliInstance, tmp_path: Path, number: signal.Signals
) -> None:
    with instance.start("up", "--port", "0") as up:
        assert up.stdout is not None
        assert up.stdout.readline().startswith("Cornserve listens on http://127.0.0.1:")
        instance.deploy(write_app(tmp_path, "echo"))
        up.send_signal(number)
        up.communicate()
    assert up.returncode == 0
    assert instance.processes() == []
    assert await apps_stored(instance.home) == ["echo"]


@pytest.mark.slow
async def test_a_second_signal_does_not_wait_for_requests(instance: CliInstance, tmp_path: Path) -> None:
    with instance.start("up", "--port", "0") as up:
        assert up.stdout is not None
        up.stdout.readline()
        instance.deploy(write_app(tmp_path, "echo"))
        request = json.dumps({"text": "word " * 1000, "seconds": 600})
        with instance.start("invoke", "echo", request, "--stream") as invoking:
            assert invoking.stdout is not None
            assert "word" in invoking.stdout.readline()
            up.send_signal(signal.SIGINT)
            assert up.stderr is not None
            assert up.stderr.readline() == "stopping\n"
            up.send_signal(signal.SIGINT)
            up.communicate()
            invoking.communicate()
    assert invoking.returncode == 1
    assert instance.processes() == []


def test_down_without_an_instance_succeeds(instance: CliInstance) -> None:
    assert instance.do("down") == f"No instance of Cornserve runs for {instance.home.path}\n"
    assert not instance.home.path.exists()
