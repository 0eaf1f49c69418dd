"""The instance and the model that `make run` starts, on which pages run one after the other."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from cornserve.client import Client
from cornserve.home import Home
from tests.integration.docs.page_runner import PageRunner
from tests.integration.docs.pages import ROOT, CodeBlock, blocks, sections
from tests.waiting import wait_until

MODEL = "smollm2"
"""The app of `make run`, which stays until the end."""

_SERVING = "Ctrl-C stops everything."
"""The last line that `make run` prints before it waits."""

START_SECONDS = 200
STOP_SECONDS = 60

_UP_OR_DOWN = re.compile(r"^cornserve (up --detach( --cpu-slots \d+)?|down)\n", re.MULTILINE)


class PagesInstance:
    """Runs the README and other pages without their commands that start and stop an instance."""

    def __init__(self, runner: PageRunner, log: Path) -> None:
        """`make run` writes its output to `log`."""
        self._runner = runner
        self._log = log

    @contextmanager
    def running(self) -> Iterator[PagesInstance]:
        """Runs `make run`, and at the end the command of the README that stops the instance."""
        with (
            self._log.open("w") as output,
            subprocess.Popen(
                ["make", "run"],
                cwd=ROOT,
                env=self._runner.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            ) as make_run,
        ):
            try:
                wait_until(
                    lambda: make_run.poll() is not None or _SERVING in self._log.read_text(), seconds=START_SECONDS
                )
                assert make_run.poll() is None, self._log.read_text()
                yield self
                self._runner.run([_only_down(block) for block in _stop_section() if block.runs], seconds=100)
                assert make_run.wait(STOP_SECONDS) == 0, self._log.read_text()
            finally:
                if make_run.poll() is None:
                    os.killpg(make_run.pid, signal.SIGTERM)

    def output(self) -> str:
        """Returns the output of `make run` so far."""
        return self._log.read_text()

    def run_readme(self) -> None:
        """Deploys the model of `make run` again, which changes nothing, and runs the rest of the README."""
        self._run([*sections("README.md", end="### Stop Cornserve"), *_stop_section()])

    def run(self, page: str) -> None:
        self._run(blocks(page))

    def _run(self, page: list[CodeBlock]) -> None:
        """Runs the blocks in a new directory, and deletes the apps that they have deployed."""
        try:
            self._runner.run([*_without_up_and_down(page)], seconds=350)
        finally:
            self._delete_apps()

    def _delete_apps(self) -> None:
        with Client(json.loads(Home(self._runner.cornserve_home).instance.read_text())["url"]) as client:
            for app in client.apps():
                if app.name != MODEL:
                    client.delete(app.name)


def _stop_section() -> list[CodeBlock]:
    return sections("README.md", start="### Stop Cornserve")


def _only_down(block: CodeBlock) -> CodeBlock:
    assert "cornserve down\n" in block.code
    return replace(block, code="cornserve down\n")


def _without_up_and_down(page: list[CodeBlock]) -> Iterator[CodeBlock]:
    for block in page:
        code = _UP_OR_DOWN.sub("", block.code) if block.runs else block.code
        if code:
            yield replace(block, code=code)
