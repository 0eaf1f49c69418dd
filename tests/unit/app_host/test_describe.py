from __future__ import annotations

import asyncio
import json
import sys
import threading
from pathlib import Path

import pytest

from cornserve.app.spec import AppModel, AppSource, AppSpec
from cornserve.app_host import describe
from cornserve.app_host.describe import describe_app
from cornserve.app_host.fork_client import ForkServer
from cornserve.limits import Limits
from cornserve.task.errors import DefinitionError
from tests.loop_clock import LoopClock
from tests.unit.gateway.sources import ECHO


async def test_the_code_of_a_described_app_does_not_run_in_this_process(fork_server: ForkServer) -> None:
    source = f"import sys\nsys.modules['imported_by_the_describe_test'] = sys\n{ECHO}"

    assert (await describe_app(fork_server, Limits(), "echo", AppSpec(source=AppSource(inline=source)))).paths == [
        "Echo"
    ]
    assert "imported_by_the_describe_test" not in sys.modules


async def test_a_model_needs_no_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    fork_server = ForkServer()

    description = await describe_app(fork_server, Limits(), "llama", AppSpec(model=AppModel(id=str(tmp_path))))

    assert (description.paths, description.library_paths is None) == (["Chat"], False)
    await fork_server.close()


async def test_a_model_directory_that_hangs_is_reported(monkeypatch: pytest.MonkeyPatch, clock: LoopClock) -> None:
    never = threading.Event()
    monkeypatch.setattr(describe, "load_app", lambda *_: never.wait())
    reading = asyncio.create_task(
        describe_app(ForkServer(), Limits(), "far", AppSpec(model=AppModel(id="/models/far")))
    )
    await asyncio.sleep(0)

    clock.advance(Limits().import_seconds)

    with pytest.raises(DefinitionError, match=r"reading the files of /models/far takes longer than 50 s"):
        await reading
    never.set()
