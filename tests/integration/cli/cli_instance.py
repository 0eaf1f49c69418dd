"""An instance of Cornserve that tests start and control through the command line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psutil

from cornserve.client import Client, ClientError
from cornserve.control.launcher.local.state_dir import StateDir
from cornserve.home import Home
from tests.waiting import wait_until

COMMAND_SECONDS = 100

SLAB_MIB = 64
"""The shared memory of an executor for tensors. The default takes gigabytes from tests that run at the same time."""
SMALL_SLAB = ("--limit", f"slab-mib={SLAB_MIB}")
SMALL_KV_CACHE = ("--option", f"llm.kv_cache_memory_bytes={64 << 20}")
"""The option of `cornserve deploy` for a tiny model. The default takes a gigabyte for each engine."""


@dataclass(frozen=True, slots=True)
class CliInstance:
    home: Home

    @property
    def url(self) -> str:
        url: str = json.loads(self.home.instance.read_text())["url"]
        return url

    @property
    def pid(self) -> int:
        """The process id of the supervisor."""
        pid: int = json.loads(self.home.instance.read_text())["pid"]
        return pid

    @contextmanager
    def start(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Starts a command with piped output. Kills it at the end of the block if it still runs."""
        with subprocess.Popen(
            [sys.executable, "-m", "cornserve.cli", *arguments],
            env=_environment(self.home),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=COMMAND_SECONDS)
            return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def do(self, *arguments: str) -> str:
        """Runs a command that must succeed. Returns its standard output."""
        completed = self.run(*arguments)
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.do(*arguments, "--json"))

    def up(self, *options: str, cpu_slots: int = 4, slab_mib: int = SLAB_MIB) -> None:
        memory = ("--limit", f"slab-mib={slab_mib}")
        self.do("up", "--detach", "--port", "0", "--cpu-slots", str(cpu_slots), *memory, *options)

    def deploy(self, app: str, *, replicas: int | None = None) -> None:
        """Deploys a file or the source of an app, and waits until all replicas are ready and all gateways serve it.

        Starts no command, which takes most of a second.
        """
        with Client(self.url) as client:
            name = client.deploy(app, replicas=replicas).name
            wait_until(lambda: client.app(name).is_scaled)
        wait_until(lambda: all(_serves(gateway, name) for gateway in self.gateway_addresses()))

    def gateway_addresses(self) -> list[str]:
        """Returns a `host:port` for each gateway, which accepts requests like the common port."""
        targets = httpx.get(f"{self.url}/admin/v1/metrics/targets", trust_env=False).json()
        [gateways] = [target["targets"] for target in targets if target["labels"]["component"] == "gateway"]
        return list(gateways)

    def responds(self, app: str, text: str = "hello") -> bool:
        """Returns whether an app echoes the text."""
        try:
            with Client(self.url, retries=0) as client:
                return text in client.invoke(app, {"text": text})["text"]
        except ClientError:
            return False

    def delete_apps(self) -> None:
        """Deletes all apps, and waits until their executors have ended."""
        with Client(self.url) as client:
            for app in client.apps():
                client.delete(app.name)
        wait_until(lambda: not self.processes("cornserve_executors.base"))

    def processes(self, module: str | None = None) -> list[psutil.Process]:
        """Returns the processes of this instance, or those that run `module`. All have the home in their arguments."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):  # raised for zombies
                arguments = process.cmdline()
                ours = any(
                    argument == str(self.home.path) or argument.startswith(f"{self.home.path}/")
                    for argument in arguments
                )
                if ours and (module is None or module in arguments):
                    found.append(process)
        return found

    def kill_everything(self) -> None:
        """Kills all processes at once, like a power failure."""
        for process in self.processes():
            process.send_signal(signal.SIGSTOP)  # Prevents reactions to the exit of another process.
        for process in self.processes():
            process.kill()
        psutil.wait_procs(self.processes(), timeout=20)

    def remove(self) -> None:
        """Kills all processes, and removes what they leave outside the home. Faster than `cornserve down`."""
        engines = [child for executor in self.processes() for child in _descendants(executor)]
        self.kill_everything()
        for engine in engines:
            with suppress(psutil.NoSuchProcess):
                engine.kill()
        shutil.rmtree(StateDir(self.home.replicas).segments, ignore_errors=True)


def _serves(gateway: str, app: str) -> bool:
    try:
        return httpx.get(f"http://{gateway}/v1/models/{app}", trust_env=False).is_success
    except httpx.TransportError:  # A gateway that another test has killed starts again.
        return False


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _environment(home: Home) -> dict[str, str]:
    variables = {"CORNSERVE_HOME": str(home.path), "COLUMNS": "200", "NO_COLOR": "1"}
    return {name: value for name, value in os.environ.items() if not name.startswith("CORNSERVE_")} | variables


def write_app(
    directory: Path, name: str, *, prefix: str = "", start_seconds: float = 0, fail_start: str | None = None
) -> str:
    """Writes the file of an app that echoes its requests. Returns its path."""
    file = directory / f"{name}.py"
    file.write_text(f"""\
from cornserve import App
from cornserve_echo import EchoTask

app = App(name={name!r}, paths=[EchoTask(prefix={prefix!r}, start_seconds={start_seconds}, fail_start={fail_start!r})])
""")
    return str(file)
