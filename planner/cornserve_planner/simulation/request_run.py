"""A request of a simulation that is being served, and its invocations."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.simulation.media_replica import MediaJob
from cornserve_planner.simulation.path_stages import PathStage
from cornserve_planner.simulation.running_cells import ServingCell, ServingReplica
from cornserve_planner.simulation.simulated_request import SimulatedRequest
from cornserve_planner.simulation.token_sequence import TokenSequence
from cornserve_policies.admission import AdmittedRequest
from cornserve_policies.path_table import CellPath


class StageInvocation:
    """An invocation of a request at a replica."""

    __slots__ = (
        "began", "call", "delivered", "due", "end", "first", "has_begun", "has_cache", "has_ended", "has_streamed",
        "index", "is_held", "job", "missing", "replica", "run", "stage", "targets", "unended",
    )  # fmt: skip

    def __init__(self, run: RequestRun, index: int, stage: PathStage, call: int) -> None:
        self.run = run
        self.index = index
        self.stage = stage
        self.call = call
        self.replica: ServingReplica | None = None
        self.job: TokenSequence | MediaJob | None = None
        self.due = 0
        """When its first output is due, in milliseconds; 0 without a target for it."""
        self.missing = stage.inputs
        """Inputs that have not arrived."""
        self.unended = 0
        """Producers whose streams have not ended."""
        self.delivered = 0
        """The tokens of attempts whose replicas have failed or left."""
        self.has_cache = False
        """Whether the keys and values of these tokens and of the prompt were handed over."""
        self.targets: set[int] | None = None
        """The indices of the consumers to which the output is sent; None for all."""
        self.began = 0.0
        self.first = self.end = -1.0
        """The times of the first output and of the end, or negative numbers."""
        self.has_begun = self.has_streamed = self.is_held = self.has_ended = False

    @property
    def running_replica(self) -> ServingReplica:
        """The replica of an invocation that runs."""
        assert self.replica is not None
        return self.replica

    def consumers(self) -> Iterator[tuple[StageInvocation, bool]]:
        """Yields the invocations that get the output, and whether they stream it."""
        for index, is_streamed in self.stage.consumers:
            if self.targets is None or index in self.targets:
                yield self.run.invocations[index], is_streamed

    def tokens(self) -> tuple[int, int, int]:
        """Returns the tokens of the prompt, of the output, and of the prompt with known keys and values.

        Media to encode count as the tokens of a prompt that take as long.
        """
        request, stage = self.run.request, self.stage
        if request.text is None or request.media is None or request.output is None:
            raise InvalidInputError(
                "--workload",
                f"{stage.option} has a step model, but the tokens of a request of type {request.kind!r} are unknown: "
                "state text_tokens, output_tokens and the tokens of media",
            )
        encoded = ceil(request.media * stage.encoding)
        if not stage.role:
            return max(1, encoded), 1, 0
        prompt = max(1, request.text + request.media) + encoded
        if stage.role == "prefill":
            return prompt, 1, 0
        if stage.role == "decode":
            return prompt + 1, max(1, request.output - 1), prompt
        return prompt, request.output, 0


class RequestRun:
    """A request that is being served."""

    __slots__ = (
        "admitted", "cell", "deaths", "first", "has_failed", "invocations", "last_token", "request", "running", "way",
    )  # fmt: skip

    def __init__(self, request: SimulatedRequest, admitted: AdmittedRequest | None) -> None:
        self.request = request
        self.admitted = admitted
        self.way: CellPath
        self.cell: ServingCell
        self.invocations: list[StageInvocation] = []
        self.running = self.deaths = 0
        self.has_failed = False
        self.first = -1.0
        """The time of the first output, or a negative number."""
        self.last_token = -1.0
        """The time of the last token, or a negative number."""

    def stage_seconds(self, until: float, *, to_first_output: bool) -> dict[str, float]:
        """Returns the time of each stage of a request that has ended, by executor, as gateways count it.

        Args:
            until: a time. Later outputs do not count.
            to_first_output: whether a stage ends with the first output of its invocations, for the TTFT.
        """
        begins: dict[str, float] = {}
        ends: dict[str, float] = {}
        for each in self.invocations:
            name = each.stage.executor
            end = each.first if to_first_output and each.first >= 0 else each.end
            begins[name] = min(each.began, until, begins.get(name, until))
            ends[name] = max(min(end, until), ends.get(name, 0.0))
        return {name: max(0.0, ends[name] - begin) for name, begin in begins.items()}

    def clear(self) -> None:
        """Breaks the reference cycles of a request that has ended: the garbage collector would take much longer."""
        for invocation in self.invocations:
            invocation.job = None
        self.invocations.clear()
