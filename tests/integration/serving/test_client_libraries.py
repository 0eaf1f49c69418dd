"""Client libraries with their defaults, installed by `make clients`: each program must end without an error."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.integration.serving.conftest import CommandLine
from tests.unit.gateway.sources import JUDGE

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

APP, RERANKER = "assistant", "judge"
ROOT = Path(__file__).parents[3]
PROGRAMS = ROOT / "tests/clients"
INSTALLED = ROOT / ".cache/clients"
SOURCE = """\
from cornserve import App
from cornserve_tasklib import Chat, EngineOptions

options = EngineOptions(max_model_len=512)
app = App(name={app!r}, paths=[Chat(model_id={model!r}, tool_parser="hermes", options=options)])
"""
"""Some libraries do not limit responses, so the context does."""


def programs(directory: str, suffix: str) -> list[str]:
    return sorted(file.name for file in (PROGRAMS / directory).glob(f"*{suffix}") if file.stem != "settings")


@pytest.fixture(scope="module", autouse=True)
def apps(cornserve: CommandLine, smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("apps") / "app.py"
    for source in (SOURCE.format(app=APP, model=str(smollm2)), JUDGE):
        file.write_text(source)
        deployed = cornserve.run("deploy", str(file))
        assert deployed.returncode == 0, deployed.stderr


def run(cornserve: CommandLine, smollm2: Path, directory: Path, command: Sequence[str | Path]) -> None:
    variables = {
        "CORNSERVE_URL": cornserve.url,
        "CORNSERVE_APP": APP,
        "CORNSERVE_RERANKER": RERANKER,
        "CORNSERVE_TOKENIZER": str(smollm2),
        # No library calls its maker.
        "HF_HUB_OFFLINE": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    completed = subprocess.run(
        command, cwd=directory, env=os.environ | variables, capture_output=True, text=True, timeout=800, check=False
    )
    print(completed.stdout)
    assert completed.returncode == 0, completed.stderr


@pytest.mark.parametrize("program", programs("python", ".py"))
def test_a_python_library_works(cornserve: CommandLine, smollm2: Path, program: str) -> None:
    python = INSTALLED / "python" / Path(program).stem / "bin/python"
    run(cornserve, smollm2, PROGRAMS / "python", [python, program])


@pytest.mark.parametrize("program", programs("node", ".mjs"))
def test_a_node_library_works(cornserve: CommandLine, smollm2: Path, program: str) -> None:
    run(cornserve, smollm2, INSTALLED / "node", ["node", program])
