from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cornserve.home import Home
from cornserve.instance import HomeInUseError, Instance, lock_home
from tests.waiting import until

URL = "http://127.0.0.1:1"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_a_new_home_has_no_instance(home: Home) -> None:
    assert Instance.read(home) is None
    assert Instance.find_running(home) is None


def test_an_instance_is_running_while_its_process_runs(home: Home) -> None:
    instance = Instance.of_current_process(URL)
    instance.write(home)
    assert Instance.find_running(home) == instance


def test_a_killed_instance_is_not_running(home: Home) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        instance = Instance.from_pid(process.pid, url=URL, gateways=[URL])
        instance.write(home)
        assert Instance.find_running(home) == instance
        process.kill()
    assert Instance.find_running(home) is None
    assert Instance.read(home) == instance


def test_a_process_that_reuses_the_pid_is_not_the_instance(home: Home) -> None:
    mine = Instance.of_current_process(URL)
    mine.model_copy(update={"started": mine.started - 1000}).write(home)
    assert Instance.find_running(home) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}'])
def test_an_invalid_instance_file_is_ignored(home: Home, text: str) -> None:
    home.instance.write_text(text)
    assert Instance.read(home) is None


@pytest.mark.parametrize("create", [os.mkdir, os.mkfifo])
def test_an_instance_file_that_is_not_a_file_is_ignored(home: Home, create: Callable[[Path], None]) -> None:
    create(home.instance)
    assert Instance.read(home) is None


def test_a_home_can_be_locked_once(home: Home) -> None:
    with lock_home(home), pytest.raises(HomeInUseError), lock_home(home, timeout=0):
        pass
    with lock_home(home):
        pass


def test_a_child_that_inherits_the_lock_holds_it(home: Home) -> None:
    with lock_home(home) as lock:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[lock])
    with child:
        with pytest.raises(HomeInUseError), lock_home(home, timeout=0):
            pass
        assert child.stdin is not None
        child.stdin.close()
        with lock_home(home, timeout=20):
            pass


def test_the_lock_is_not_inherited_by_default(home: Home) -> None:
    with lock_home(home) as lock:
        assert not os.get_inheritable(lock)


async def test_a_damaged_instance_file_is_written_again(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cornserve.instance.REWRITE_SECONDS", 0.01)
    instance = Instance.of_current_process(URL)
    async with instance.written(home):
        for damage in (lambda: home.instance.write_text("}"), home.instance.unlink):
            damage()
            await until(lambda: Instance.read(home) == instance)
    assert not home.instance.exists()
