"""The memory that a measurement needs, and the replicas for which it suffices."""

from __future__ import annotations

from pathlib import Path

import pytest

from cornserve.profiler import memory_need
from cornserve.profiler.memory_need import ENGINE_BYTES, KV_CACHE_BYTES, PROCESS_BYTES, MemoryNeed, NotEnoughMemoryError
from cornserve.profiler.results import Conditions, MemoryUse, OptionResults
from cornserve_echo.stages import StageTask
from cornserve_tasklib import EngineOptions, LLMTask

MIB = 1 << 20
MACHINE = 16 << 30
STAGE = StageTask(seconds={"llm": 1.0}).spec


@pytest.fixture
def available(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that are available besides those left for tensors."""
    sizes = [MACHINE // 2]
    monkeypatch.setattr(memory_need, "memory_limit_bytes", lambda: MACHINE)
    monkeypatch.setattr(memory_need, "available_memory_bytes", lambda: sizes[0] + MACHINE // 8)
    return sizes


def measured(peak: int) -> OptionResults:
    conditions = Conditions(model="", versions={}, device="small", hardware="CPU", driver="6.1")
    memory = MemoryUse(started=peak // 2, peak=peak)
    return OptionResults(task="StageTask", settings={}, spec=STAGE, conditions=conditions, memory=memory)


def test_an_engine_needs_its_weights_and_its_cache(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(3000))
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "model-2.safetensors").write_bytes(bytes(2000))
    (tmp_path / "pytorch_model.bin").write_bytes(bytes(7000))  # The same weights in another format.

    default = MemoryNeed.of("llm", LLMTask(model_id=str(tmp_path)).spec, 0, None)
    assert default.replica_bytes == ENGINE_BYTES + 5000 + KV_CACHE_BYTES
    small = LLMTask(model_id=str(tmp_path), options=EngineOptions(kv_cache_memory_bytes=4 * MIB))
    assert MemoryNeed.of("llm", small.spec, 0, None).replica_bytes == ENGINE_BYTES + 5000 + 4 * MIB
    hub_id = LLMTask(model_id="a/model")
    assert MemoryNeed.of("llm", hub_id.spec, 0, None).replica_bytes == ENGINE_BYTES + KV_CACHE_BYTES


def test_an_earlier_measurement_replaces_the_estimate() -> None:
    assert MemoryNeed.of("llm", STAGE, 0, None).replica_bytes == PROCESS_BYTES
    assert MemoryNeed.of("llm", STAGE, 0, measured(300 * MIB)).replica_bytes == 300 * MIB


def test_replicas_and_their_sources_fit_the_memory(available: list[int]) -> None:
    need = MemoryNeed.of("llm", STAGE, 2, measured(1 << 30))
    assert need.total_bytes(3) == 3 * (1 << 30) + 2 * PROCESS_BYTES
    assert need.replicas(20) == 7  # Of 8 GiB, the sources take a part of the last one.
    assert need.replicas(4) == 4
    available[0] = need.total_bytes(1)
    assert need.replicas(4) == 1


def test_an_option_that_does_not_fit_once_is_refused_by_name(available: list[int]) -> None:
    available[0] = 1 << 30
    origin = r"2\.1 GiB \(was measured\), but 1\.0 GiB of memory are available .*: delete an app"
    with pytest.raises(NotEnoughMemoryError, match=f"encoder cannot be measured: a replica needs {origin}"):
        MemoryNeed.of("encoder", STAGE, 1, measured(2 << 30)).replicas(1)
    with pytest.raises(NotEnoughMemoryError, match="is estimated from its weights and its KV cache"):
        MemoryNeed.of("llm", LLMTask(model_id="a/model").spec, 0, None).replicas(1)
