"""The simulator's reference of an engine makes the decisions of vLLM's scheduler, which runs here without a model."""

from __future__ import annotations

import os
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cornserve_planner.simulation.step_model import EngineLimits
from tests.unit.planner.simulation.step_by_step import StepByStepEngine, SteppedRequest
from tests.unit.planner.simulation.test_language_model import MODEL, random_case

if TYPE_CHECKING:
    from vllm.config import VllmConfig

LONGEST = 1024


class SchedulerEngine:
    """Serves requests with vLLM's scheduler. Each step takes the time of the simulator's step model."""

    def __init__(self, config: VllmConfig, limits: EngineLimits) -> None:
        import torch
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.structured_output import StructuredOutputManager

        config.scheduler_config.max_num_seqs = limits.max_num_seqs
        config.scheduler_config.max_num_batched_tokens = limits.max_num_batched_tokens
        blocks = limits.cache_blocks + 1  # vLLM's pool keeps one block for itself.
        config.cache_config.num_gpu_blocks = blocks
        config.cache_config.block_size = limits.block_size
        spec = FullAttentionSpec(block_size=limits.block_size, num_kv_heads=1, head_size=1, dtype=torch.float32)
        cache = KVCacheConfig(
            num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
        )
        manager = StructuredOutputManager(config)
        self._scheduler: Any = Scheduler(config, cache, manager, block_size=limits.block_size)
        self.ended: list[int] = []
        self.first_outputs: list[int] = []
        self.ends: dict[int, float] = {}

    def run(self, requests: list[SteppedRequest]) -> None:
        from vllm import SamplingParams
        from vllm.v1.request import Request

        scheduler, coming, now = self._scheduler, list(requests), 0.0
        while coming or scheduler.has_unfinished_requests():
            if not scheduler.has_unfinished_requests():
                now = max(now, coming[0].arrival)
            while coming and coming[0].arrival <= now:
                each = coming.pop(0)
                scheduler.add_request(
                    Request(
                        request_id=str(each.number),
                        prompt_token_ids=[1] * each.prompt,
                        sampling_params=SamplingParams(max_tokens=each.output, ignore_eos=True),
                        pooling_params=None,
                        arrival_time=float(each.number),
                        priority=each.priority,
                    )
                )
            output = scheduler.schedule()
            tokens: dict[str, int] = output.num_scheduled_tokens
            context = sum(scheduler.requests[id].num_computed_tokens for id in tokens)
            if tokens:  # Without any, as after a preemption, vLLM does not run the model.
                now += MODEL.seconds(sum(tokens.values()), len(tokens), context)
            self._take_outputs(output, [*tokens], now)

    def _take_outputs(self, output: Any, ids: list[str], now: float) -> None:
        from vllm.v1.outputs import ModelRunnerOutput

        requests = [self._scheduler.requests[id] for id in ids]
        sampled = [[7] if each.num_computed_tokens >= each.num_tokens else [] for each in requests]
        indices = {id: index for index, id in enumerate(ids)}
        self._scheduler.update_from_output(output, ModelRunnerOutput(ids, indices, sampled))
        for request, new in zip(requests, sampled, strict=True):
            number = int(request.request_id)
            if new and request.num_output_tokens == 1:
                self.first_outputs.append(number)
            if request.is_finished():
                self.ended.append(number)
                self.ends[number] = now


@pytest.fixture
def config(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> VllmConfig:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", os.environ.get("VLLM_CPU_KVCACHE_SPACE", "1"))
    from vllm.engine.arg_utils import EngineArgs

    return EngineArgs(
        model=str(tiny_llama),
        max_model_len=LONGEST,
        max_num_seqs=4,
        max_num_batched_tokens=LONGEST,
        enable_prefix_caching=False,
        async_scheduling=False,
        scheduling_policy="priority",
        enforce_eager=True,
    ).create_engine_config()


@pytest.mark.slow
def test_the_reference_decides_as_vllms_scheduler(config: VllmConfig) -> None:
    preemptions = 0
    for seed in range(60):
        requests, limits = random_case(seed)
        for request in requests:
            request.cached, request.cancelled_at = 0, inf
            request.prompt = max(1, min(request.prompt, LONGEST - request.output))
        scheduler = SchedulerEngine(config, limits)
        scheduler.run(requests)
        reference = StepByStepEngine(MODEL, limits)
        reference.run(requests)

        assert scheduler.ended == reference.ended, seed
        assert scheduler.first_outputs == reference.first_outputs, seed
        for request in requests:
            assert request.end is not None
            assert scheduler.ends[request.number] == pytest.approx(request.end, abs=1e-9), seed
        preemptions += reference.preemptions
    assert preemptions > 60
