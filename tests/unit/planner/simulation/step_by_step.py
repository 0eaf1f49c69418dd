"""A second simulation of a language model's engine, for comparison: one event for each step.

It follows vLLM's `Scheduler.schedule` line by line, with lists of requests and a count of blocks for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from cornserve_planner.simulation.step_model import EngineLimits, StepModel


@dataclass(eq=False, slots=True)
class SteppedRequest:
    number: int
    arrival: float
    prompt: int
    output: int
    cached: int = 0
    priority: int = 0
    cancelled_at: float = inf
    computed: int = 0
    generated: int = 0
    blocks: int = 0
    first_output: float | None = None
    end: float | None = None

    @property
    def tokens(self) -> int:
        return self.prompt + self.generated

    @property
    def rank(self) -> tuple[int, int]:
        return self.priority, self.number


class StepByStepEngine:
    def __init__(self, model: StepModel, limits: EngineLimits) -> None:
        self.model, self.limits = model, limits
        self.free = limits.cache_blocks
        self.waiting: list[SteppedRequest] = []
        self.running: list[SteppedRequest] = []
        self.ended: list[int] = []
        self.first_outputs: list[int] = []
        self.preemptions = 0

    def run(self, requests: Sequence[SteppedRequest]) -> None:
        """Serves requests, in the order of arrival."""
        coming, now = list(requests), 0.0
        while coming or self.waiting or self.running:
            if not self.waiting and not self.running:
                now = max(now, coming[0].arrival)
            while coming and coming[0].arrival <= now:
                self.waiting.append(coming.pop(0))
            self._remove_cancelled(now)
            scheduled = self._schedule()
            if scheduled:
                now += self._run_step(scheduled)
                self._take_outputs(scheduled, now)

    def _remove_cancelled(self, now: float) -> None:
        for queue in (self.waiting, self.running):
            for request in [request for request in queue if request.cancelled_at <= now]:
                queue.remove(request)
                self._free_blocks(request)

    def _free_blocks(self, request: SteppedRequest) -> None:
        self.free += request.blocks
        request.blocks = 0

    def _allocate(self, request: SteppedRequest, tokens: int) -> bool:
        """Allocates the blocks for `tokens` more tokens."""
        needed = self.limits.blocks(request.computed + tokens) - request.blocks
        if needed > self.free:
            return False
        self.free -= needed
        request.blocks += needed
        return True

    def _schedule(self) -> dict[SteppedRequest, int]:
        scheduled: dict[SteppedRequest, int] = {}
        budget, index, has_preempted = self.limits.max_num_batched_tokens, 0, False
        while index < len(self.running) and budget > 0:
            request = self.running[index]
            tokens = min(request.tokens - request.computed, budget)
            while not (is_allocated := self._allocate(request, tokens)):
                victim = max(self.running, key=lambda request: request.rank)
                if victim in scheduled:
                    budget += scheduled.pop(victim)
                    index -= 1
                self.running.remove(victim)
                self._preempt(victim)
                has_preempted = True
                if victim is request:
                    break
            if not is_allocated:
                break
            scheduled[request] = tokens
            budget -= tokens
            index += 1
        while not has_preempted and self.waiting and budget > 0 and len(self.running) < self.limits.max_num_seqs:
            request = min(self.waiting, key=lambda request: request.rank)
            if self.limits.blocks(request.tokens) > self.free:
                break
            request.computed = min(request.cached, request.tokens - 1)
            tokens = min(request.tokens - request.computed, budget)
            assert self._allocate(request, tokens)
            self.waiting.remove(request)
            self.running.append(request)
            scheduled[request] = tokens
            budget -= tokens
        return scheduled

    def _preempt(self, request: SteppedRequest) -> None:
        self.preemptions += 1
        self._free_blocks(request)
        request.computed = request.cached = 0
        self.waiting.append(request)

    def _run_step(self, scheduled: dict[SteppedRequest, int]) -> float:
        context = sum(request.computed + tokens for request, tokens in scheduled.items())
        return self.model.seconds(sum(scheduled.values()), len(scheduled), context)

    def _take_outputs(self, scheduled: dict[SteppedRequest, int], now: float) -> None:
        for request, tokens in scheduled.items():
            request.computed += tokens
            if request.computed < request.tokens:
                continue
            request.generated += 1
            is_cancelled = request.cancelled_at <= now
            if request.generated == 1 and not is_cancelled:
                request.first_output = now
                self.first_outputs.append(request.number)
            if request.generated == request.output:
                self.running.remove(request)
                self._free_blocks(request)
                if not is_cancelled:
                    request.end = now
                    self.ended.append(request.number)
