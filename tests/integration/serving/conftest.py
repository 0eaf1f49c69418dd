"""A local instance: `cornserve up`, a deployed model, and the official OpenAI client."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from cornserve.client import Client
from cornserve.home import Home

MODEL = "smollm2"


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Runs `cornserve` commands for one instance."""

    home: Home
    url: str = ""
    variables: dict[str, str] = field(default_factory=dict)
    """Variables of the environment of the commands."""

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"CORNSERVE_HOME": str(self.home.path), "COLUMNS": "200"} | self.variables
        command = [sys.executable, "-m", "cornserve.cli", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=170, check=False)

    def json(self, *arguments: str) -> Any:
        completed = self.run(*arguments, "--json")
        assert completed.returncode == 0, completed.stderr
        return json.loads(completed.stdout)


@pytest.fixture(scope="package")
def cornserve(fork_variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    cornserve = CommandLine(Home(tmp_path_factory.mktemp("home")), variables=fork_variables)
    try:
        options = ("--port", "0", "--cpu-slots", "16", "--limit", "slab-mib=128")
        yield replace(cornserve, url=cornserve.json("up", "--detach", *options)["url"])
    finally:
        down = cornserve.run("down")
    assert down.returncode == 0, down.stderr


@pytest.fixture(scope="module", autouse=True)
def delete_apps(cornserve: CommandLine) -> Iterator[None]:
    """Deletes the apps of a module at its end, so that their executors leave the memory."""
    yield
    with Client(cornserve.url) as client:
        for app in client.apps():
            if app.name != MODEL:
                client.delete(app.name)


@pytest.fixture(autouse=True)
def delete_apps_of_test(cornserve: CommandLine, delete_apps: None) -> Iterator[None]:
    """Deletes the apps that a test has deployed, other than those of its fixtures with a wider scope."""
    with Client(cornserve.url) as client:
        before = {app.name for app in client.apps()}
        yield
        for app in client.apps():
            if app.name not in before:
                client.delete(app.name)


@pytest.fixture(scope="package")
def model(cornserve: CommandLine, smollm2: Path) -> str:
    """The app of a real model, in the directory that `make run` uses and the examples expect."""
    directory = cornserve.home.models / MODEL
    shutil.copytree(smollm2, directory, copy_function=os.link)
    deployed = cornserve.run("deploy", str(directory))
    assert deployed.returncode == 0, deployed.stderr
    return MODEL


@pytest.fixture(scope="package")
def client(cornserve: CommandLine) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{cornserve.url}/v1", api_key="none", max_retries=0, timeout=120) as client:
        yield client
