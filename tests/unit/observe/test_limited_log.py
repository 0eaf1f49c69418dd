"""Messages that other processes can cause are written at a limited rate."""

from __future__ import annotations

import logging

import pytest

from cornserve.observe import limited_log
from cornserve.observe.limited_log import INTERVAL_SECONDS, LimitedLog
from tests.fake_time import FakeTime


def test_messages_within_an_interval_are_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited_log, "time", time := FakeTime())
    log = LimitedLog(logging.getLogger("cornserve.test"))
    for seconds in (0, 1, INTERVAL_SECONDS - 2, 1, INTERVAL_SECONDS):
        time.now += seconds
        log.warning("closed the connection of %s", f"{time.now:g}")

    assert caplog.messages == [
        "closed the connection of 0",
        "closed the connection of 10 (2 similar messages were left out)",
        "closed the connection of 20",
    ]
