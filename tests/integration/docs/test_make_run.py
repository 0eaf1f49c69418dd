"""`make run ONCE=1` stops after the response.

In a separate module, so that the engine of the pages, which needs 3 GiB, does not run at the same time.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.integration.docs.page_runner import PageRunner
from tests.integration.docs.pages import ROOT


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_make_run_responds_and_leaves_no_process(tmp_path: Path, smollm2: Path) -> None:
    runner = PageRunner(tmp_path, model=smollm2)

    done = subprocess.run(
        ["make", "run", "ONCE=1"],
        cwd=ROOT,
        env=runner.environment,
        capture_output=True,
        text=True,
        timeout=350,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Paris" in done.stdout
    assert not (runner.cornserve_home / "instance.json").exists()
    assert [path.name for path in (runner.cornserve_home / "replicas").iterdir()] == ["ended"]
