"""Full disks, read-only homes and damaged files of a running instance."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from cornserve.home import Home
from tests.integration.cli.cli_instance import CliInstance, write_app
from tests.waiting import until

pytestmark = pytest.mark.chaos

INVOCATION = ("invoke", "echo", '{"text": "hello"}')


@contextmanager
def mounted(directory: Path, *arguments: str) -> Iterator[None]:
    directory.mkdir(exist_ok=True)
    mounting = subprocess.run(["mount", *arguments, str(directory)], capture_output=True, text=True, check=False)
    if mounting.returncode:
        pytest.skip(f"file systems cannot be mounted here: {mounting.stderr}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[CliInstance]:
    """An instance with its home on a small file system."""
    directory = tmp_path / "disk"
    with mounted(directory, "-t", "tmpfs", "-o", "size=8m", "none"):
        instance = CliInstance(Home(directory / "home"))
        try:
            yield instance
        finally:
            instance.remove()


def fill(directory: Path) -> Path:
    """Writes a file until the disk is full."""
    filler = directory / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
    return filler


@pytest.mark.slow
async def test_with_a_full_disk_dead_replicas_are_reported_and_service_resumes_when_space_is_freed(
    instance: CliInstance, tmp_path: Path
) -> None:
    def app() -> dict[str, Any]:
        found: dict[str, Any] = instance.json("status", "echo")
        return found

    def ready() -> int:
        return sum(replica["state"] == "ready" for group in app()["status"]["groups"] for replica in group["replicas"])

    def refused() -> subprocess.CompletedProcess[str]:
        refused = instance.run(*INVOCATION)
        assert refused.returncode == 1
        assert "Traceback" not in refused.stderr
        return refused

    instance.up()
    instance.deploy(write_app(tmp_path, "echo"))
    filler = fill(instance.home.path)
    assert instance.json(*INVOCATION)["text"] == "hello"
    doctor = instance.run("doctor", "--port", "1")
    assert doctor.returncode == 1
    assert re.search(rf"home +{re.escape(str(instance.home.path))}: No space left on device", doctor.stdout)

    for executor in instance.processes("cornserve_executors.base"):
        executor.kill()
    await until(lambda: ready() == 0)
    assert app()["status"]["phase"] == "starting"
    begin = monotonic()
    assert f"on the disk {tmp_path / 'disk'}: No space left on device" in "".join(refused().stderr.splitlines())
    assert monotonic() - begin < 8

    filler.unlink()
    await until(lambda: instance.run(*INVOCATION).returncode == 0, seconds=20)
    await until(lambda: ready() == 1)


def test_up_on_a_full_disk_names_the_remedy(instance: CliInstance) -> None:
    instance.home.path.mkdir()
    fill(instance.home.path)
    for arguments in (["up", "--port", "0"], ["up", "--port", "0", "--detach"], ["doctor", "--repair"]):
        refused = instance.run(*arguments)
        assert refused.returncode == 1
        assert "Traceback" not in refused.stderr
        assert "No space left on device" in refused.stdout + refused.stderr, arguments


@pytest.mark.parametrize("has_store", [pytest.param(True, marks=pytest.mark.slow), False])
def test_commands_on_a_read_only_home_say_so(tmp_path: Path, has_store: bool) -> None:
    home = Home(tmp_path / "home")
    instance = CliInstance(home)
    home.path.mkdir()
    if has_store:
        instance.up()
        instance.do("down", "--keep-apps")
    with mounted(home.path, "--bind", "-o", "ro", str(home.path)):
        for arguments in (["up", "--port", "0"], ["up", "--port", "0", "--detach"], ["down"], ["doctor"]):
            refused = instance.run(*arguments)
            assert refused.returncode == 1, arguments
            assert "Read-only file system" in refused.stdout + refused.stderr, arguments
            assert "Traceback" not in refused.stderr
        assert "Traceback" not in instance.run("status").stderr


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"garbage " * 4000, b""])
async def test_a_store_that_is_overwritten_while_the_instance_runs_is_written_again(
    new_instance: Callable[[], CliInstance], tmp_path: Path, content: bytes
) -> None:
    instance = new_instance()
    instance.up()
    instance.deploy(write_app(tmp_path, "echo"))
    services = instance.processes("cornserve.gateway") + instance.processes("cornserve.control")
    delete_store(instance.home)
    instance.home.store.write_bytes(content)

    await until(lambda: "echo" in instance.run("status").stdout)
    assert instance.json(*INVOCATION)["text"] == "hello"
    assert "was lost" in (instance.home.logs / "controller.log").read_text()
    assert all(process.is_running() for process in services)
    instance.do("deploy", write_app(tmp_path, "again"))


@pytest.mark.slow
async def test_up_with_a_store_that_was_deleted_names_the_apps_and_the_way_back(
    new_instance: Callable[[], CliInstance], tmp_path: Path
) -> None:
    instance = new_instance()
    instance.up()
    instance.deploy(write_app(tmp_path, "echo"))
    instance.do("down", "--keep-apps")
    delete_store(instance.home)
    started = instance.run("up", "--detach", "--port", "0")
    assert "were deployed in this home: echo: deploy them again with" in " ".join(started.stderr.split())
    [lost] = instance.home.path.glob("apps.json.lost-*")
    instance.do("import", str(lost))
    await until(lambda: instance.responds("echo"))
    instance.do("down")
    assert "deployed in this home" not in instance.run("up", "--detach", "--port", "0").stderr


def delete_store(home: Home) -> None:
    for file in home.path.glob(f"{home.store.name}*"):
        file.unlink()
