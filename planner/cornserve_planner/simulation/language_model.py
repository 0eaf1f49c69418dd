"""A replica of a language model, whose steps are simulated in closed form between changes of its batch.

The order of decisions is that of vLLM's scheduler. A step computes one token of each running sequence. The rest of its
token budget goes to prompts, in chunks. A sequence that needs a block of the key-value cache when none is free preempts
the running sequence with the lowest priority, which arrived last. Preempted sequences lose their blocks, and their
tokens are computed again. A prompt is admitted if the free blocks hold all of it.

While the batch stays the same, its steps are one event, a segment. It ends with the first step after which a sequence
ends, a prompt is complete, or blocks are missing, and with the running step if a sequence arrives that the next step
can admit.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import ceil
from typing import Any

from cornserve_planner.simulation.cache_blocks import BlockNeeds
from cornserve_planner.simulation.event_queue import EventQueue
from cornserve_planner.simulation.preemption import schedule_with_preemption
from cornserve_planner.simulation.step_model import EngineLimits, StepModel
from cornserve_planner.simulation.step_segment import StepSegment
from cornserve_planner.simulation.token_sequence import SequenceListener, TokenSequence

STEP_TOLERANCE = 1e-9
"""An arrival this fraction of a step after a step's start joins that step: a rounding error."""


class LanguageModelReplica:
    """Simulates the engine of a language model. The output of each sequence is reported to the listener."""

    __slots__ = (
        "_admissions", "_cancelled", "_chunk", "_complete", "_context", "_ends", "_events", "_free", "_generating",
        "_limits", "_listener", "_model", "_needs", "_orders", "_partial", "_segment", "_skipped", "_step", "_steps",
        "_version", "_waiting", "busy_seconds", "preemptions",
    )  # fmt: skip

    def __init__(self, events: EventQueue, model: StepModel, limits: EngineLimits, listener: SequenceListener) -> None:
        self._events = events
        self._model = model
        self._limits = limits
        self._listener = listener
        self._orders = self._admissions = 0
        self._waiting: list[tuple[int, int, TokenSequence]] = []
        self._generating: dict[TokenSequence, None] = {}
        """The running sequences with a complete prompt, in the order of their admission."""
        self._partial: TokenSequence | None = None
        """The running sequence whose prompt is not complete. It was admitted last: it used up the budget of a step."""
        self._complete: list[TokenSequence] = []
        """The sequences whose prompts the running step admits and completes."""
        self._cancelled: list[TokenSequence] = []
        """Running sequences to remove before the next step."""
        self._skipped: list[TokenSequence] = []
        """The generating sequences that do not take part in the running step."""
        self._ends: list[tuple[int, int, TokenSequence]] = []
        """The ends of the generating sequences: step, admission. Entries of other steps than `end_step` are stale."""
        self._context = 0
        """The tokens of the generating sequences whose keys and values exist."""
        self._free = limits.cache_blocks
        self._needs = BlockNeeds(limits.block_size)
        self._step = 0
        self._steps = 0
        """The steps of the running segment. 0 if nothing runs."""
        self._chunk = 0
        """The tokens of the partial prompt that each of them computes."""
        self._segment = StepSegment(0.0, 0.0, 0.0)
        self._version = 0
        """Increases with every planned event: earlier ones are stale."""
        self.busy_seconds = 0.0
        self.preemptions = 0

    @property
    def load(self) -> int:
        """The sequences that have not ended."""
        return len(self._waiting) + len(self._generating) + len(self._complete) + (self._partial is not None)

    def submit(self, sequence: TokenSequence) -> None:
        """Adds a sequence, which must fit in the cache."""
        self._orders += 1
        sequence.order = self._orders
        self._drop_cancelled()
        entry = (sequence.priority, sequence.order, sequence)
        leads = not self._waiting or entry[:2] < self._waiting[0][:2]
        heappush(self._waiting, entry)
        if not self._steps:
            self._wake()
        elif leads and self._partial is None and len(self._generating) < self._limits.max_num_seqs:
            self._end_after_running_step()

    def cancel(self, sequence: TokenSequence) -> None:
        """Removes a sequence before the next step. The listener does not hear of it any more."""
        sequence.is_cancelled = True
        if sequence.is_running:
            self._cancelled.append(sequence)
        if self._steps:
            self._end_after_running_step()

    def stop(self) -> None:
        """Ends now, with all sequences."""
        if self._steps:
            self.busy_seconds += self._events.now - self._segment.started
        self._steps = 0
        self._version += 1

    def generated(self, sequence: TokenSequence) -> int:
        """Returns the tokens of the output that exist now."""
        if sequence not in self._generating:
            return sequence.generated
        return sequence.output - (sequence.end_step - self._step - int(self._segment.steps_until(self._events.now)))

    def _wake(self) -> None:
        """Begins a step after the other events of this time: sequences that arrive together start together."""
        self._steps = 1
        self._segment = StepSegment(self._events.now, 0.0, 0.0)
        self._plan_end(self._events.now, self._resume)

    def _resume(self, version: int) -> None:
        if version == self._version:
            self._begin_segment()

    def _end_segment(self, version: int) -> None:
        if version == self._version:
            self._finish_steps()
            self._begin_segment()

    def _end_after_running_step(self) -> None:
        if self._steps < 2:
            return
        steps = max(1, ceil(self._segment.steps_until(self._events.now) - STEP_TOLERANCE))
        if steps < self._steps:
            self._steps = steps
            self._plan_end(self._segment.end(steps), self._end_segment)

    def _plan_end(self, time: float, handler: Any) -> None:
        self._version += 1
        self._events.add(max(time, self._events.now), handler, self._version)

    def _finish_steps(self) -> None:
        """Advances by the steps of the segment, and reports what they have generated."""
        steps, self._steps = self._steps, 1
        self.busy_seconds += self._events.now - self._segment.started
        self._free -= self._needs.within(self._step, steps)
        self._context += steps * len(self._generating)
        if self._skipped:
            self._delay_skipped()
        self._step += steps
        ended = []
        for sequence in self._ending():
            self._leave(sequence)
            ended.append(sequence)
        complete, self._complete = self._complete, []
        partial = self._partial
        if partial is not None and self._chunk:
            limits = self._limits
            before = limits.blocks(partial.computed)
            partial.computed += steps * self._chunk
            self._free -= limits.blocks(partial.computed) - before
            if partial.computed == partial.tokens:
                self._partial = None
                complete.insert(0, partial)
        for sequence in ended:
            if not sequence.is_cancelled:
                self._listener.ended(sequence.owner)
        for sequence in complete:
            self._generate(sequence)

    def _ending(self) -> list[TokenSequence]:
        """Returns the sequences that end before the next step, in the order of their admission."""
        ends, step, found = self._ends, self._step, []
        while ends and ends[0][0] <= step:
            end, admission, sequence = heappop(ends)
            if sequence.is_running and end == sequence.end_step and admission == sequence.admission:
                found.append(sequence)
        return found

    def _generate(self, sequence: TokenSequence) -> None:
        """Continues with a sequence whose prompt is complete: the last step has generated its next token."""
        is_first = not sequence.generated
        left = sequence.output - sequence.generated - 1
        if left:
            sequence.base = sequence.tokens - self._step
            sequence.end_step = self._step + left
            self._generating[sequence] = None
            self._context += sequence.tokens
            self._needs.add(sequence.base)
            heappush(self._ends, (sequence.end_step, sequence.admission, sequence))
        else:
            self._free += self._limits.blocks(sequence.tokens)
            sequence.is_running = False
        if sequence.is_cancelled:
            return
        if is_first:
            self._listener.first_output(sequence.owner)
        if not left:
            self._listener.ended(sequence.owner)

    def _leave(self, sequence: TokenSequence) -> None:
        """Removes a generating sequence and frees its blocks."""
        computed = sequence.base + self._step
        del self._generating[sequence]
        self._context -= computed
        self._needs.remove(sequence.base)
        self._free += self._limits.blocks(computed)
        sequence.is_running = False

    def _begin_segment(self) -> None:
        """Schedules the next step, and counts the steps that are scheduled alike."""
        if self._cancelled:
            self._remove_cancelled()
        limits = self._limits
        partial = self._partial
        budget = limits.max_num_batched_tokens - len(self._generating)
        self._chunk = 0 if partial is None else min(partial.tokens - partial.computed, budget)
        available = self._free - self._needs.at(self._step) - self._chunk_blocks(1)
        if available < 0:
            self._begin_step_with_preemption()
            return
        generating = len(self._generating)
        if partial is None:
            admitted = self._admit(budget, available) if self._waiting else 0
            partial, tokens = self._partial, generating + admitted
        else:
            admitted, tokens = 0, generating + self._chunk
            if self._chunk < budget and self._waiting:  # The prompt is complete after this step.
                admitted = self._admit(budget - self._chunk, available)
                tokens += admitted
        if not tokens:
            self._steps = 0
            return
        self._start(self._equal_steps(admitted > 0), tokens, admitted)

    def _equal_steps(self, has_admitted: bool) -> int:
        """Returns the number of steps that compute the same sequences as the next one."""
        partial = self._partial
        if has_admitted:
            return 1
        if partial is not None:
            left = partial.tokens - partial.computed
            steps = max(1, left // self._chunk)
            needed = self._needs.within(self._step, steps) + self._chunk_blocks(steps)
            steps = steps if needed <= self._free else 1
            return min(steps, self._next_end()) if self._generating else steps
        return self._needs.steps_with(self._free, self._step, self._next_end())

    def _next_end(self) -> int:
        """Returns the steps until the first generating sequence ends."""
        ends = self._ends
        while True:
            end, admission, sequence = ends[0]
            if sequence.is_running and end == sequence.end_step and admission == sequence.admission:
                return end - self._step
            heappop(ends)

    def _start(self, steps: int, tokens: int, admitted: int, context: int | None = None, sequences: int = 0) -> None:
        """Runs `steps` steps that compute `tokens` tokens each.

        Args:
            context, sequences: those of the step, if not all running sequences take part.
        """
        partial, model = self._partial, self._model
        generating = len(self._generating)
        if context is None:
            context = self._context + generating
            sequences = generating + len(self._complete)
            for sequence in self._complete:
                context += sequence.tokens
            if partial is not None:
                sequences += 1
                context += partial.computed + self._chunk
        self._steps = steps
        self._segment = StepSegment(
            self._events.now, model.seconds(tokens, sequences, context), model.per_context_token * tokens
        )
        self._plan_end(self._segment.end(steps), self._end_segment)

    def _admit(self, budget: int, available: int) -> int:
        """Admits waiting sequences to the next step. Returns the tokens of their prompts that it computes."""
        limits, waiting, tokens = self._limits, self._waiting, 0
        running = len(self._generating) + (self._partial is not None)
        while budget > 0 and running < limits.max_num_seqs:
            self._drop_cancelled()
            if not waiting or limits.blocks(waiting[0][2].tokens) > available:
                break
            sequence = heappop(waiting)[2]
            running += 1
            self._admissions += 1
            sequence.admission = self._admissions
            sequence.is_running = True
            present = min(sequence.cached, sequence.tokens - 1)
            chunk = min(sequence.tokens - present, budget)
            budget -= chunk
            tokens += chunk
            if present + chunk == sequence.tokens:
                blocks = limits.blocks(sequence.tokens)
                self._complete.append(sequence)
            else:  # The budget is used up, and no other prompt is partial.
                sequence.computed = present
                blocks = limits.blocks(present)
                self._set_partial(sequence, chunk)
            self._free -= blocks
            available -= limits.blocks(present + chunk)
        return tokens

    def _set_partial(self, sequence: TokenSequence, chunk: int) -> None:
        if self._partial is not None:  # Its last chunk was smaller than the budget.
            partial = self._partial
            self._free -= self._limits.blocks(partial.tokens) - self._limits.blocks(partial.computed)
            self._complete.insert(0, partial)
        self._partial = sequence
        self._chunk = chunk

    def _begin_step_with_preemption(self) -> None:
        """Begins a step for which blocks are missing."""
        partial = self._partial
        found = schedule_with_preemption(self._generating, partial, self._step, self._free, self._limits)
        for victim in found.preempted:
            self._preempt(victim)
        if not found.scheduled:
            self._begin_segment()
            return
        self._chunk = 0 if partial is None else found.scheduled.get(partial, 0)
        self._skipped += found.skipped
        self._start(1, sum(found.scheduled.values()), 0, found.context, len(found.scheduled))

    def _preempt(self, sequence: TokenSequence) -> None:
        self.preemptions += 1
        if sequence is self._partial:
            self._free += self._limits.blocks(sequence.computed)
            self._partial = None
            sequence.is_running = False
        else:
            sequence.generated = sequence.output - (sequence.end_step - self._step)
            self._leave(sequence)
        sequence.computed = sequence.cached = 0
        heappush(self._waiting, (sequence.priority, sequence.order, sequence))

    def _delay_skipped(self) -> None:
        """Corrects the counts for the sequences that have not taken part in the step, which end one step later."""
        size = self._limits.block_size
        for sequence in self._skipped:
            self._free += (sequence.base + self._step) % size == 0
            self._context -= 1
            self._needs.remove(sequence.base)
            sequence.base -= 1
            self._needs.add(sequence.base)
            sequence.end_step += 1
            heappush(self._ends, (sequence.end_step, sequence.admission, sequence))
        self._skipped.clear()

    def _remove_cancelled(self) -> None:
        for sequence in self._cancelled:
            if not sequence.is_running:
                continue
            if sequence is self._partial:
                self._free += self._limits.blocks(sequence.computed)
                self._partial = None
                sequence.is_running = False
            else:
                self._leave(sequence)
        self._cancelled.clear()

    def _drop_cancelled(self) -> None:
        waiting = self._waiting
        while waiting and waiting[0][2].is_cancelled:
            heappop(waiting)

    def _chunk_blocks(self, steps: int) -> int:
        """Returns the blocks that chunks of the partial prompt need."""
        partial = self._partial
        if partial is None:
            return 0
        blocks = self._limits.blocks
        return blocks(partial.computed + steps * self._chunk) - blocks(partial.computed)
