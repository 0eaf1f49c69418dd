"""The mixes of roles on 8 GPUs, in the short form of `benchmarks/role_mixes.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.harness.planner.role_mixes import WORKLOADS, ImageWorkload, rank_mixes


@pytest.mark.parametrize(
    "workload",
    [WORKLOADS[0], pytest.param(WORKLOADS[2], marks=pytest.mark.slow)],
    ids=lambda workload: workload.name,
)
def test_the_search_finds_the_best_mix_with_a_third_of_the_simulations(workload: ImageWorkload, tmp_path: Path) -> None:
    found = rank_mixes(tmp_path, workload, ttft=0.5, tbt=0.03, requests=200)

    assert found.mixes == 35
    assert found.search == 1
    assert found.heuristic <= 2
    assert found.search_runs <= found.all_runs / 3
