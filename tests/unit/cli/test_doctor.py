from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cornserve.app.spec import AppModel, AppSpec
from cornserve.app_host.sandbox import Protection
from cornserve.cli import doctor_checks
from cornserve.cli.check_result import CheckResult
from cornserve.cli.commands import app
from cornserve.control.launcher.base import ReplicaId
from cornserve.control.launcher.local.process_group import ProcessGroup
from cornserve.control.launcher.local.state_dir import ProcessRecord, StateDir
from cornserve.control.store.base import APPS
from cornserve.control.store.sqlite import SqliteStore
from cornserve.home import Home
from cornserve.instance import Instance
from cornserve.pull_protocol import PullProtocol
from cornserve.task.spec import ExecutorSpec
from cornserve.transport.pull.ucx import UcxFabric
from tests.free_ports import free_port


@pytest.fixture
def cli(tmp_path: Path) -> CliRunner:
    return CliRunner(env={"CORNSERVE_HOME": str(tmp_path), "COLUMNS": "200", "NO_COLOR": "1"})


def check(home: Home, name: str) -> CheckResult:
    results = doctor_checks.run_checks(home, "127.0.0.1", free_port())
    return next(result for result in results if result.name == name)


def test_doctor_runs_all_checks(cli: CliRunner, tmp_path: Path) -> None:
    result = cli.invoke(app, ["doctor", "--port", str(free_port()), "--json"])
    names = [check["name"] for check in json.loads(result.stdout)["checks"]]
    assert names == [
        "Python", "vLLM", "GPUs", "libnuma", "memory", "/dev/shm", "RDMA", "apps", "home", "disk", "store", "instance",
        "port",
    ]  # fmt: skip


def test_a_machine_without_a_device_for_rdma_pulls_tensors_over_tcp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_checks, "rdma_devices", list)

    result = check(Home(tmp_path), "RDMA")

    assert result.ok
    assert "no network device" in result.found


class LibraryForRdma:
    """Stands for UCX on a machine with a device."""

    def __init__(self, *, has_rdma: bool) -> None:
        self.has_rdma = has_rdma

    async def close(self) -> None:
        """Ends nothing."""


@pytest.mark.parametrize(
    ("library", "lockable", "ok", "found"),
    [
        (LibraryForRdma(has_rdma=True), resource.RLIM_INFINITY, True, "uverbs0, uverbs1: UCX uses them"),
        (LibraryForRdma(has_rdma=False), resource.RLIM_INFINITY, False, "UCX has no support for them"),
        (LibraryForRdma(has_rdma=True), 64 << 10, False, "a process can lock 0.0 GiB, and a slab has "),
        (ModuleNotFoundError("No module named 'ucxx'"), resource.RLIM_INFINITY, False, "No module named 'ucxx'"),
        (OSError("UCX does not start"), resource.RLIM_INFINITY, False, "UCX does not start"),
    ],
)
def test_a_device_for_rdma_needs_a_library_that_supports_it_and_lockable_memory(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    library: LibraryForRdma | Exception,
    lockable: int,
    ok: bool,
    found: str,
) -> None:
    async def start() -> LibraryForRdma:
        if isinstance(library, Exception):
            raise library
        return library

    monkeypatch.setattr(doctor_checks, "rdma_devices", lambda: ["uverbs0", "uverbs1"])
    monkeypatch.setattr(UcxFabric, "start", start)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (lockable, lockable))

    result = check(Home(tmp_path), "RDMA")

    assert (result.ok, result.is_essential) == (ok, False)
    assert found in result.found


@pytest.mark.parametrize(
    ("transport", "devices", "library", "ok", "found"),
    [
        ("tcp", ["uverbs0"], None, True, "uverbs0: tensors of other nodes are pulled over TCP"),
        ("auto", [], None, True, "no network device: tensors of other nodes are pulled over TCP"),
        ("ucx", [], None, True, f"no network device: {doctor_checks.UCX_OVER_TCP}"),
        ("ucx", [], OSError("UCX does not start"), False, "no network device: UCX does not start"),
    ],
)
def test_the_protocol_of_the_running_instance_is_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    transport: str,
    devices: list[str],
    library: Exception | None,
    ok: bool,
    found: str,
) -> None:
    async def start() -> LibraryForRdma:
        if library is not None:
            raise library
        return LibraryForRdma(has_rdma=False)

    monkeypatch.setattr(doctor_checks, "rdma_devices", lambda: devices)
    monkeypatch.setattr(UcxFabric, "start", start)
    Instance.of_current_process("http://127.0.0.1:1", transport=PullProtocol(transport)).write(Home(tmp_path))

    result = check(Home(tmp_path), "RDMA")

    assert (result.ok, result.found) == (ok, found)


@pytest.mark.parametrize(("slab_mib", "ok"), [(1024, True), (1025, False)])
def test_the_slab_of_the_running_instance_must_be_lockable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slab_mib: int, ok: bool
) -> None:
    async def start() -> LibraryForRdma:
        return LibraryForRdma(has_rdma=True)

    monkeypatch.setattr(doctor_checks, "rdma_devices", lambda: ["uverbs0"])
    monkeypatch.setattr(UcxFabric, "start", start)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 30, 1 << 30))
    Instance.of_current_process("http://127.0.0.1:1", slab_mib=slab_mib).write(Home(tmp_path))

    assert check(Home(tmp_path), "RDMA").ok is ok


@pytest.mark.parametrize(
    ("protection", "found"),
    [
        (Protection(landlock=7, filters_syscalls=True), ["their code reaches no files and processes"]),
        (Protection(landlock=7, filters_syscalls=False), ["apps can use Unix sockets of other programs"]),
        (Protection(landlock=4, filters_syscalls=True), ["their code reaches no files and processes"]),
        (Protection(landlock=4, filters_syscalls=False), ["Unix sockets", "apps can kill processes of the instance"]),
        (Protection(landlock=0, filters_syscalls=True), ["apps can read the secret, the store and the memory"]),
        (Protection(landlock=0, filters_syscalls=False), ["the secret", "Unix sockets", "apps can kill processes"]),
    ],
)
def test_doctor_says_what_apps_can_reach_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protection: Protection, found: list[str]
) -> None:
    monkeypatch.setattr(Protection, "of_machine", lambda: protection)

    result = check(Home(tmp_path), "apps")

    assert (result.ok, result.is_essential) == (not protection.gaps, False)
    parts = result.found.split("; ")
    assert len(parts) == len(found)
    assert all(words in part for words, part in zip(found, parts, strict=True)), result.found


def test_a_home_that_cannot_be_accessed_is_an_essential_failure(cli: CliRunner) -> None:
    home = Home(Path("/", "a" * 300))

    results = {result.name: result for result in doctor_checks.run_checks(home, "127.0.0.1", free_port())}
    started = cli.invoke(app, ["up", "--home", str(home.path), "--port", str(free_port())])

    assert [name for name in ("home", "instance") if results[name].ok] == []
    assert "File name too long" in results["home"].found
    assert started.stderr.startswith(f"error: cannot read {home.instance}: File name too long: ")


def test_a_port_in_use_is_an_essential_failure_with_a_remedy(cli: CliRunner) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        result = cli.invoke(app, ["doctor", "--port", str(listener.getsockname()[1])])
    assert result.exit_code == 1
    assert "✗ port" in result.stdout
    assert "cornserve up --port" in result.stdout


def test_a_port_of_an_ipv6_address_is_checked(tmp_path: Path) -> None:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with listener:
        port = listener.getsockname()[1]
        used, free = (
            next(result for result in doctor_checks.run_checks(Home(tmp_path), "::1", number) if result.name == "port")
            for number in (port, 0)
        )
    assert (used.ok, free.ok) == (False, True)
    assert used.found.startswith(f"::1:{port}: Address already in use")


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
    Instance(pid=1, started=-100.0, boot="another", url="http://127.0.0.1:1", gateways=[]).write(home)
    result = check(home, "instance")
    assert (result.ok, result.is_essential) == (False, False)
    assert "cornserve up" in result.remedy


def test_a_read_only_home_is_an_essential_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    home = Home(tmp_path / "file" / "home")
    result = check(home, "home")
    assert (result.ok, result.is_essential) == (False, True)


def create_store(home: Home, *names: str) -> None:
    async def create() -> None:
        store = await SqliteStore.open(home.store)
        for name in names:
            await store.create(APPS, name, AppSpec(model=AppModel(id="m")))
        await store.close()

    asyncio.run(create())


def damage_record(home: Home, name: str) -> None:
    with closing(sqlite3.connect(home.store)) as database, database:
        for table in ("records", "changes"):
            database.execute(f"UPDATE {table} SET spec = '{{' WHERE name = ?", (name,))


def test_a_damaged_record_is_reported_and_repaired(cli: CliRunner, tmp_path: Path) -> None:
    home = Home(tmp_path)
    create_store(home, "good", "bad")
    damage_record(home, "bad")
    found = check(home, "store")
    assert not found.ok
    assert "the record of App 'bad' is damaged" in found.found
    assert f"`cornserve doctor --repair --home {tmp_path}`" in found.remedy

    result = cli.invoke(app, ["doctor", "--repair", "--port", str(free_port())])
    assert "kept unchanged: good" in result.stderr
    assert "lost: deploy these apps again: bad" in result.stderr
    assert check(home, "store").ok
    assert "needs a repair" in cli.invoke(app, ["doctor", "--repair", "--port", str(free_port())]).stderr


@pytest.mark.parametrize("content", [b"garbage " * 1000, b""])
def test_a_damaged_store_is_reported_and_set_aside(cli: CliRunner, tmp_path: Path, content: bytes) -> None:
    home = Home(tmp_path)
    home.store.write_bytes(content)
    assert not check(home, "store").ok
    result = cli.invoke(app, ["doctor", "--repair", "--port", str(free_port())])
    [aside] = tmp_path.glob("state.db.damaged-*")
    assert aside.read_bytes() == content
    assert str(aside) in result.stderr
    assert check(home, "store").ok


def test_a_store_of_another_program_is_not_repaired(cli: CliRunner, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "state.db")) as database:
        database.execute("CREATE TABLE bookmarks (url TEXT)")
    result = cli.invoke(app, ["doctor", "--repair", "--port", str(free_port())])
    assert result.exit_code == 1
    assert "a database of another program" in result.stderr
    assert not list(tmp_path.glob("*.damaged-*"))


def test_a_damaged_instance_file_is_set_aside(cli: CliRunner, tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.instance.write_text("}")
    assert "instance.json is damaged" in check(home, "instance").found
    cli.invoke(app, ["doctor", "--repair", "--port", str(free_port())])
    assert check(home, "instance").ok
    [aside] = tmp_path.glob("instance.json.damaged-*")
    assert aside.read_text() == "}"


def test_down_with_a_damaged_store_keeps_the_store(cli: CliRunner, tmp_path: Path) -> None:
    Home(tmp_path).store.write_bytes(b"garbage " * 1000)
    result = cli.invoke(app, ["down"])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: all processes have stopped, but the apps are not deleted: the store ")
    assert "cornserve doctor --repair" in result.stderr
    assert (tmp_path / "state.db").exists()


def test_down_deletes_apps_with_damaged_records(cli: CliRunner, tmp_path: Path) -> None:
    create_store(Home(tmp_path), "good", "bad")
    damage_record(Home(tmp_path), "bad")
    assert "Deleted: good, bad" in cli.invoke(app, ["down"]).stdout


def test_down_can_keep_the_apps(cli: CliRunner, tmp_path: Path) -> None:
    create_store(Home(tmp_path), "good")
    assert "Deleted" not in cli.invoke(app, ["down", "--keep-apps"]).stdout
    assert "Deleted: good" in cli.invoke(app, ["down"]).stdout


@pytest.mark.parametrize("content", [b"garbage " * 1000, b""])
def test_up_with_a_damaged_store_names_the_command_that_repairs_it(
    cli: CliRunner, tmp_path: Path, content: bytes
) -> None:
    Home(tmp_path).store.write_bytes(content)
    result = cli.invoke(app, ["up", "--port", str(free_port())])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: the store {tmp_path}/state.db is damaged: ")
    assert f"run `cornserve doctor --repair --home {tmp_path}`" in result.stderr


def test_the_slots_of_the_instance_are_shown_with_those_that_are_free(cli: CliRunner, tmp_path: Path) -> None:
    home = Home(tmp_path)
    Instance.of_current_process("http://127.0.0.1:1", slots=["small=2", "big=1x1cores@0.5"]).write(home)
    directory = StateDir(home.replicas).create_replica_dir(ReplicaId("echo-1"))
    group = ProcessGroup.from_pid(os.getpid(), replica=directory.id)
    directory.write_process(ProcessRecord(spec=ExecutorSpec(executor="echo"), slots=("small-0",), process_group=group))
    result = cli.invoke(app, ["doctor"])
    assert "small: 1 of 2 free (cores " in result.stdout
    assert "0.5 dollars/hour each)" in result.stdout


def test_slots_exclude_other_limits_of_slots_and_name_the_wrong_text(cli: CliRunner) -> None:
    assert "remove them" in cli.invoke(app, ["up", "--slots", "small=1", "--gpus", "2"]).stderr
    assert "'small' is not a slot type" in cli.invoke(app, ["up", "--slots", "small"]).stderr


def test_a_wrong_price_of_gpus_is_refused(cli: CliRunner) -> None:
    assert "'cheap' is not a price" in cli.invoke(app, ["up", "--gpu-price", "cheap"]).stderr
    twice = cli.invoke(app, ["up", "--slots", "small=1@0.5", "--gpu-price", "small=2"])
    assert "the price of the type small is given more than once" in twice.stderr


def test_a_store_that_has_lost_the_deployed_apps_is_reported_with_the_way_back(cli: CliRunner, tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.apps_file.write_text('{"apps": {"a": {"model": "m/m"}}}')

    result = check(home, "store")

    assert not result.ok
    assert "has no apps, but these were deployed: a" in result.found
    assert f"cornserve import {home.apps_file}" in result.remedy
