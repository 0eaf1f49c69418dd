"""The `python -m cornserve_planner workload` command."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from cornserve_planner.__main__ import app
from cornserve_planner.workload.request_files import read_requests, write_requests


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
