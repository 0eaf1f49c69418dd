"""The requests of a step of vLLM's engine, for connectors."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput


@dataclass(slots=True)
class ScheduledRequest:
    """A request of a step.

    Args:
        parameters: `SamplingParams.extra_args` of a new request. Empty for one of an earlier step.
        prompt_tokens: the length of the prompt of a new request.
        computed: the number of tokens computed before.
        scheduled: the number of tokens that the step computes.
    """

    id: str
    parameters: dict[str, Any]
    prompt_tokens: int
    computed: int
    scheduled: int
    _blocks: list[int]
    _replaces_blocks: bool

    @property
    def end(self) -> int:
        """The number of tokens computed after the step."""
        return self.computed + self.scheduled

    def add_blocks(self, known: list[int]) -> None:
        """Adds the new blocks of the first group to the known ones, or replaces those of a preempted request."""
        if self._replaces_blocks:
            known.clear()
        known += self._blocks


def scheduled_requests(output: SchedulerOutput, known: Collection[str]) -> Iterator[ScheduledRequest]:
    """Yields the new requests of a step, and the known ones of earlier steps."""
    for new in output.scheduled_new_reqs:
        yield ScheduledRequest(
            new.req_id,
            parameters(new.sampling_params),
            len(new.prompt_token_ids or ()),
            new.num_computed_tokens,
            output.num_scheduled_tokens[new.req_id],
            list(new.block_ids[0]),
            True,
        )
    cached = output.scheduled_cached_reqs
    for id, blocks, computed in zip(cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True):
        if id in known:
            scheduled, added = output.num_scheduled_tokens[id], list(blocks[0]) if blocks else []
            yield ScheduledRequest(id, {}, 0, computed, scheduled, added, id in cached.resumed_req_ids)


def new_blocks(output: SchedulerOutput) -> Iterator[tuple[str, list[int]]]:
    """Yields the requests that get blocks of the first group in a step, with these blocks."""
    for new in output.scheduled_new_reqs:
        yield new.req_id, list(new.block_ids[0])
    cached = output.scheduled_cached_reqs
    for id, blocks in zip(cached.req_ids, cached.new_block_ids, strict=True):
        if blocks:
            yield id, list(blocks[0])


def parameters(sampling: Any) -> dict[str, Any]:
    """Returns the parameters for connectors of a request. Empty for one of another kind."""
    return (sampling and sampling.extra_args) or {}
