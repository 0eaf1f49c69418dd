from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from cornserve.app_host.activity import Activity


@pytest.fixture
def descriptor() -> Iterator[int]:
    descriptor = Activity.create_file()
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def activity(descriptor: int) -> Iterator[Activity]:
    activity = Activity(descriptor)
    yield activity
    activity.close()


def test_running_code_is_visible_through_the_shared_file(descriptor: int, activity: Activity) -> None:
    other = Activity(descriptor)

    activity.begin(7)
    running = other.read()
    activity.end()

    assert running is not None
    assert running.session == 7
    assert 0 <= running.seconds < 60
    assert other.read() is None
    other.close()


def test_code_may_run_for_no_session(activity: Activity) -> None:
    activity.begin()

    running = activity.read()

    assert running is not None
    assert running.session == 0


def test_a_later_start_is_different_code(activity: Activity) -> None:
    activity.begin(7)
    first = activity.read()
    activity.end()
    activity.begin(7)

    assert activity.read() != first
