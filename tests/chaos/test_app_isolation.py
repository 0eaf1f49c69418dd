"""Apps whose code loops, blocks, exits or fills the memory do not delay other apps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chaos.conftest import running_instance
from tests.chaos.form import FULL
from tests.chaos.isolation_table import OffenceRow, documented, write
from tests.chaos.offence_runs import Observation, OffenceRunner
from tests.chaos.offences import APP, BASELINE, OFFENCES, TASK, Offence
from tests.chaos.report import FaultRecorder, FaultResult

MAX_P99_MS = 250
"""The limit for the 99th percentile of another app's latency during an offence, on a machine that is idle otherwise."""

MAX_DELAY = 3
"""On a busy machine, the limit is this multiple of the percentile without an offence, measured at the same time."""

RETRIES = 2
"""The number of further measurements if one exceeds the limit: a busy machine also delays requests."""

IMPORT_SECONDS = 3
"""The limit for imports, lower than its default, so that the test is fast."""

REPEATED = {offence.name for offence in OFFENCES if FULL and not offence.at_import} | {"segmentation fault"}
"""Offences that are repeated until the app is suspended."""

MAX_OFFENCES = 8
"""The number of offences after which no more are sent to an app that is not suspended."""

Measured = dict[str, OffenceRow]


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OffenceRunner]:
    home = tmp_path_factory.mktemp("isolation") / "home"
    with running_instance(home, "--limit", f"import-seconds={IMPORT_SECONDS}") as machine:
        yield OffenceRunner(machine)


@pytest.fixture(scope="module")
def measured() -> Iterator[Measured]:
    """The measured rows. The full form writes them into the page."""
    rows: Measured = {}
    yield rows
    if FULL and len(rows) == len(OFFENCES) + 1:
        write(rows[offence.name] for offence in (BASELINE, *OFFENCES))


@pytest.mark.slow
@pytest.mark.parametrize("offence", [pytest.param(offence, id=offence.name) for offence in (BASELINE, *OFFENCES)])
async def test_an_offence_delays_no_other_app(
    runner: OffenceRunner, offence: Offence, measured: Measured, record_fault: FaultRecorder
) -> None:
    async with runner.app():
        observation = await _observe(runner, offence)
        assert observation.wrong == []
        assert observation.following.summary == "200"
        if offence is not BASELINE:
            _check_error(offence, observation)
        repeated = _summary(await runner.repeat(MAX_OFFENCES), offence) if offence.name in REPEATED else ""

    row = _row(offence, observation, repeated)
    measured[offence.name] = row
    if not FULL:
        assert _outcome(row) == _outcome(documented()[offence.name])
    record_fault(
        FaultResult(offence.name, 1, observation.requests, observation.response.summary, observation.p99_ms, leaks=0)
    )


async def _observe(runner: OffenceRunner, offence: Offence) -> Observation:
    """Fails if the offence delays the other app, in comparison with the same load without it on a busy machine."""
    observation, limit = await runner.observe(offence), float(MAX_P99_MS)
    for _ in range(RETRIES):
        if observation.p99_ms > limit:
            limit = max(limit, MAX_DELAY * (await runner.observe(BASELINE)).p99_ms)
            observation = await runner.observe(offence)
    assert observation.p99_ms <= limit
    return observation


def test_the_page_lists_every_offence() -> None:
    assert list(documented()) == [offence.name for offence in (BASELINE, *OFFENCES)]


def _check_error(offence: Offence, observation: Observation) -> None:
    """The error names app, task, file and line, as far as they are known when the app is imported."""
    message = observation.response.message
    assert any(f"app.py:{line}" in message for line in offence.lines), message
    if not offence.at_import:
        assert APP in message
        assert TASK in message


def _summary(reason: str, offence: Offence) -> str:
    """Returns what happened to the app after repeated offences, without the last of them."""
    if not reason:
        return "not suspended"
    assert any(f"app.py:{line}" in reason for line in offence.lines), reason
    return f"suspended: {reason.partition(', most recently')[0]}"


def _row(offence: Offence, observation: Observation, repeated: str) -> OffenceRow:
    return OffenceRow(
        offence=offence.name,
        p99_ms=observation.p99_ms,
        max_ms=observation.max_ms,
        response=observation.response.summary,
        message=observation.response.message,
        following=observation.following.summary,
        repeated=repeated,
    )


def _outcome(row: OffenceRow) -> tuple[str, ...]:
    return row.response, row.message, row.following, *([row.repeated] if row.offence in REPEATED else [])
