#!/usr/bin/env python3
"""Measures an agent whose turns call a unit task and a tool: the time per turn, and the arrival of its steps.

A local instance serves the agent on an echo executor. Neither the unit task nor the tool takes any time, so the figures
are those of record and replay. A streamed request gets a text at the end of each turn.
"""

from __future__ import annotations

import argparse
import json
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass

from rich.table import Table

from benchmarks.harness.instance import running_instance
from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.processes import CoreAssignment
from benchmarks.harness.report import create_table, print_report
from cornserve.client import Client, StreamItem

_AGENT = """
from collections.abc import Generator

from cornserve import App, Task, recorded
from cornserve_echo import EchoRequest, EchoTask
from pydantic import BaseModel

class Order(BaseModel):
    turns: int

class Step(BaseModel):
    text: str

def use_tool(text: str) -> str:
    return text.upper()

class Agent(Task[Order, Step]):
    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, order: Order) -> Generator[Step, None, Step]:
        text = "start"
        for turn in range(order.turns):
            answer = self.echo.invoke(EchoRequest(text=f"{turn}")).text
            text = recorded(use_tool, answer)
            yield Step(text=text)
        return Step(text=text)

app = App(name="agent", paths=[Agent()], max_invocations=2000)
"""


@dataclass(frozen=True, slots=True)
class AgentRow:
    """Requests of one number of turns, the fastest of each kind."""

    turns: int
    seconds: float
    """The duration of a request that is not streamed."""
    first_step_seconds: float
    """The time to the first step of a streamed request."""
    half_seconds: float
    """The time until half of its steps have arrived."""
    streamed_seconds: float
    """The duration of the streamed request."""

    @property
    def turn_ms(self) -> float:
        return self.seconds / self.turns * 1000


def main() -> None:
    options = _options()
    machine = MachineInfo.current()
    with ExitStack() as stack:
        instance = stack.enter_context(
            running_instance({"agent": _AGENT}, CoreAssignment(), ("-m", "cornserve.gateway"))
        )
        client = stack.enter_context(Client(f"http://127.0.0.1:{instance.port}"))
        _measure(client, 1)  # starts the app host
        rows = [
            min((_measure(client, turns) for _ in range(options.repeats)), key=lambda row: row.seconds)
            for turns in options.turns
        ]
    if options.json:
        print(json.dumps({"machine": asdict(machine), "rows": [asdict(row) for row in rows]}))
    else:
        print_report(machine, "", _table(rows))


def _measure(client: Client, turns: int) -> AgentRow:
    started = time.perf_counter()
    client.invoke("agent", {"turns": turns})
    seconds = time.perf_counter() - started
    started = time.perf_counter()
    arrivals = [
        time.perf_counter() - started
        for item in client.stream("agent", {"turns": turns})
        if isinstance(item, StreamItem)
    ]
    streamed = time.perf_counter() - started
    return AgentRow(turns, seconds, arrivals[0], arrivals[len(arrivals) // 2], streamed)


def _table(rows: list[AgentRow]) -> Table:
    table = create_table(
        (), ("turns", "s", "ms per turn", "streamed: s to the first step", "to half of them", "to the end")
    )
    for row in rows:
        times = (row.first_step_seconds, row.half_seconds, row.streamed_seconds)
        table.add_row(f"{row.turns:,}", f"{row.seconds:.2f}", f"{row.turn_ms:.1f}", *(f"{time:.3f}" for time in times))
    return table


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, nargs="+", default=[10, 50, 200, 1000])
    parser.add_argument("--repeats", type=int, default=3, help="requests of each kind")
    parser.add_argument("--quick", action="store_true", help="few turns, to check that the script runs")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    options = parser.parse_args()
    if options.quick:
        options.turns, options.repeats = [10, 200], 1
    return options


if __name__ == "__main__":
    main()
