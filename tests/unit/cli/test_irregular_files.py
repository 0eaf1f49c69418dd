"""Directories, pipes and links in place of the files of a home."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cornserve.cli.commands import app
from cornserve.home import Home
from tests.free_ports import free_port
from tests.unit.cli.test_doctor import check

REPAIR = "cornserve doctor --repair"

irregular = pytest.mark.parametrize("create", [os.mkdir, os.mkfifo])


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def cli(home: Home) -> CliRunner:
    return CliRunner(env={"CORNSERVE_HOME": str(home.path), "COLUMNS": "200", "NO_COLOR": "1"})


@irregular
def test_a_repair_sets_an_irregular_instance_file_aside(
    cli: CliRunner, home: Home, create: Callable[[Path], None]
) -> None:
    create(home.instance)
    assert REPAIR in check(home, "instance").remedy
    assert "instance.json.damaged-" in cli.invoke(app, ["doctor", "--repair", "--port", str(free_port())]).stderr
    assert check(home, "instance").ok


@irregular
def test_down_does_not_wait_for_irregular_files(cli: CliRunner, home: Home, create: Callable[[Path], None]) -> None:
    replica = home.replicas / "replica"
    replica.mkdir(parents=True)
    create(replica / "process.json")
    create(home.instance)
    assert cli.invoke(app, ["down"]).exit_code == 0
    assert not replica.exists()


def test_up_with_a_directory_as_instance_file_names_the_command_that_repairs_it(cli: CliRunner, home: Home) -> None:
    home.instance.mkdir()
    result = cli.invoke(app, ["up", "--port", str(free_port())])
    assert result.stderr.startswith(f"error: {home.instance} is a directory: run `{REPAIR}")


def test_an_unreadable_instance_file_is_an_error_with_a_remedy(cli: CliRunner, home: Home) -> None:
    home.instance.symlink_to(home.instance)  # Not readable by any user.
    result = cli.invoke(app, ["up", "--port", str(free_port())])
    assert result.stderr.startswith(f"error: cannot read {home.instance}: ")
    assert "make it readable" in result.stderr
    assert "make it readable" in check(home, "instance").remedy


@irregular
def test_a_repair_sets_an_irregular_store_aside(cli: CliRunner, home: Home, create: Callable[[Path], None]) -> None:
    create(home.store)
    kind = "a directory" if home.store.is_dir() else "not a regular file"
    for result in (cli.invoke(app, ["up", "--port", str(free_port())]), cli.invoke(app, ["down"])):
        assert f"the store {home.store} is damaged: it is {kind}: run `{REPAIR}" in result.stderr
    assert "state.db.damaged-" in cli.invoke(app, ["doctor", "--repair", "--port", str(free_port())]).stderr
    assert check(home, "store").ok


def test_a_link_to_a_missing_store_is_not_replaced_by_an_empty_store(cli: CliRunner, home: Home) -> None:
    target = home.path / "elsewhere" / "state.db"
    home.store.symlink_to(target)
    for arguments in (["up"], ["doctor", "--repair"]):
        result = cli.invoke(app, [*arguments, "--port", str(free_port())])
        assert f"{home.store}: it is a symbolic link to the missing file {target}: restore" in result.stderr
    assert home.store.is_symlink()
