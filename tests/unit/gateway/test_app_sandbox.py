"""The code of an app reaches no files and no processes of the instance, nor those of other apps."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.sandbox import require_sandbox
from tests.unit.gateway.app_hosts import app_hosts
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.sources import ECHO

EVALUATE = """
import ctypes, os, resource, shutil, signal, socket, subprocess, tempfile, urllib.request
from pathlib import Path

from pydantic import BaseModel

from cornserve import App, Task
from cornserve_echo import EchoTask

class Code(BaseModel):
    code: str

class Value(BaseModel):
    value: str

class Evaluate(Task[Code, Value]):
    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: Code) -> Value:
        return Value(value=str(eval(request.code)))

app = App(name="{name}", paths=[Evaluate()])
"""


@pytest.fixture(autouse=True)
def _sandbox() -> None:
    require_sandbox()


async def evaluate(gateway: httpx.AsyncClient, code: str, app: str = "curious") -> str:
    """Returns the value of an expression that the app evaluates, or the message of the response's error."""
    body = (await gateway.post(f"/v1/apps/{app}/invoke", json={"code": code})).json()
    return str(body["error"]["message"] if "error" in body else body["value"])


async def deploy_without_paths(deploy: Deploy, *names: str) -> None:
    for name in names:
        await deploy(EVALUATE.format(name=name), allow_paths=())


async def other_processes(gateway: httpx.AsyncClient) -> list[int]:
    """Returns the pids of the gateway, of its fork server, and of the hosts of the other apps."""
    own = int(await evaluate(gateway, "os.getpid()"))
    hosts = app_hosts()
    (server,) = {host.ppid() for host in hosts}
    others = [host.pid for host in hosts if host.pid != own]
    assert others
    return [os.getpid(), server, *others]


async def test_files_of_the_instance_are_refused_and_the_error_names_the_file_and_the_option(
    gateway: httpx.AsyncClient, deploy: Deploy, tmp_path: Path
) -> None:
    await deploy_without_paths(deploy, "curious")
    for name in ("secret", "state.db", "other-home/secret", "logs/gateway.log"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("a secret of the instance")
        file.chmod(0o600)

        for code in (f"open({str(file)!r}).read()", f"open({str(file)!r}, 'r+')", f"os.truncate({str(file)!r}, 0)"):
            message = await evaluate(gateway, code)

            assert f"PermissionError: [Errno 13] Permission denied: {str(file)!r}: an app may use only" in message
            assert "`cornserve deploy --allow-path` (app 'curious', task Evaluate, app.py:21 in invoke)" in message
        change = f"ctypes.CDLL(None).chmod({str(file)!r}.encode(), 0)"
        assert await evaluate(gateway, change) == "-1"
        for code in (f"os.chmod({str(file)!r}, 0)", f"os.chown({str(file)!r}, 1, 1)"):
            assert "PermissionError" in await evaluate(gateway, code)
        assert "Permission denied" in await evaluate(gateway, f"os.listdir({str(file.parent)!r})")
        assert "Permission denied" in await evaluate(gateway, f"os.remove({str(file)!r})")
        child = f"subprocess.run(['cat', {str(file)!r}], capture_output=True, text=True)"
        assert "stdout='', stderr=" in await evaluate(gateway, child)
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.read_text() == "a secret of the instance"


async def test_files_of_another_app_are_refused(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy_without_paths(deploy, "curious", "careful")
    directory = await evaluate(gateway, "tempfile.gettempdir()", app="careful")
    own = await evaluate(gateway, "Path(tempfile.gettempdir(), 'note').write_text('mine') and 'written'", app="careful")

    message = await evaluate(gateway, f"open('{directory}/note').read()")

    assert own == "written"
    assert f"Permission denied: '{directory}/note'" in message
    assert await evaluate(gateway, f"open('{directory}/note').read()", app="careful") == "mine"


async def test_memory_and_environment_of_other_processes_are_refused(
    gateway: httpx.AsyncClient, deploy: Deploy
) -> None:
    await deploy_without_paths(deploy, "curious", "careful")

    for pid in await other_processes(gateway):
        for file in ("mem", "environ", "maps", "fd/0"):
            assert "Permission" in await evaluate(gateway, f"open('/proc/{pid}/{file}', 'rb').read(1)"), (pid, file)
        assert "Permission" in await evaluate(gateway, f"open('/proc/{pid}/oom_score_adj', 'w')")
        attach = f"ctypes.CDLL(None, use_errno=True).ptrace(16, {pid}, 0, 0)"
        assert await evaluate(gateway, attach) == "-1"


async def test_signals_to_other_processes_are_refused(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy_without_paths(deploy, "curious", "careful")

    for pid in await other_processes(gateway):
        for code in (f"os.kill({pid}, 0)", f"signal.pidfd_send_signal(os.pidfd_open({pid}), 0)"):
            message = await evaluate(gateway, code)

            assert "PermissionError: [Errno 1] Operation not permitted: an app may signal and change only" in message
            assert "(app 'curious', task Evaluate, app.py:21 in invoke)" in message
        thread = f"ctypes.CDLL(None).syscall(234, {pid}, {pid}, 0)"
        assert await evaluate(gateway, thread) == "-1"


async def test_limits_and_priorities_of_other_processes_cannot_be_changed(
    gateway: httpx.AsyncClient, deploy: Deploy
) -> None:
    await deploy_without_paths(deploy, "curious", "careful")
    *_, pid = await other_processes(gateway)

    for code in (
        f"resource.prlimit({pid}, resource.RLIMIT_CPU, (0, 0))",
        f"os.setpriority(os.PRIO_PROCESS, {pid}, 19)",
        "os.setpriority(os.PRIO_USER, 0, 19)",
        f"os.sched_setaffinity({pid}, {{0}})",
        f"os.sched_setscheduler({pid}, os.SCHED_IDLE, os.sched_param(0))",
    ):
        assert "[Errno 1] Operation not permitted" in await evaluate(gateway, code), code


async def test_unix_sockets_are_refused_and_the_internet_is_not(
    gateway: httpx.AsyncClient, deploy: Deploy, tmp_path: Path
) -> None:
    await deploy_without_paths(deploy, "curious")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))

        refused = await evaluate(gateway, f"socket.socket(socket.AF_UNIX).connect({str(tmp_path / 'socket')!r})")

    assert "connect only to Internet addresses" in refused
    fetch = f"urllib.request.urlopen('http://localhost:{gateway.base_url.port}/nowhere')"
    assert "HTTP Error 404" in await evaluate(gateway, fetch)


async def test_an_app_uses_its_allowed_paths_its_temporary_files_and_its_own_processes(
    gateway: httpx.AsyncClient, deploy: Deploy, tmp_path: Path
) -> None:
    await deploy(EVALUATE.format(name="curious"), allow_paths=[str(tmp_path)])

    file = tmp_path / "directory" / "file"
    assert await evaluate(gateway, f"Path({str(file.parent)!r}).mkdir(exist_ok=True)") == "None"
    assert await evaluate(gateway, f"Path({str(file)!r}).write_text('written')") == "7"
    assert file.read_text() == "written"
    copied = f"shutil.copy2({str(file)!r}, tempfile.gettempdir()) and os.chmod({str(file)!r}, 0o640)"
    assert await evaluate(gateway, copied) == "None"
    assert file.stat().st_mode & 0o777 == 0o640
    assert await evaluate(gateway, "tempfile.TemporaryFile().write(b'temporary')") == "9"
    child = "(child := subprocess.Popen(['sleep', '600'])).kill() or child.wait()"
    assert await evaluate(gateway, child) == "-9"
    assert await evaluate(gateway, "os.kill(os.getpid(), 0)") == "None"


async def test_an_app_that_kills_all_that_it_can_ends_no_other_app(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy_without_paths(deploy, "curious")
    await deploy(ECHO)
    before = {host.pid for host in app_hosts()}

    for code in ("os.kill(os.getppid(), 9)", "os.kill(-1, 9)", "os.killpg(os.getpgid(os.getppid()), 9)"):
        await evaluate(gateway, code)
        assert (await gateway.post("/v1/apps/echo/invoke", json={"text": "a"})).status_code == 200

    assert {host.pid for host in app_hosts()} == before
