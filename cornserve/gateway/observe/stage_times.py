"""The times of the stages of a request, from the attempts of its invocations."""

from __future__ import annotations

from collections.abc import Iterable

from cornserve.gateway.observe.request_spans import AttemptSpan


def stage_seconds(attempts: Iterable[AttemptSpan], until: float, *, to_first_output: bool) -> dict[str, float]:
    """Returns the time of each stage in one request, by executor group.

    A stage begins when an invocation is called and the invocations exist whose outputs it reads. It ends with its last
    output. Its invocations run at the same time.

    Args:
        until: seconds after the arrival of the request. Later outputs do not count.
        to_first_output: whether a stage ends with the first output of its invocations, for the TTFT.
    """
    ends: dict[int, float] = {}
    begins: dict[str, float] = {}
    finishes: dict[str, float] = {}
    for attempt in attempts:
        begin = min(until, max([attempt.queued, *(ends.get(index, attempt.queued) for index in attempt.after)]))
        end = until if attempt.end is None else min(attempt.end, until)
        ends[attempt.index] = max(end, ends.get(attempt.index, 0.0))
        output = attempt.first_output if to_first_output and attempt.first_output is not None else end
        begins[attempt.group] = min(begin, begins.get(attempt.group, begin))
        finishes[attempt.group] = max(min(output, until), finishes.get(attempt.group, 0.0))
    return {group: max(0.0, finishes[group] - begin) for group, begin in begins.items()}
