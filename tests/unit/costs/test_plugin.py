"""Runs of small suites with the plugin: tiers, slices, costs and budgets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.costs.budgets import Tier, load_budgets
from tests.integration.docs.pages import ROOT
from tests.waiting import wait_until

BUDGETS = """
[fast]
default = { cpu_seconds = 60, memory_mib = 150 }
[fast.groups]
"tests/test_cpu.py" = { cpu_seconds = 1, memory_mib = 150 }
"tests/test_memory.py" = { cpu_seconds = 60, memory_mib = 200 }
"tests/test_engine.py" = { cpu_seconds = 80, memory_mib = 6000 }
"tests/test_instance.py" = { cpu_seconds = 70, memory_mib = 6000 }
[slow]
default = { cpu_seconds = 60, memory_mib = 600 }
[slow.groups]
"""
BURN = "import time\nwhile time.process_time() < 1.7: pass"
HOLD = "import time; memory = bytearray(300 * 2**20); print(flush=True); time.sleep(100)"
HOLDING_CHILD = f"subprocess.Popen([sys.executable, '-c', {HOLD!r}], stdout=subprocess.PIPE).stdout.readline()"


class Suite:
    """A directory with tests, and runs of pytest in it."""

    def __init__(self, directory: Path) -> None:
        self.tests = directory / "tests"
        self.tests.mkdir()
        (self.tests / "budgets.toml").write_text(BUDGETS)
        (directory / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")

    def add(self, file: str, *lines: str) -> None:
        """Adds a test."""
        path = self.tests / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(["import pytest, subprocess, sys", *lines, ""]))

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "tests.costs.plugin", *options]
        # Loading all plugins takes seconds.
        environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
        return subprocess.run(
            command, cwd=self.tests.parent, env=environment, capture_output=True, text=True, check=False, timeout=120
        )

    def run_tier(self, *options: str, tier: Tier = Tier.FAST) -> subprocess.CompletedProcess[str]:
        return self.run(f"--tier={tier}", "--numprocesses=1", "--dist=loadscope", *options)

    def names(self, *options: str) -> list[str]:
        """Returns the names of the tests that run."""
        lines = self.run("--collect-only", "-q", *options).stdout.splitlines()
        return sorted(line.rpartition("::")[2] for line in lines if "::" in line)


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


@pytest.fixture
def mixed(suite: Suite) -> Suite:
    """A suite with fast and slow tests."""
    for letter in "abc":
        slow = f"@pytest.mark.slow\ndef test_slow_{letter}(): pass"
        suite.add(f"test_{letter}.py", f"def test_fast_{letter}(): pass", slow)
    return suite


FAST = ["test_fast_a", "test_fast_b", "test_fast_c"]
SLOW = ["test_slow_a", "test_slow_b", "test_slow_c"]


def test_a_tier_has_the_tests_without_or_with_the_marker(mixed: Suite) -> None:
    assert mixed.names("--tier=fast") == FAST
    assert mixed.names("--tier=slow") == SLOW
    assert mixed.names() == FAST + SLOW


@pytest.mark.slow
def test_each_slow_test_is_in_one_slice(mixed: Suite) -> None:
    assert [mixed.names("--tier=slow", f"--slice={number}/2") for number in (1, 2)] == [
        ["test_slow_c"],
        ["test_slow_a", "test_slow_b"],
    ]
    assert mixed.names("--slice=1/2") == [*FAST, "test_slow_c"]


@pytest.mark.slow
def test_an_empty_slice_passes(mixed: Suite) -> None:
    assert mixed.run_tier("--tier=slow", "--slice=1/4").returncode == 0


def test_a_process_that_outlives_its_parent_is_charged_to_its_group(suite: Suite) -> None:
    # The output ends when the orphan ends.
    orphan = f"subprocess.check_output(['sh', '-c', '\"$@\" &', 'sh', sys.executable, '-c', {BURN!r}])"
    suite.add("test_cpu.py", f"def test_cpu(): {orphan}")

    run = suite.run_tier()

    assert run.returncode == 1
    assert "1 passed" in run.stdout
    assert "FAILED tests/test_cpu.py exceeds its budget in tests/budgets.toml: " in run.stdout
    assert "CPU s (budget 1)" in run.stdout


@pytest.mark.slow
def test_memory_of_a_child_is_charged_to_its_group(suite: Suite) -> None:
    suite.add("test_memory.py", f"def test_memory(): {HOLDING_CHILD}")

    run = suite.run_tier()

    assert run.returncode == 1
    assert "FAILED tests/test_memory.py exceeds its budget in tests/budgets.toml: " in run.stdout
    assert "MiB (budget 200)" in run.stdout


@pytest.mark.slow
def test_groups_with_much_memory_do_not_run_at_the_same_time_while_others_can(suite: Suite) -> None:
    wait = "while not pathlib.Path('light').exists(): time.sleep(0.01)"
    suite.add("test_engine.py", "import pathlib, time", f"def test_engine():\n    {wait}")
    suite.add("test_instance.py", "import pathlib", "def test_instance(): assert pathlib.Path('light').exists()")
    suite.add("test_light.py", "import pathlib", "def test_light(): pathlib.Path('light').touch()")

    run = suite.run_tier("--numprocesses=2")

    assert run.returncode == 0


@pytest.mark.slow
def test_a_budget_is_set_from_a_run(suite: Suite) -> None:
    suite.add("test_memory.py", f"def test_memory(): {HOLDING_CHILD}")

    assert suite.run_tier("--set-budgets").returncode == 0

    assert 600 <= load_budgets(Tier.FAST, suite.tests / "budgets.toml").of("tests/test_memory.py").memory_mib < 900
    assert suite.run_tier().returncode == 0


def test_groups_within_their_budgets_pass(mixed: Suite) -> None:
    run = mixed.run_tier()

    assert run.returncode == 0
    assert "most expensive groups of tests" in run.stdout
    assert "tests/test_a.py\n" in run.stdout


@pytest.mark.slow
def test_fast_tests_with_engines_are_a_group_and_slow_ones_are_one_for_each_directory_or_file(suite: Suite) -> None:
    for name in ("llm", "multimodal", "serving"):
        slow = "@pytest.mark.slow\ndef test_slow(): pass"
        suite.add(f"integration/{name}/test_{name}.py", "def test_fast(): pass", slow)

    assert "  engines on vLLM\n" in suite.run_tier().stdout
    slow_run = suite.run_tier(tier=Tier.SLOW).stdout
    groups = ("llm", "multimodal", "serving/test_serving.py")
    assert all(f"  tests/integration/{group}\n" in slow_run for group in groups)


@pytest.mark.slow
def test_processes_of_a_crashed_worker_are_killed(suite: Suite, tmp_path: Path) -> None:
    child = "child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)"
    suite.add(
        "test_crash.py",
        "import os",
        "def test_crash():",
        f"    {child}",
        f"    open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))",
        "    os.kill(os.getpid(), 9)",
    )

    run = suite.run_tier()

    assert "crashed while running 'tests/test_crash.py::test_crash'" in run.stdout
    wait_until(lambda: not psutil.pid_exists(int((tmp_path / "pid").read_text())))
