"""`python -m cornserve_planner workload`."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from cornserve_planner.__main__ import app
from cornserve_planner.workload.request_files import read_requests, write_requests


def _run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["workload", *map(str, arguments)])
    return done.exit_code, done.output


def test_what_is_generated_passes_the_check(tmp_path: Path) -> None:
    path = tmp_path / "requests.csv"

    made, said = _run("generate", path, "--seconds", 30, "--rate", 5, "--any-to-any", "--seed", 3)
    checked, told = _run("check", path)

    assert (made, checked) == (0, 0)
    assert said == told
    assert "audio out" in told
    assert all(request.images for request in read_requests(path))


def test_mistakes_are_shown_and_end_with_an_error(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"format": "cornserve-planner/requests", "version": 1}\n' + '{"arrival": -1}\n' * 3)

    status, said = _run("check", path, "--most", 2)

    assert status == 1
    assert said.count("error: r.jsonl line") == 2


def test_an_impossible_workload_is_refused_in_a_line(tmp_path: Path) -> None:
    status, said = _run("generate", tmp_path / "r.csv", "--seconds", 0)

    assert status == 1
    assert said == "error: seconds: must be a positive number, not 0.0\n"


def test_a_file_that_cannot_be_written_is_refused_in_a_line() -> None:
    status, said = _run("generate", "/nowhere/r.csv", "--seconds", 1)

    assert status == 1
    assert said == "error: /nowhere/r.csv: cannot be written: No such file or directory\n"


def test_an_empty_file_has_no_requests(tmp_path: Path) -> None:
    write_requests(tmp_path / "r.csv", [])

    assert _run("check", tmp_path / "r.csv") == (0, "no requests\n")
