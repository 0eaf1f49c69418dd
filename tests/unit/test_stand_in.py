"""The processes that tests fork instead of starting them."""

from __future__ import annotations

import pytest

from tests.executor_fork_server.stand_in.sitecustomize import ENGINE, forkable_command

EXECUTOR = ["-m", "cornserve_executors.base", "--spec", "{}"]
SPAWNED = ["-c", f"{ENGINE}; spawn_main(tracker_fd=5, pipe_handle=7)", "--multiprocessing-fork"]


@pytest.mark.parametrize("command", [EXECUTOR, SPAWNED])
@pytest.mark.parametrize("options", [[], ["-P"], ["-B", "-u"]])
def test_executors_and_engines_are_forked_without_the_options_of_the_interpreter(
    options: list[str], command: list[str]
) -> None:
    assert forkable_command(options + command) == command


@pytest.mark.parametrize("command", [[], ["-m"], ["-m", "cornserve.gateway"], ["-c", "print()"], ["script.py", "-m"]])
def test_other_processes_are_not_forked(command: list[str]) -> None:
    assert forkable_command(command) is None
