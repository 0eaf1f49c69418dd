"""Tests of loading apps in real hosts. No app disturbs the fork server, which all tests share."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from threading import Event

import pytest

from cornserve.app.spec import AppSource, AppSpec
from cornserve.app_host import host_process
from cornserve.app_host.app_host import AppHost
from cornserve.app_host.description import AppDescription
from cornserve.app_host.errors import AppLoadError
from cornserve.app_host.fork_client import ForkServer
from cornserve.limits import Limits
from cornserve.task.errors import DefinitionError
from tests.loop_clock import LoopClock
from tests.sandbox import require_sandbox
from tests.unit.app_host.apps import (
    C_CALL_WITH_LOCK,
    CATASTROPHIC_REGEX,
    CRASH,
    ENDLESS_LOOP,
    MANY_THREADS,
    ONE_GIB,
    SLEEP,
    TEST_FILES,
    announced,
)
from tests.unit.gateway.sources import ECHO
from tests.waiting import until


async def load(fork_server: ForkServer, source: str, limits: Limits | None = None) -> AppDescription:
    spec = AppSpec(source=AppSource(inline=source, allow_paths=TEST_FILES))
    host = await AppHost.start(fork_server, "echo", spec, "app_of_the_test", limits or Limits())
    host.close()
    return host.description


async def test_a_host_describes_its_app(fork_server: ForkServer) -> None:
    description = await load(fork_server, ECHO)

    assert (description.name, description.paths) == ("echo", ["Echo"])
    assert [spec.executor for spec in description.executor_specs.values()] == ["echo"]


CAPTIONS = """
from cornserve import App
from cornserve_echo.stages import Caption, CaptionRequest, StageTask

encode, generate = StageTask(seconds={"encoder": 1}), StageTask(seconds={"llm": 1})
app = App(name="echo", paths=[Caption(llm=generate, encoder=encode), SECOND], probes=[CaptionRequest(images=1)])
"""


async def test_a_host_records_the_executor_graph_of_its_app(fork_server: ForkServer) -> None:
    description = await load(fork_server, CAPTIONS.replace("SECOND", "Caption(llm=generate, encoder=encode)"))

    assert description.graph is not None
    assert description.graph.types == {"encoder+llm": ("encoder", "llm")}


async def test_paths_that_are_not_alternatives_are_refused(fork_server: ForkServer) -> None:
    source = CAPTIONS.replace("SECOND", "Caption(llm=generate)")

    with pytest.raises(
        DefinitionError, match=r"path 2 \(Caption\) .* of the type encoder\+llm.*unknown components encoder"
    ):
        await load(fork_server, source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = (", r"app.py:1: SyntaxError"),
        ("import os\nos._exit(3)", r"app.py:2: SystemExit: 3"),
        ("import sys\nsys.exit(3)", r"app.py:2: SystemExit: 3"),
        ("import os\nos.fork()", r"app.py:2: RuntimeError: an app's code cannot fork its process"),
        ("import os\nos.abort()", r"app.py:2 in <module>: the app's process was killed by SIGABRT"),
        ("import posix\nposix._exit(4)", r"the app's process exited with status 4"),
        (CRASH, r"app.py:2 in <module>: the app's process was killed by SIGSEGV"),
        (ONE_GIB, r"app.py:1: MemoryError \(limit app-mib=1024, see `cornserve up --limit`\)"),
        (MANY_THREADS, r"app.py:2: RuntimeError: can't start new thread \(limit app-mib=1024"),
        ("def f(): f()\nf()", r"app.py:1: RecursionError"),
        (ECHO.replace('name="echo"', 'name="other"'), "the source defines the app 'other', but is deployed as 'echo'"),
        (
            ECHO.replace("EchoTask()", "Exiting()").replace(
                "class Echo(",
                "class Exiting(EchoTask):\n    def executor_spec(self): raise SystemExit(3)\n\nclass Echo(",
            ),
            r"the app exits when it is loaded: SystemExit\(3\)",
        ),
    ],
)
async def test_an_app_that_cannot_be_imported_is_rejected_with_the_reason(
    fork_server: ForkServer, source: str, message: str
) -> None:
    with pytest.raises(DefinitionError, match=message):
        await load(fork_server, source)

    assert (await load(fork_server, ECHO)).paths == ["Echo"]


@pytest.mark.parametrize(
    ("source", "location"),
    [
        (ENDLESS_LOOP, "app.py:3 in wait"),
        (SLEEP, "app.py:3 in <module>"),
        (CATASTROPHIC_REGEX, "app.py:3 in <module>"),
        (C_CALL_WITH_LOCK, "app.py:3 in <module>"),
    ],
)
async def test_an_import_that_hangs_is_rejected_with_its_line(
    fork_server: ForkServer,
    tmp_path: Path,
    clock: LoopClock,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    location: str,
) -> None:
    monkeypatch.setattr(host_process, "TRACE_SECONDS", 30)  # On a busy machine, the process may need so long.
    begins = tmp_path / "begins"
    loading = asyncio.create_task(load(fork_server, announced(source, begins)))
    await until(begins.exists)

    await clock.advance_by(50)  # Not further: the process writes its location in real time.
    with pytest.raises(
        DefinitionError, match=rf"{location}: importing the app takes longer than 50 s \(limit import-seconds=50,"
    ):
        await loading


async def test_an_import_that_hangs_does_not_delay_other_apps(
    fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = [asyncio.create_task(load(fork_server, ENDLESS_LOOP)) for _ in range(3)]

    await asyncio.gather(*(load(fork_server, ECHO) for _ in range(3)))

    assert not any(task.done() for task in hanging)
    for task in hanging:
        task.cancel()
    await asyncio.wait(hanging)


async def test_memory_is_limited_per_app(fork_server: ForkServer) -> None:
    source = f"data = bytearray(100 << 20)\n{ECHO}"

    assert (await load(fork_server, source, Limits(app_mib=200))).paths == ["Echo"]
    with pytest.raises(DefinitionError, match=r"app.py:1: MemoryError \(limit app-mib=50"):
        await load(fork_server, source, Limits(app_mib=50))


async def test_an_app_can_run_an_event_loop_when_it_is_imported(fork_server: ForkServer) -> None:
    source = f"import asyncio\nasyncio.run(asyncio.sleep(0))\n{ECHO}"

    assert (await load(fork_server, source)).paths == ["Echo"]


KILLED_AT_FIRST = """
import os, pathlib
mark = pathlib.Path({mark!r})
if not mark.exists():
    mark.touch()
    os.kill(os.getpid(), 9)
"""


async def test_a_host_that_is_killed_while_it_loads_is_replaced_once(fork_server: ForkServer, tmp_path: Path) -> None:
    killed_at_first = KILLED_AT_FIRST.format(mark=str(tmp_path / "mark"))

    assert (await load(fork_server, killed_at_first + ECHO)).paths == ["Echo"]
    with pytest.raises(AppLoadError, match="the app's process was killed by SIGKILL"):
        await load(fork_server, "import os\nos.kill(os.getpid(), 9)")


async def test_a_file_that_an_app_may_not_read_at_its_import_is_named_with_its_line(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    require_sandbox()
    (secret := tmp_path / "secret").write_text("secret")
    spec = AppSpec(source=AppSource(inline=f"\nopen({str(secret)!r})\n{ECHO}"))

    with pytest.raises(DefinitionError, match=r"app.py:2: PermissionError: .*/secret': an app may use only its own"):
        await AppHost.start(fork_server, "echo", spec, "app_of_the_test", Limits())


async def test_an_allowed_path_that_does_not_exist_is_refused(fork_server: ForkServer) -> None:
    spec = AppSpec(source=AppSource(inline=ECHO, allow_paths=["/data/nowhere"]))

    with pytest.raises(DefinitionError, match="allow_paths: /data/nowhere does not exist where the gateway runs"):
        await AppHost.start(fork_server, "echo", spec, "app_of_the_test", Limits())


async def test_an_allowed_path_whose_file_system_hangs_has_a_time_limit(
    fork_server: ForkServer, clock: LoopClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    exists, responds = os.path.exists, Event()
    monkeypatch.setattr(os.path, "exists", lambda path: responds.wait() if path == "/data/hangs" else exists(path))
    spec = AppSpec(source=AppSource(inline=ECHO, allow_paths=["/data/hangs"]))

    with pytest.raises(AppLoadError, match="allow_paths: the file system of /data/hangs has not responded within 50 s"):
        await clock.advance_during(AppHost.start(fork_server, "echo", spec, "app_of_the_test", Limits()), step=10)

    responds.set()


async def test_an_error_of_a_task_s_code_can_be_temporary(fork_server: ForkServer) -> None:
    failing = "class Failing(EchoTask):\n    def executor_spec(self): raise OSError('no network')\n\nclass Echo("
    source = ECHO.replace("EchoTask()", "Failing()").replace("class Echo(", failing)

    with pytest.raises(AppLoadError, match="OSError: no network"):
        await load(fork_server, source)
