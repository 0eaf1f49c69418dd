"""The check of GPUs runs, in tiny dimensions on the CPU, and its archive is complete."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from benchmarks.gpu_check.report import Report, read_rows, start_files

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts" / "gpu_check"

STEPS = ("tensors", "denoiser", "talker")
GIVEN = ("torch", "transformers", "grpcio", "protobuf", "numpy")
"""The packages of the machine with the GPU."""
LACKED = ("pydantic", "pydantic-core", "annotated-types", "typing-inspection")
"""Packages that it lacks, although transformers requires them."""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_all_steps_run_on_a_cpu(tmp_path: Path) -> None:
    result = subprocess.run([SCRIPT, "--cpu", "--output", tmp_path], capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr
    rows = read_rows(tmp_path)
    assert {row.step for row in rows} == {"versions", *STEPS}
    assert {row.not_run for row in rows} <= {None, "needs a GPU"}
    for step in STEPS:
        assert any(f"| {step} |" in line for line in (tmp_path / "figures.md").read_text().splitlines())


def test_an_unknown_step_is_an_error_that_lists_the_steps() -> None:
    result = subprocess.run([SCRIPT, "decoder"], capture_output=True, text=True, check=False)

    assert result.returncode == 2
    assert "unknown step decoder: use tensors, denoiser, talker" in result.stderr


@pytest.mark.slow
def test_without_a_gpu_nothing_is_written(tmp_path: Path) -> None:
    output = tmp_path / "figures"
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}

    command: list[str | Path] = [SCRIPT, "--output", output]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    assert result.returncode == 2
    assert result.stderr.endswith("error: no NVIDIA GPU: use --cpu\n")
    assert not output.exists()


def test_an_output_that_cannot_be_written_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    command: list[str | Path] = [SCRIPT, "--cpu", "--output", tmp_path / "file" / "figures"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert "Not a directory" in line


@pytest.mark.slow
def test_a_step_without_time_to_start_is_a_failure(tmp_path: Path) -> None:
    command: list[str | Path] = [SCRIPT, "--cpu", "--seconds", "0.1", "--output", tmp_path, "tensors"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert result.returncode == 1
    assert result.stderr == "gpu_check: failed: tensors\n"
    assert (read_rows(tmp_path)[-1].case, read_rows(tmp_path)[-1].not_run) == ("all cases", "no time was left")


def test_a_second_run_keeps_the_figures_of_the_first_in_other_files(tmp_path: Path) -> None:
    Report(tmp_path, "tensors", deadline=0).add("4 MB", to_host_ms=1.0)

    start_files(tmp_path)

    assert read_rows(tmp_path) == []
    (lines,) = tmp_path.glob("figures-*.jsonl")
    assert '"4 MB"' in lines.read_text()


def test_a_line_that_was_written_in_part_is_left_out(tmp_path: Path) -> None:
    Report(tmp_path, "tensors", deadline=0).add("4 MB", to_host_ms=1.0)
    with (tmp_path / "figures.jsonl").open("a") as lines:
        lines.write('["tensors", "350')

    assert [row.case for row in read_rows(tmp_path)] == ["4 MB"]


def test_a_case_without_time_is_a_row_without_figures(tmp_path: Path) -> None:
    report = Report(tmp_path, "tensors", deadline=0)

    assert not report.can_start("4 MB")

    (row,) = read_rows(tmp_path)
    assert (row.case, row.figures, row.not_run) == ("4 MB", {}, "no time was left")
    assert "| 4 MB | no time was left |" in (tmp_path / "figures.md").read_text()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_archive_runs_where_only_torch_and_transformers_are_installed(tmp_path: Path) -> None:
    archive = tmp_path / "gpu-check.tar.gz"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    subprocess.run([SCRIPT, "pack", archive, "--python", version], check=True, timeout=300)
    assert archive.stat().st_size < 60 << 20
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    python = _create_environment(tmp_path / "python")

    script, output = tmp_path / "cornserve" / "scripts" / "gpu_check", tmp_path / "figures"
    environment = {**os.environ, "PYTHON": str(python)}
    subprocess.run([script, "--cpu", "--output", output], env=environment, check=True, timeout=500)

    assert {row.not_run for row in read_rows(output)} <= {None, "needs a GPU"}


def _create_environment(directory: Path) -> Path:
    """Returns the interpreter of an environment that contains `GIVEN` and what they require, without `LACKED`."""
    venv.create(directory, with_pip=False)
    (packages,) = directory.glob("lib/python*/site-packages")
    for name in {*_with_requirements(GIVEN), *_cuda()} - {*LACKED}:
        for file in distribution(name).files or []:
            source, link = Path(str(file.locate())), packages / file.parts[0]
            if file.parts[0] != ".." and not link.exists() and source.exists():
                link.symlink_to(source.parents[len(file.parts) - 2] if len(file.parts) > 1 else source)
    return directory / "bin" / "python"


def _with_requirements(names: Iterator[str] | tuple[str, ...]) -> set[str]:
    found: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop().lower().replace("_", "-")
        if name in found:
            continue
        try:
            required = distribution(name).requires or []
        except PackageNotFoundError:
            continue
        found.add(name)
        parsed = map(Requirement, required)
        pending += [item.name for item in parsed if item.marker is None or item.marker.evaluate({"extra": ""})]
    return found


def _cuda() -> set[str]:
    """Returns CUDA's packages, which torch requires as extras of another one."""
    return {found.name for found in distributions() if found.name.startswith(("nvidia-", "cuda-"))}
