"""`cornserve bench --server vllm` measures vLLM's server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.harness.vllm_serve import running_vllm
from cornserve.cli.commands import app

OPTIONS = (
    *("--served-model-name", "org/model", "--max-model-len", "2048", "--kv-cache-memory-bytes", str(64 << 20)),
    *("--dtype", "float32", "--enforce-eager", "--distributed-executor-backend", "uni"),
)

REQUESTS = (
    {"format": "cornserve-planner/requests", "version": 1},
    {"arrival": 0.0, "id": "a", "text_tokens": 5, "output_tokens": 3},
    {"arrival": 0.1, "text_tokens": 5, "images": [{"width": 56, "height": 56}], "output_tokens": 4},
    {"arrival": 0.1, "after": ["a"], "text_tokens": 8, "output_tokens": 5},
)


@pytest.mark.slow
@pytest.mark.timeout(420)  # vLLM's server starts in minutes if other tests use the cores.
def test_a_workload_with_images_is_sent_at_its_recorded_times(tiny_qwen25vl: Path, tmp_path: Path) -> None:
    workload = tmp_path / "requests.jsonl"
    workload.write_text("".join(json.dumps(line) + "\n" for line in REQUESTS))
    environment = {"OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    with running_vllm(tiny_qwen25vl, tmp_path, *OPTIONS, environment=environment) as server:
        load = ("--workload", str(workload), "--recorded", "--json")
        result = CliRunner().invoke(app, ["bench", "org/model", "--server", "vllm", "--url", server.url, *load])

    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["requests"] == {"offered": 3, "sent": 3, "answered": 3, "failed": 0, "unfinished": 0}
    assert (document["output_tokens"], document["tokens_are"]) == (3 + 4 + 5, "tokens")
    assert document["noise"]["ttft_p50"] >= 0
