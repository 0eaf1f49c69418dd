"""The `python -m cornserve_planner workload` command."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cornserve_planner.__main__ import app
from cornserve_planner.requests.request import WorkloadRequest
from cornserve_planner.workload.request_files import check_requests, read_requests, write_requests
from cornserve_planner.workload.summary import WorkloadSummary


def _run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["workload", *map(str, arguments)])
    return done.exit_code, done.output


def test_generated_requests_pass_the_check(tmp_path: Path) -> None:
    path = tmp_path / "requests.csv"

    generated, output = _run("generate", path, "--seconds", 30, "--rate", 5, "--any-to-any", "--seed", 3)
    checked, summary = _run("check", path)

    assert (generated, checked) == (0, 0)
    assert output == summary
    assert "audio out" in summary
    assert all(request.images for request in read_requests(path))


def test_a_week_has_busy_and_calm_hours(tmp_path: Path) -> None:
    counts = []
    for hour in (0, 100):
        status, _ = _run("generate", tmp_path / "r.csv", "--week", "--hour", hour, "--seconds", 300, "--rate", 4)
        assert status == 0
        counts.append(len(list(read_requests(tmp_path / "r.csv"))))

    assert counts[0] > 2 * counts[1] > 0


def test_an_hour_after_the_week_is_rejected_in_one_line(tmp_path: Path) -> None:
    status, output = _run("generate", tmp_path / "r.csv", "--week", "--hour", 168)

    assert status == 1
    assert output.startswith("error: start, end: 604800.0 to 605400.0 s is outside the curve's 604800 s")


def test_invalid_lines_are_printed_and_the_command_fails(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"format": "cornserve-planner/requests", "version": 1}\n' + '{"arrival": -1}\n' * 3)

    status, output = _run("check", path, "--most", 2)

    assert status == 1
    assert output.count("error: r.jsonl line") == 2


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (["generate", "r.csv", "--seconds", "1e12"], "604800"),
        (["generate", "r.csv", "--rate", "1e300"], "6e+302 requests are more than 10000000"),
        (["generate", "r.csv", "--hour", "nan"], "start: must be from -604800 to 604800, not nan"),
        (["generate", "r.csv", "--week", "--hour", "nan"], "start, end: nan to nan s is outside the curve's 604800 s"),
        (["mix", "chats", "r.csv", "--burstiness", "1e300"], "1000"),
        (["mix", "chats", "r.csv", "--rate", "1e-308"], "rate: must be from 1e-06 to 1e+06, not 1e-308"),
        (["mix", "chats", "r.csv", "--scale", "1e300"], "scale: must be from 1e-06 to 1e+06, not 1e+300"),
    ],
)
def test_numbers_beyond_all_bounds_are_refused(command: list[str], error: str) -> None:
    status, output = _run(*command)

    assert status in (1, 2)
    assert error in output


def test_an_invalid_workload_is_rejected_in_one_line(tmp_path: Path) -> None:
    status, output = _run("generate", tmp_path / "r.csv", "--seconds", 0)

    assert status == 1
    assert output == "error: seconds: must be a finite number greater than 0, not 0.0\n"


def test_a_file_that_cannot_be_written_is_reported_in_one_line() -> None:
    status, output = _run("generate", "/nowhere/r.csv", "--seconds", 1)

    assert status == 1
    assert output == "error: /nowhere/r.csv: cannot be written: No such file or directory\n"


def test_an_empty_file_has_no_requests(tmp_path: Path) -> None:
    write_requests(tmp_path / "r.csv", [])

    assert _run("check", tmp_path / "r.csv") == (0, "no requests\n")


def test_a_check_holds_one_request_at_a_time(tmp_path: Path) -> None:
    write_requests(tmp_path / "r.csv", (WorkloadRequest(arrival=at, text_tokens=1) for at in range(5000)))
    summary = WorkloadSummary()

    tracemalloc.start()
    errors = check_requests(tmp_path / "r.csv", on_request=summary.add)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert errors == []
    assert str(summary).startswith("requests     5000 in 4999.0 s, 1.00 per second, from 1 clients")
    assert peak < 500_000
