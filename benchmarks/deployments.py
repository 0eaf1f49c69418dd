#!/usr/bin/env python3
"""Measures how changes of other apps affect the latency of an app.

An app receives Poisson traffic, first alone, then while other apps are deployed, fail to start, change their plans and
are deleted, one after the other, and then alone again. At the end, only its executor must run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import count, cycle, repeat
from pathlib import Path
from random import Random
from time import monotonic

from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.report import create_table, print_report
from benchmarks.harness.slot_instance import SlotInstance
from cornserve.app.plan import AppPlan
from cornserve.app.spec import AppSource, AppSpec
from cornserve.bench.percentiles import percentile
from cornserve.bench.timed_client import TimedClient
from cornserve.client import Client, ClientError, calls
from cornserve.profiler.loads import LoadDriver

RATE = 50.0
"""Requests per second of the app that is measured."""


@dataclass(frozen=True, slots=True)
class PhaseRow:
    changes: str
    completed: int
    """The number of changes that completed."""
    requests: int
    p50_ms: float
    p99_ms: float
    ratio: float
    """The 99th percentile, relative to that of the first phase."""


def echo_app(name: str, *, fails: bool = False) -> AppSpec:
    """Returns an app whose executor is its own."""
    settings = f"prefix={name!r}, fail_start={'broken' if fails else None!r}"
    return AppSpec(
        source=AppSource(
            inline=f"""
from cornserve import App
from cornserve_echo import EchoTask

app = App(name={name!r}, paths=[EchoTask({settings})])
"""
        )
    )


def planned_app(cells: int) -> AppSpec:
    """Returns an app with a plan that runs cells of one slot each."""
    source = """
from cornserve_echo.stages import caption_app

app = caption_app("planned", encoder=0.01, llm=0.01)
"""
    path = {"steps": [{"option": "monolith", "components": ["llm"]}]}
    settings = {"seconds": {"encoder": 0.01, "llm": 0.01}}
    plan = {
        "options": {"monolith": {"task": "StageTask", "settings": settings, "gpus": 1}},
        "types": {"text": {"components": ["llm"], "share": 1.0, "paths": [path]}},
        "default_type": "text",
        "cells": [
            {
                "gpus": 1,
                "count": cells,
                "rate": 100.0,
                "replicas": {"monolith": 1},
                "loads": {},
                "probabilities": {"text": [1.0]},
            }
        ],
        "planner": "benchmark",
    }
    return AppSpec(source=AppSource(inline=source), plan=AppPlan.model_validate(plan))


def phases(client: Client) -> Iterator[tuple[str, Iterator[None]]]:
    """Yields the description of each phase and its changes. A change is complete when the iterator yields."""
    deployed: list[str] = []

    def deploy(name: str, spec: AppSpec) -> None:
        deployed.append(name)
        client.deploy(spec, name=name, timeout=60)

    def deployments() -> Iterator[None]:
        for number in count():
            deploy(f"other-{number}", echo_app(f"other-{number}"))
            yield

    def failed_deployments() -> Iterator[None]:
        for number in count():
            with suppress(ClientError):
                deploy(f"broken-{number}", echo_app(f"broken-{number}", fails=True))
                raise RuntimeError(f"broken-{number} must not start")
            yield

    def changed_plans() -> Iterator[None]:
        for cells in cycle([1, 2]):
            deploy("planned", planned_app(cells))
            yield

    def deletions() -> Iterator[None]:
        for name in dict.fromkeys(deployed):
            client.delete(name)
            yield

    yield "none", iter(())
    yield "deployments", deployments()
    yield "failed deployments", failed_deployments()
    yield "changed plans", changed_plans()
    deleting = deletions()
    yield "deletions", deleting
    list(deleting)
    yield "none, again", iter(())


async def measure(client: Client, changes: Iterator[None], seconds: float) -> tuple[int, list[float]]:
    """Returns the number of changes that completed, and the sorted latencies of the requests meanwhile."""

    def complete_changes() -> int:
        end, completed = monotonic() + seconds, 0
        for completed, _ in enumerate(changes, 1):  # noqa: B007 (the last number is the result)
            if monotonic() >= end:
                break
        return completed

    async with TimedClient(client.address) as timed:
        driver = LoadDriver(timed, repeat(calls.invoke("measured", {"text": "a"}, 60.0)), lambda _: None)
        changing = asyncio.create_task(asyncio.to_thread(complete_changes))
        observed = await driver.poisson(RATE, lambda seen: changing.done() and seen.now() > seconds, Random(1))
        return await changing, sorted(observed.latencies)


def measure_phases(client: Client, seconds: float) -> Iterator[PhaseRow]:
    client.deploy(echo_app("measured"), name="measured", timeout=60)
    asyncio.run(measure(client, iter(()), 1.0))  # opens connections
    reference = None
    for name, changes in phases(client):
        number, latencies = asyncio.run(measure(client, changes, seconds))
        p50, p99 = 1000 * percentile(latencies, 50), 1000 * percentile(latencies, 99)
        reference = p99 if reference is None else reference
        yield PhaseRow(name, number, len(latencies), p50, p99, p99 / reference)


def main() -> None:
    options = _options()
    machine = MachineInfo.current()
    with tempfile.TemporaryDirectory() as directory:
        instance = SlotInstance(Path(directory) / "instance", 64)
        with instance.started() as client:
            rows = list(measure_phases(client, 0.2 if options.quick else options.seconds))
            left, executors = [view.name for view in client.apps()], instance.wait_for_executors(1)
    if options.json:
        print(json.dumps({"machine": asdict(machine), "rows": [asdict(row) for row in rows], "executors": executors}))
        return
    table = create_table(["other apps"], ["changes", "requests", "p50 ms", "p99 ms", "p99 ratio"])
    for row in rows:
        numbers = (f"{row.p50_ms:.2f}", f"{row.p99_ms:.2f}", f"{row.ratio:.2f}")
        table.add_row(row.changes, str(row.completed), str(row.requests), *numbers)
    note = f"{RATE:g} requests/s; at the end: apps {', '.join(left)}, executor processes {executors}"
    print_report(machine, note, table)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of each phase (default: 20)")
    parser.add_argument("--quick", action="store_true", help="run short phases")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
