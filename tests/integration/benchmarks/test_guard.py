"""The guard of the committed figures. Its measurements are those of the other benchmarks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks import guard
from benchmarks.guard import Figure, Figures
from benchmarks.harness.machine import MachineInfo

COMMITTED = {"hop": 1.0, "import": 10.0}


def series(*figures: Figures) -> Callable[[], Figures]:
    found: Iterator[Figures] = iter(figures)
    return lambda: next(found)


def test_one_measurement_is_enough_if_no_figure_is_worse() -> None:
    figures = {"hop": Figure(2.28, 2.0), "import": Figure(9.0)}

    assert guard.measured(series(figures), COMMITTED) == figures


def test_a_worse_figure_is_measured_twice_more_and_the_least_cost_and_baseline_count() -> None:
    noise = series(
        {"hop": Figure(3.0, 2.0), "import": Figure(10.0)},
        {"hop": Figure(2.8, 2.4), "import": Figure(12.0)},
        {"hop": Figure(2.2, 2.2), "import": Figure(10.5)},
    )

    assert guard.measured(noise, COMMITTED) == {"hop": Figure(2.2, 2.0), "import": Figure(10.0)}


@pytest.mark.parametrize(("name", "figure", "worse"), [("hop", 1.15, False), ("hop", 1.16, True), ("new", 0.1, True)])
def test_a_figure_is_worse_above_the_tolerance_or_without_a_committed_one(
    name: str, figure: float, worse: bool
) -> None:
    assert guard.is_worse(name, Figure(figure), COMMITTED) is worse


@pytest.mark.slow
def test_figures_are_compared_with_the_committed_ones_and_updated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, processor = tmp_path / "guard.json", MachineInfo.current().cpu
    file.write_text(json.dumps({processor: {"other": 1.0}, "Z80": {"planner ÷ loop": 9.0}}))
    monkeypatch.setattr(guard, "COMMITTED", file)

    monkeypatch.setattr("sys.argv", ["guard", "--groups", "command_line", "planner", "--update"])
    guard.main()
    updated = json.loads(file.read_text())
    assert set(updated.pop(processor)) == {"other", "import of the commands ÷ start of Python", "planner ÷ loop"}
    assert updated == {"Z80": {"planner ÷ loop": 9.0}}

    file.write_text(json.dumps({processor: {"import of the commands ÷ start of Python": 0.001}}))
    monkeypatch.setattr("sys.argv", ["guard", "--groups", "command_line"])
    with pytest.raises(SystemExit):
        guard.main()
    assert "more than 15% worse: import of the commands ÷ start of Python" in capsys.readouterr().err

    file.write_text(json.dumps(updated))
    guard.main()
    assert "nothing is compared" in capsys.readouterr().err
