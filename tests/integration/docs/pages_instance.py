"""The instance that the README starts, with its model, on which pages run one after the other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

from cornserve.client import Client
from cornserve.home import Home
from tests.integration.docs.page_runner import PageRunner
from tests.integration.docs.pages import CodeBlock, blocks, sections

MODEL = "smollm2"
"""The app of the README, which stays until the end."""

_UP_OR_DOWN = re.compile(r"^cornserve (up --detach( --cpu-slots \d+)?|down)\n", re.MULTILINE)


class PagesInstance:
    """Runs the README and other pages without their commands that start and stop an instance."""

    def __init__(self, runner: PageRunner) -> None:
        self._runner = runner

    def start(self) -> None:
        """Runs the commands of the README that start the instance and deploy the model."""
        self._runner.run(sections("README.md", end="### Send requests"), seconds=200)

    def stop(self) -> None:
        """Runs the command of the README that stops the instance."""
        self._runner.run([_only_down(block) for block in _stop_section() if block.runs], seconds=100)

    def run_readme(self) -> None:
        self._run([*sections("README.md", start="### Send requests", end="### Stop Cornserve"), *_stop_section()])

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
