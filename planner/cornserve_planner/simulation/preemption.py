"""The schedule of a step for which blocks of the key-value cache are missing, as in vLLM's scheduler."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cornserve_planner.simulation.step_model import EngineLimits
from cornserve_planner.simulation.token_sequence import TokenSequence


@dataclass(frozen=True, slots=True)
class PreemptingSchedule:
    """The sequences of a step.

    Args:
        scheduled: the tokens that the step computes for each sequence.
        skipped: running sequences that the step does not compute.
        preempted: sequences that lose their blocks, in this order.
        context: the tokens of the scheduled sequences whose keys and values exist after the step.
    """

    scheduled: dict[TokenSequence, int]
    skipped: list[TokenSequence]
    preempted: list[TokenSequence]
    context: int


def schedule_with_preemption(
    generating: Iterable[TokenSequence], partial: TokenSequence | None, step: int, free: int, limits: EngineLimits
) -> PreemptingSchedule:
    """Schedules the running sequences one by one. One that needs a block when none is free preempts the last one.

    Args:
        generating: the sequences with a complete prompt, in the order of their admission.
        partial: the sequence whose prompt is not complete.
        step: the number of the step.
        free: the free blocks.
    """
    running = [*generating] + ([] if partial is None else [partial])
    budget, index = limits.max_num_batched_tokens, 0
    scheduled: dict[TokenSequence, tuple[int, int]] = {}
    preempted: list[TokenSequence] = []

    def computed(sequence: TokenSequence) -> int:
        return sequence.computed if sequence is partial else sequence.base + step

    while index < len(running):
        sequence = running[index]
        present = computed(sequence)
        wanted = min(sequence.tokens - present, budget) if sequence is partial else 1
        blocks = limits.blocks(present + wanted) - limits.blocks(present)
        while blocks > free:
            victim = max(running, key=lambda running: (running.priority, running.order))
            if victim in scheduled:
                tokens, new = scheduled.pop(victim)
                budget += tokens
                free += new
                index -= 1
            free += limits.blocks(computed(victim))
            running.remove(victim)
            preempted.append(victim)
            if victim is sequence:
                break
        if sequence in preempted:
            break
        scheduled[sequence] = wanted, blocks
        free -= blocks
        budget -= wanted
        index += 1
    tokens_of = {sequence: tokens for sequence, (tokens, _) in scheduled.items()}
    return PreemptingSchedule(
        scheduled=tokens_of,
        skipped=[sequence for sequence in running if sequence not in tokens_of and sequence is not partial],
        preempted=preempted,
        context=sum(computed(sequence) + tokens for sequence, tokens in tokens_of.items() if tokens),
    )
