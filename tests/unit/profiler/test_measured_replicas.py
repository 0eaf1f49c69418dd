"""The replicas that are measured together, and their memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cornserve.app.graph_recording import record_graph
from cornserve.app.spec import AppSource, AppSpec
from cornserve.client import Client
from cornserve.control.launcher.base import SlotCount
from cornserve.home import Home
from cornserve.profiler import memory_need
from cornserve.profiler.app_measurement import PLAN_PRECISION, AppMeasurement, MeasuredApp
from cornserve.profiler.device import Device
from cornserve.profiler.memory_need import PROCESS_BYTES
from cornserve.profiler.option_mixes import measured_options
from cornserve.profiler.profiler import MeasuredReplicas, Profiler
from cornserve_echo.stages import caption_app

SLOTS = Device("small", "CPU", "6.1", slots=SlotCount("slot", 8, 5))


@pytest.fixture
def client() -> Iterator[Client]:
    with Client("http://127.0.0.1:1") as client:
        yield client


def available(monkeypatch: pytest.MonkeyPatch, processes: float) -> None:
    """Makes the memory of this number of processes available."""
    monkeypatch.setattr(memory_need, "memory_limit_bytes", lambda: 0)
    monkeypatch.setattr(memory_need, "available_memory_bytes", lambda: int(processes * PROCESS_BYTES))


def measurement(client: Client, home: Path, device: Device) -> AppMeasurement:
    app = caption_app("caption", encoder=0.1, llm=0.1)
    graph = record_graph(app)
    assert graph is not None
    measured = MeasuredApp(AppSpec(source=AppSource(inline="…")), app, graph)
    profiler = Profiler(client, Home(home), measured.profiled, device, PLAN_PRECISION, lambda *_: None)
    return AppMeasurement(profiler, measured_options(app, graph, measured.probes, ()))


def test_the_memory_limits_the_replicas_besides_their_sources(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = measurement(client, tmp_path, SLOTS)
    items = found.items(600)

    available(monkeypatch, 4.5)
    replicas = MeasuredReplicas(3, 4 * PROCESS_BYTES)  # One process is the source that replaces the other stage.
    assert found.replicas(items) == dict.fromkeys(("encoder", "encoder+llm", "llm"), replicas)
    assert found.describe_work(items, 600).endswith(", about 0.5 GiB of memory")
    available(monkeypatch, 100)
    assert {replicas.count for replicas in found.replicas(items).values()} == {5}


def test_the_memory_of_a_cluster_is_not_that_of_this_machine(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    available(monkeypatch, 0)
    found = measurement(client, tmp_path, Device.of_cluster(None, "a cluster"))
    items = found.items(600)

    assert {*found.replicas(items).values()} == {MeasuredReplicas(1, None)}
    assert "memory" not in found.describe_work(items, 600)
