"""docs/performance.md names the commands of its tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import performance_page
from benchmarks.harness.report import create_table, markdown

PAGE = performance_page.PAGE.read_text()


def test_each_command_of_the_page_is_a_script() -> None:
    commands = performance_page.commands_of(PAGE)

    assert len(commands) == len(set(commands)) == PAGE.count("<!-- benchmarks/")
    scripts = {command.split()[0] for command in commands}
    assert [script for script in scripts if not (performance_page.ROOT / script).is_file()] == []


def test_the_tables_of_one_command_are_replaced() -> None:
    page = "a\n<!-- benchmarks/x.py -->\nold\n<!-- end -->\nb\n<!-- benchmarks/x.py $MODEL -->\nkept\n<!-- end -->\n"

    assert performance_page.replace_block(page, "benchmarks/x.py", "new") == page.replace("old", "new")


def test_commands_without_their_models_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRST", "/models/first")
    monkeypatch.delenv("SECOND", raising=False)

    assert performance_page.missing_variables("benchmarks/x.py $FIRST --other $SECOND") == ["SECOND"]


def test_tables_are_printed_as_markdown() -> None:
    table = create_table(("mode",), ("µs",), "Costs")
    table.add_row("whole", "270")

    assert markdown(table) == "Costs\n\n| mode | µs |\n| --- | --: |\n| whole | 270 |"


@pytest.mark.slow
def test_the_tables_of_a_script_are_markdown() -> None:
    tables = performance_page.run("benchmarks/record_replay.py --quick")

    assert "| fan-out | 1 |" in tables
    assert "| monolith | text |" in tables


def test_the_commands_are_listed() -> None:
    listed = subprocess.run(
        [sys.executable, Path(performance_page.__file__), "--list", "idle"], capture_output=True, text=True, check=True
    )

    assert listed.stdout.startswith("benchmarks/idle.py ")
