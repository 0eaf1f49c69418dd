"""Faults while apps generate speech and images: kills of a stage, and disconnects of clients."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Generator as PyGenerator
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

import psutil

from cornserve.client import Client, ClientError
from tests.chaos.conftest import running_instance
from tests.chaos.form import FULL
from tests.chaos.report import FaultResult
from tests.executor_metrics import executor_total, sum_of
from tests.executor_processes import executor_processes, kill, stopped
from tests.integration.cli.cli_instance import CliInstance
from tests.waiting import wait_until

RUNNING = "cornserve_executor_invocations_running"
HELD = 'cornserve_transport_slab_bytes{state="held"}'


PARTS = [0, 0.7] if not FULL else [tenth / 10 for tenth in range(10)]
"""The parts of a stream after which a stage is killed."""


@dataclass(frozen=True)
class ItemSignal:
    """Completes when a stream reaches an item."""

    number: int
    reached: Future[None] = field(default_factory=Future)


@dataclass(frozen=True)
class EndedStream:
    """A stream that has ended."""

    count: int = field(compare=False)
    """The number of items."""
    contents: str
    """The items and the result."""


@dataclass(frozen=True)
class Generator:
    """An app of a tiny model, and a request whose result does not depend on chance."""

    name: str
    model: str
    request: dict[str, Any]

    def with_fields(self, **fields: Any) -> Self:
        """Returns the app with other fields of its request."""
        return replace(self, request=self.request | fields)

    def open(self, client: Client) -> PyGenerator[Any, None, None]:
        """Yields the items of the stream, and the response."""
        return client.stream(self.name, self.request)

    def result(self, last: Any) -> str:
        """Returns the speech or the image of the response in base64."""
        response = last.response
        found: str = response["speech"]["audio"] if "speech" in response else response["images"][0]["b64_json"]
        return found

    def generate(self, machine: CliInstance, signal: ItemSignal | None = None) -> EndedStream:
        """Returns the stream and its result. Completes `signal` at its item."""
        with Client(machine.url) as client:
            *items, last = self._signalling(self.open(client), signal)
        return EndedStream(len(items), f"{self.items(items)} {self.result(last)}")

    def items(self, items: Sequence[Any]) -> str:
        """Returns the items of a stream in an order that does not depend on which of several streams is faster."""
        return repr(sorted(map(repr, items)))

    @staticmethod
    def _signalling(stream: Iterator[Any], signal: ItemSignal | None) -> Iterator[Any]:
        for number, item in enumerate(stream):
            if signal is not None and number == signal.number:
                signal.reached.set_result(None)
            yield item


@dataclass(frozen=True)
class GeneratorDeployment:
    """The options of `cornserve deploy` for an app."""

    app: Generator
    model: Path
    options: Sequence[str] = ()


@dataclass(frozen=True)
class FaultyInstance:
    """An instance whose executors are killed, and whose clients disconnect."""

    machine: CliInstance
    results: dict[str, EndedStream]
    """The stream of each app without a fault."""

    @classmethod
    @contextmanager
    def running(
        cls, home: Path, deployments: Sequence[GeneratorDeployment], fork_variables: Mapping[str, str]
    ) -> Iterator[FaultyInstance]:
        with patch.dict(os.environ, fork_variables), running_instance(home, cpu_slots=24) as machine:
            for deployment in deployments:
                machine.do("deploy", str(deployment.model), "--name", deployment.app.name, *deployment.options)
            yield cls(machine, {each.app.name: each.app.generate(machine) for each in deployments})

    def kill_during_stream(self, app: Generator, stage: str, part: float = 0) -> FaultResult:
        """Kills a stage when the client has a part of the items. The request must end with the same items and result.

        Args:
            part: by default, the first item.
        """
        signal = ItemSignal(int(part * self.results[app.name].count))
        with ThreadPoolExecutor(1) as thread:
            work = thread.submit(app.generate, self.machine, signal)
            signal.reached.result(timeout=60)
            (executor,) = self._executors(app, stage)
            executor.kill()
            assert work.result(timeout=120) == self.results[app.name]
        self._expect_recovery(app)
        return FaultResult(
            f"kill -9 of {stage} of {app.name} after {part:.0%} of a stream", 1, 1, "same result", leaks=0
        )

    def kill_before_output(self, app: Generator, stage: str) -> FaultResult:
        """Kills a stage that has a request and no output. The request must end with the same result or an error."""
        commands = [executor.cmdline() for executor in self._executors(app, stage)]
        addresses = [Path(command[command.index("--announce") + 1]) for command in commands]
        processes = [process for path in addresses for process in executor_processes(path)]
        # A stage that does not run cannot end early.
        with ThreadPoolExecutor(1) as thread, stopped(processes):
            work = thread.submit(app.generate, self.machine)
            wait_until(lambda: self._requests(app) > 0)
            kill(processes)
            outcome = self._outcome(work, app)
        self._expect_recovery(app)
        return FaultResult(f"kill -9 of {stage} of {app.name}", 1, 1, outcome, leaks=0)

    def disconnect(self, app: Generator) -> FaultResult:
        """Closes the stream of a client. All stages must stop and free their tensors."""
        with Client(self.machine.url) as client:
            stream = app.open(client)
            next(stream)
            assert self._total(RUNNING) > 0
            stream.close()
            closed = time.monotonic()
        wait_until(lambda: self._total(RUNNING) + self._total(HELD) == 0, seconds=10)
        outcome = f"stopped in {time.monotonic() - closed:.2f} s"
        return FaultResult(f"disconnect from {app.name}", 1, 1, outcome, leaks=0)

    def _outcome(self, work: Future[EndedStream], app: Generator) -> str:
        try:
            assert work.result(timeout=120) == self.results[app.name]
        except ClientError as error:
            return str(error)
        return "same result"

    def _expect_recovery(self, app: Generator) -> None:
        assert app.generate(self.machine) == self.results[app.name]
        wait_until(lambda: self._total(RUNNING) == 0)
        wait_until(lambda: self._total(HELD) == 0)

    def _executors(self, app: Generator, stage: str) -> list[psutil.Process]:
        """Returns the processes of a stage: one, or those for images and audio."""
        return [
            process
            for process in self.machine.processes("cornserve_executors.base")
            if (command := " ".join(process.cmdline()))
            and f"/{stage}-" in command
            and re.search(rf'/{app.model}["-]', command)
        ]

    def _total(self, metric: str) -> float:
        return executor_total(self.machine.url, metric)

    def _requests(self, app: Generator) -> float:
        metric = f'cornserve_gateway_requests_running{{app="{app.name}"}}'
        return sum_of(metric, f"{self.machine.url}/metrics")
