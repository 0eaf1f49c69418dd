"""The second run of a request from the records of the first one, which finds code that differs when it runs again."""

from __future__ import annotations

from itertools import zip_longest
from typing import Final

from cornserve.app_host.host_session import HostSession
from cornserve.app_host.side_effect_calls import described_call
from cornserve.task.divergence import (
    added_call,
    changed_arguments,
    changed_end,
    changed_input,
    changed_result,
    changed_task,
    missing_call,
)
from cornserve.task.errors import DivergenceError, OutputSuspension, SideEffectSuspension
from cornserve.v1 import app_host_pb2 as pb

REPEATED_REQUESTS: Final = 100
"""The number of requests that each host runs twice, beginning with its first one."""


class Repetition:
    """Runs the task of one request again, each time as far as the recorded run, with the same values.

    Args:
        session: a session of the same request, which has its own recording.
    """

    def __init__(self, session: HostSession) -> None:
        self._session = session
        self._calls = 0
        """The number of calls that both runs have made."""

    def run(self, task: str, command: pb.RunTask, recorded: pb.RunOutcome) -> None:
        """Repeats a run that has ended without an error.

        Raises `DivergenceError` if the code does not make the same calls, yields something else, or does not end in the
        same way. The items of mapped streams are not compared: they are computed when they are read.
        """
        try:
            repeated = self._session.run(command)
        except Exception as error:
            difference = changed_end(_end(recorded), f"raises {type(error).__name__}")
            raise DivergenceError(task, None, difference) from error
        self._check_calls(task, recorded, repeated)
        _check_yielded(task, recorded, repeated)
        if _waits_for_side_effect(recorded) and _waits_for_side_effect(repeated):
            _check_side_effect(task, recorded.awaited_side_effect, repeated.awaited_side_effect)
        elif _end(recorded) != _end(repeated):
            raise DivergenceError(task, None, changed_end(_end(recorded), _end(repeated)))
        else:
            _check_results(task, recorded.results, repeated.results)
        self._calls += len(recorded.invocations)

    def _check_calls(self, task: str, recorded: pb.RunOutcome, repeated: pb.RunOutcome) -> None:
        pairs = zip_longest(recorded.invocations, repeated.invocations)
        for index, (call, again) in enumerate(pairs, self._calls):
            if call is None:
                raise DivergenceError(task, index, added_call(again.task, again.line))
            if again is None:
                raise DivergenceError(task, index, missing_call(call.task, call.line))
            if call.key != again.key:
                raise DivergenceError(task, index, changed_task(call.task, call.line, again.task, again.line))
            if call.request != again.request or call.inputs != again.inputs:
                difference = changed_input(call.request, call.line, again.request, again.line)
                raise DivergenceError(call.task, index, difference)

    def close(self) -> None:
        self._session.close()


def _waits_for_side_effect(run_outcome: pb.RunOutcome) -> bool:
    return run_outcome.WhichOneof("outcome") == "awaited_side_effect"


def _check_side_effect(task: str, call: pb.SideEffectCall, again: pb.SideEffectCall) -> None:
    if call.function != again.function:
        raise DivergenceError(task, None, changed_task(call.function, call.line, again.function, again.line))
    if call.arguments != again.arguments:
        difference = changed_arguments(call.function, call.arguments, call.line, again.arguments, again.line)
        raise DivergenceError(task, None, difference)


def _check_yielded(task: str, recorded: pb.RunOutcome, repeated: pb.RunOutcome) -> None:
    for value, again in zip_longest(recorded.yielded, repeated.yielded):
        if value is None:
            raise DivergenceError(task, None, "it yields a value now that it did not yield in the recording")
        if again is None:
            raise DivergenceError(task, None, "it yielded a value in the recording that it does not yield now")
        if value != again:
            difference = changed_result("a yielded value", _yielded_json(value), _yielded_json(again))
            raise DivergenceError(task, None, difference)


def _yielded_json(yielded: pb.Yielded) -> bytes:
    """Returns the items of a yielded value as JSON. Empty for a stream."""
    if yielded.HasField("stream"):
        return b""
    items = yielded.items
    return items[0] if len(items) == 1 else b"[%b]" % b",".join(items)


def _check_results(task: str, recorded: pb.Results, repeated: pb.Results) -> None:
    if recorded == repeated:  # copies no data
        return
    for result, again in zip(recorded.results, repeated.results, strict=True):
        if result != again:
            raise DivergenceError(task, None, changed_result("the response", result.json, again.json))


def _end(outcome: pb.RunOutcome) -> str:
    """Describes how a run has ended."""
    match outcome.WhichOneof("outcome"):
        case "awaited":
            return f"waited for {OutputSuspension(outcome.awaited.invocation, outcome.awaited.field or None).awaited}"
        case "awaited_side_effect":
            return f"waited for {SideEffectSuspension(described_call(outcome.awaited_side_effect)).awaited}"
    return "returned a response"
