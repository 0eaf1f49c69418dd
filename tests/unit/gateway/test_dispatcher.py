"""Decisions of the dispatcher, with replicas whose events the test sends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence, Set
from typing import Protocol, cast

import pytest
import pytest_asyncio
from pydantic import BaseModel

from cornserve import Output, Stream, Tensor, TensorStream, UnitTask
from cornserve.app.settings import AppPolicies, LatencyTargetSettings
from cornserve.gateway.http.request_id import RequestIds
from cornserve.gateway.observe.request_stats import AppStats, RequestStats
from cornserve.gateway.request.dispatcher import Dispatcher
from cornserve.gateway.request.replica_connection import InvocationListener, ReplicaConnection
from cornserve.gateway.request.replica_pool import OnChoice, ReplicaPool
from cornserve.gateway.request_route import RequestRoute
from cornserve.task.errors import TaskError
from cornserve.task.recording import Recording
from cornserve.v1 import executor_pb2 as pb
from cornserve_plan.fields import Binding
from cornserve_policies.path_table import CellPath
from cornserve_policies.replayable_random import ReplayableRandom
from cornserve_policies.replica_routing import RoutedInvocation, RoutingPolicy
from cornserve_policies.retries import PLACEMENT_SECONDS
from tests.credentials import CREDENTIALS
from tests.loop_clock import LoopClock
from tests.waiting import until

Dispatch = Callable[[Sequence[Sequence[int]]], Dispatcher]
"""Dispatches a graph, which lists for each invocation the invocations whose tensors it consumes."""


ARRIVED_US = 1_700_000_000_000_000


class DispatchCode(Protocol):
    """Dispatches the invocations that the code of a task calls."""

    def __call__(self, record: Callable[[], None], *, streams: bool = False) -> Dispatcher: ...


class LinkRequest(BaseModel):
    inputs: list[Tensor]


class Link(Output):
    tensor: Tensor = Tensor()


class LinkTask(UnitTask[LinkRequest, Link]):
    executor = "echo-writer"


class StreamedWords(Output):
    words: Stream[str] = Stream()


class WordsTask(UnitTask[LinkRequest, StreamedWords]):
    """Reads a tensor, and streams words."""

    executor = "echo-reader"

    def continues(self, request: LinkRequest) -> bool:
        return True


class UnplannedTask(LinkTask):
    """A task without replicas in the cells of the plan."""

    executor = "unplanned"


class MissingTask(LinkTask):
    """A task that the app does not create in `post_init`."""

    executor = "missing"


class ChunksRequest(BaseModel):
    chunks: TensorStream | None = None
    continues: bool = False


class Chunks(Output):
    chunks: TensorStream = TensorStream()


class ChunksTask(UnitTask[ChunksRequest, Chunks]):
    """Its output has nothing but a stream."""

    executor = "echo-speaker"


class CountedChunks(Output):
    chunks: TensorStream = TensorStream()
    count: int = 0


class CountedChunksTask(UnitTask[ChunksRequest, CountedChunks]):
    """Its output has a value, which agrees with the stream."""

    executor = "echo-typist"

    def continues(self, request: ChunksRequest) -> bool:
        return request.continues


class FakeReplica:
    """Records started invocations."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = self.id = endpoint
        self.group = "echo"
        self.started: list[tuple[int, int]] = []
        """Invocation and attempt of each start."""
        self.listeners: dict[int, InvocationListener] = {}
        """The listener of each invocation that runs."""
        self.retained: set[int] = set()
        self.requested: dict[int, list[str]] = {}
        """The outputs that the last start of each invocation requests."""
        self.delivered: dict[int, list[pb.OutputChunk]] = {}
        """The items of earlier attempts that the last start of each invocation contains."""
        self.discarded: list[tuple[int, list[str]]] = []
        self.taking: set[int] = set()
        """The calls that have not taken their tensors."""
        self.limits_consumers = True
        self.bound: list[tuple[int, str, int]] = []
        """The consumers of calls, and the number of their replicas."""
        self.handed_over: list[int] = []
        """The calls that may be handed over."""
        self.due_us: list[int] = []
        """The due time of each start."""

    def start_invocation(self, command: pb.Command, listener: InvocationListener, inputs: Sequence[bytes]) -> int:
        self.started.append((command.start.invocation, command.start.attempt))
        self.due_us.append(command.start.due_us)
        self.listeners[command.start.invocation] = listener
        self.requested[command.start.invocation] = list(command.start.outputs)
        self.delivered[command.start.invocation] = list(command.start.delivered)
        return command.start.invocation

    def cancel_invocation(self, call: int, code: str) -> None:
        del self.listeners[call]

    def discard_streams(self, call: int, outputs: Sequence[str]) -> None:
        self.discarded.append((call, list(outputs)))

    def expect_taking(self, call: int) -> None:
        self.taking.add(call)

    def end_taking(self, call: int) -> None:
        self.taking.discard(call)

    def bind_consumer(self, call: int, endpoint: str, replicas: int) -> None:
        self.bound.append((call, endpoint, replicas))

    def hand_over(self, call: int) -> None:
        self.handed_over.append(call)

    def retain_tensors(self, call: int) -> None:
        self.retained.add(call)

    def release_tensors(self, call: int) -> None:
        self.retained.remove(call)

    def end(self, invocation: int, code: str = "OK") -> None:
        self.listeners.pop(invocation).on_end(code, "", b"")


class FakePool(ReplicaPool):
    def __init__(self) -> None:
        super().__init__(CREDENTIALS)
        self.replicas = [FakeReplica("a:1"), FakeReplica("b:1")]

    def select(
        self,
        key: str,
        routing: RoutingPolicy,
        invocation: RoutedInvocation,
        *,
        unrouted_endpoints: Sequence[str],
        exclude: Set[str] = frozenset(),
        needs_capacity: bool = False,
        on_choice: OnChoice | None = None,
    ) -> ReplicaConnection | None:
        found = (replica for replica in self.replicas if replica.endpoint not in exclude)
        return cast("ReplicaConnection | None", next(found, None))


@pytest.fixture
def pool() -> FakePool:
    return FakePool()


@pytest.fixture
def policies() -> AppPolicies:
    return AppPolicies()


@pytest.fixture
def bindings() -> dict[str, Binding]:
    """The bindings of the request's path in the plan, by executor. By default, the app has no plan."""
    return {}


@pytest_asyncio.fixture(loop_scope="module")
async def dispatch_code(
    pool: FakePool, policies: AppPolicies, bindings: dict[str, Binding]
) -> AsyncIterator[DispatchCode]:
    dispatchers: list[Dispatcher] = []

    def dispatch_code(record: Callable[[], None], *, streams: bool = False) -> Dispatcher:
        recording = Recording(ReplayableRandom("request"))
        recording.run("Graph", record)
        keys = {task.key for task in (LinkTask(), ChunksTask(), CountedChunksTask(), WordsTask())}
        endpoints = {key: ["a:1", "b:1"] for key in keys}
        groups = {key: key for key in keys}
        route = RequestRoute(
            1,
            [1.0],
            groups,
            endpoints,
            policies=policies,
            cell_groups={"cell": groups},
            bindings={"type": [bindings]},
            options={UnplannedTask().key: "unplanned"},
        )
        deadline = asyncio.get_running_loop().time() + 60
        sums = AppStats()
        sums.set_targets(policies.targets)
        ids, stats = RequestIds("request", "request", "request"), RequestStats(sums)
        dispatcher = Dispatcher(ids, route, pool, stats, None, attempt=0, arrived_us=ARRIVED_US, deadline=deadline)
        dispatchers.append(dispatcher)
        if bindings:
            dispatcher.use_path(CellPath("type", "cell", 0))
        dispatcher.dispatch(recording.invocations, streams=streams)
        dispatcher.end_recording()
        return dispatcher

    yield dispatch_code
    for dispatcher in dispatchers:
        dispatcher.close()


@pytest.fixture
def dispatch(dispatch_code: DispatchCode) -> Dispatch:
    def dispatch(graph: Sequence[Sequence[int]]) -> Dispatcher:
        def record() -> None:
            links: list[Link] = []
            for producers in graph:
                links.append(LinkTask().invoke(LinkRequest(inputs=[links[producer].tensor for producer in producers])))

        return dispatch_code(record)

    return dispatch


DIAMOND: list[list[int]] = [[], [0], [0, 1]]


@pytest.mark.parametrize("policies", [AppPolicies(targets=LatencyTargetSettings(ttft_seconds=2))])
async def test_invocations_of_apps_with_targets_have_a_due_time(pool: FakePool, dispatch: Dispatch) -> None:
    dispatch(DIAMOND)
    assert pool.replicas[0].due_us == [ARRIVED_US + 2_000_000] * 3


async def test_invocations_of_other_apps_have_no_due_time(pool: FakePool, dispatch: Dispatch) -> None:
    dispatch(DIAMOND)
    assert pool.replicas[0].due_us == [0, 0, 0]


async def test_a_consumer_of_several_abandoned_attempts_is_retried_once(pool: FakePool, dispatch: Dispatch) -> None:
    dispatch(DIAMOND)
    first, second = pool.replicas
    assert first.started == [(0, 0), (1, 0), (2, 0)]

    first.end(0, "UNAVAILABLE")

    assert second.started == [(0, 1)]
    assert first.started[3:] == [(1, 1), (2, 1)]


async def test_invocations_that_wait_for_a_replica_start_once_when_it_is_available(
    pool: FakePool, dispatch: Dispatch, clock: LoopClock
) -> None:
    replicas, pool.replicas = pool.replicas, []
    pool.update_group(LinkTask().key, {})
    dispatch(DIAMOND)
    await asyncio.sleep(0)

    pool.replicas = replicas
    pool._changes.notify()
    await until(lambda: len(replicas[0].started) == 3)
    clock.advance(2 * PLACEMENT_SECONDS)
    await asyncio.sleep(0)

    assert replicas[0].started == [(0, 0), (1, 0), (2, 0)]


async def test_an_invocation_that_cannot_continue_is_not_tried_again(pool: FakePool, dispatch: Dispatch) -> None:
    (execution,) = dispatch([[]]).executions

    pool.replicas[0].end(0, "CANNOT_CONTINUE")

    assert execution.invocation.error is not None
    assert execution.invocation.error.code == "CANNOT_CONTINUE"
    assert pool.replicas[1].started == []


async def test_a_failure_fails_a_long_chain_of_consumers(pool: FakePool, dispatch: Dispatch) -> None:
    chain = dispatch([[], *([index] for index in range(255))])

    pool.replicas[0].end(0, "INTERNAL")

    assert {str(execution.invocation.error) for execution in chain.executions} == {
        str(chain.executions[0].invocation.error)
    }
    assert all(execution.is_finished for execution in chain.executions)
    assert pool.replicas[0].listeners == {}


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (UnplannedTask(), "the plan of the app has no replicas of UnplannedTask for this request: make it again"),
        (MissingTask(), "unit task MissingTask is not deployed: create it in post_init"),
    ],
)
async def test_a_call_of_a_task_without_replicas_fails_by_its_cause(
    task: LinkTask, message: str, dispatch_code: DispatchCode
) -> None:
    def record() -> None:
        task.invoke(LinkRequest(inputs=[]))

    with pytest.raises(TaskError, match=message):
        dispatch_code(record)


async def test_tensors_are_released_once_all_their_consumers_have_ended(pool: FakePool, dispatch: Dispatch) -> None:
    dispatch(DIAMOND)
    replica = pool.replicas[0]

    replica.end(0)
    replica.end(1)
    assert replica.retained == {0, 1}

    replica.end(2)
    assert replica.retained.isdisjoint({0, 1})


async def test_a_tensor_is_released_once_all_its_consumers_have_ended_or_taken_it(
    pool: FakePool, dispatch: Dispatch
) -> None:
    dispatch(DIAMOND)
    replica = pool.replicas[0]

    replica.end(0)
    replica.listeners[2].on_inputs_taken([0])
    assert replica.retained == {0}

    replica.listeners[1].on_inputs_taken([0])
    assert replica.retained == set()

    replica.end(1)
    assert replica.retained == {1}


async def test_a_tensor_that_was_taken_before_its_producer_has_ended_is_released_then(
    pool: FakePool, dispatch: Dispatch
) -> None:
    dispatch([[], [0]])
    replica = pool.replicas[0]

    replica.listeners[1].on_inputs_taken([0])
    replica.end(0)

    assert replica.retained == set()


async def test_a_consumer_that_dies_after_it_has_taken_a_tensor_gets_it_again(
    pool: FakePool, dispatch: Dispatch
) -> None:
    dispatch([[], [0]])
    first, second = pool.replicas
    first.end(0)
    first.listeners[1].on_inputs_taken([0])

    first.end(1, "ABORTED")
    second.listeners.pop(1).on_inputs_lost([0], "the tensor has been released")

    await until(lambda: (0, 1) in [*first.started, *second.started])


async def test_the_producer_of_a_tensor_runs_again_for_a_stream_that_is_handed_over_without_its_state(
    pool: FakePool, dispatch_code: DispatchCode
) -> None:
    def record() -> None:
        WordsTask().invoke(LinkRequest(inputs=[LinkTask().invoke(LinkRequest(inputs=[])).tensor]))

    dispatch_code(record, streams=True)
    replica = pool.replicas[0]
    replica.end(0)
    replica.listeners[1].on_chunk("words", b'"a"')
    replica.listeners[1].on_inputs_taken([0])
    assert replica.retained == set()

    replica.listeners[1].on_replica_leaving()
    assert replica.handed_over == [1]
    replica.listeners.pop(1).on_handed_over("", has_state=False)
    replica.listeners.pop(1).on_inputs_lost([0], "the tensor has been released")
    await until(lambda: len(replica.started) == 5)

    assert replica.started == [(0, 0), (1, 0), (1, 1), (0, 1), (1, 2)]


async def test_the_state_of_a_stream_that_is_handed_over_is_released_when_the_stream_fails(
    pool: FakePool, dispatch_code: DispatchCode
) -> None:
    def record() -> None:
        WordsTask().invoke(LinkRequest(inputs=[]))

    dispatch_code(record, streams=True)
    first, second = pool.replicas
    first.listeners[0].on_chunk("words", b'"a"')
    first.listeners[0].on_replica_leaving()
    pool.replicas.remove(first)
    first.listeners.pop(0).on_handed_over("", has_state=True)
    assert first.retained == {0}

    second.end(0, "INTERNAL")

    assert first.retained == set()


async def test_a_response_without_a_stream_continues_after_the_items_that_are_sent_when_its_replica_leaves(
    pool: FakePool, dispatch_code: DispatchCode
) -> None:
    def record() -> None:
        WordsTask().invoke(LinkRequest(inputs=[]))

    dispatch_code(record)
    first, second = pool.replicas
    assert first.requested[0] == []

    first.listeners[0].on_replica_leaving()
    first.listeners[0].on_chunk("words", b'"a"')
    pool.replicas.remove(first)
    first.listeners.pop(0).on_handed_over("", has_state=False)

    assert second.started == [(0, 1)]
    assert second.requested[0] == []
    assert second.delivered[0] == [pb.OutputChunk(output="words", item=b'"a"')]


@pytest.mark.parametrize("inputs", [[1], [2**32 - 1], [0, 0, 7]])
async def test_the_loss_of_inputs_that_an_invocation_does_not_have_fails_it(
    pool: FakePool, dispatch: Dispatch, inputs: list[int]
) -> None:
    dispatcher = dispatch([[], [0]])
    replica = pool.replicas[0]

    replica.listeners.pop(1).on_inputs_lost(inputs, "lost")

    error = dispatcher.executions[1].invocation.error
    assert error is not None
    assert "the executor reported that inputs are lost which are not tensors" in str(error)
    assert replica.started == [(0, 0), (1, 0)]


with_late_binding = pytest.mark.parametrize("policies", [AppPolicies(binding="late")])


@with_late_binding
async def test_late_binding_selects_a_replica_when_the_only_producer_has_ended(
    pool: FakePool, dispatch: Dispatch
) -> None:
    dispatch([[], [0], [1]])
    first, second = pool.replicas
    assert first.started == [(0, 0)]

    pool.replicas.reverse()
    first.end(0)

    assert second.started == [(1, 0)]


@pytest.mark.parametrize(
    ("policies", "bindings", "started"),
    [
        (AppPolicies(), {LinkTask().key: "late"}, [(0, 0)]),
        (AppPolicies(binding="late"), {LinkTask().key: "early"}, [(0, 0), (1, 0)]),
        (AppPolicies(binding="late"), {WordsTask().key: "early"}, [(0, 0)]),
    ],
)
async def test_the_binding_of_a_step_of_the_plan_replaces_that_of_the_app(
    pool: FakePool, dispatch: Dispatch, started: list[tuple[int, int]]
) -> None:
    dispatch([[], [0]])

    assert pool.replicas[0].started == started


@with_late_binding
async def test_late_binding_does_not_hold_consumers_of_several_producers(pool: FakePool, dispatch: Dispatch) -> None:
    dispatch([[], [], [0, 1]])

    assert pool.replicas[0].started == [(0, 0), (1, 0), (2, 0)]


@with_late_binding
async def test_late_binding_does_not_hold_readers_of_streams(pool: FakePool, dispatch_code: DispatchCode) -> None:
    dispatch_code(lambda: counted_chain(continues=False))

    assert pool.replicas[0].started == [(0, 0), (1, 0)]


@with_late_binding
async def test_a_held_consumer_waits_for_the_next_attempt_of_its_producer(pool: FakePool, dispatch: Dispatch) -> None:
    dispatch([[], [0]])
    first, second = pool.replicas

    first.end(0, "UNAVAILABLE")
    assert second.started == [(0, 1)]

    second.end(0)
    assert first.started == [(0, 0), (1, 0)]


@with_late_binding
async def test_a_held_consumer_fails_with_its_producer(pool: FakePool, dispatch: Dispatch) -> None:
    dispatcher = dispatch([[], [0]])

    pool.replicas[0].end(0, "INTERNAL")

    assert dispatcher.executions[1].invocation.error is dispatcher.executions[0].invocation.error


@with_late_binding
async def test_a_held_consumer_whose_input_is_lost_waits_until_it_is_repeated(
    pool: FakePool, dispatch: Dispatch, clock: LoopClock
) -> None:
    dispatch([[], [0]])
    replica = pool.replicas[0]
    replica.end(0)

    lose_input(replica, 1)
    clock.advance(2 * PLACEMENT_SECONDS)
    await asyncio.sleep(0)
    assert replica.started == [(0, 0), (1, 0), (0, 1)]

    replica.end(0)
    assert replica.started[3:] == [(1, 1)]


async def test_a_producer_learns_which_of_several_replicas_reads_its_tensor(pool: FakePool, dispatch: Dispatch) -> None:
    dispatch([[], [0]])
    first, second = pool.replicas
    assert first.bound == [(0, "a:1", 2)]
    assert first.taking == {1}

    first.end(0)
    first.listeners.pop(1).on_end("ABORTED", "it died", b"")

    assert second.started == [(1, 1)]
    assert first.bound == [(0, "a:1", 2), (0, "b:1", 2)]


@with_late_binding
async def test_a_producer_that_has_ended_learns_its_consumer_with_late_binding(
    pool: FakePool, dispatch: Dispatch
) -> None:
    dispatch([[], [0]])
    first, _ = pool.replicas
    assert first.bound == []

    first.end(0)
    assert first.bound == [(0, "a:1", 2)]

    first.listeners[1].on_inputs_taken([0])
    assert first.taking == set()


async def test_executors_that_do_not_limit_consumers_do_not_learn_them(pool: FakePool, dispatch: Dispatch) -> None:
    pool.replicas[0].limits_consumers = False
    dispatch([[], [0]])

    assert pool.replicas[0].bound == []
    assert pool.replicas[0].taking == set()


def counted_chain(*, continues: bool) -> None:
    first = CountedChunksTask().invoke(ChunksRequest(continues=continues))
    ChunksTask().invoke(ChunksRequest(chunks=first.chunks))


def lose_input(replica: FakeReplica, invocation: int) -> None:
    replica.listeners.pop(invocation).on_inputs_lost([0], "it is lost")


async def test_only_consumed_streams_are_requested(pool: FakePool, dispatch_code: DispatchCode) -> None:
    dispatch_code(lambda: counted_chain(continues=False))

    assert pool.replicas[0].requested == {0: ["chunks"], 1: []}


async def test_a_producer_of_streams_that_nobody_reads_any_more_is_cancelled(
    pool: FakePool, dispatch_code: DispatchCode
) -> None:
    def chain() -> None:
        second = ChunksTask().invoke(ChunksRequest(chunks=ChunksTask().invoke(ChunksRequest()).chunks))
        CountedChunksTask().invoke(ChunksRequest(chunks=second.chunks))

    chain_dispatcher = dispatch_code(chain)
    replica = pool.replicas[0]

    replica.end(2, "INTERNAL")

    assert replica.listeners == {}
    assert [execution.is_finished for execution in chain_dispatcher.executions] == [True, True, True]
    assert [execution.invocation.error is None for execution in chain_dispatcher.executions] == [True, True, False]


async def test_a_producer_with_other_outputs_continues_without_its_consumer(
    pool: FakePool, dispatch_code: DispatchCode
) -> None:
    dispatch_code(lambda: counted_chain(continues=False))
    replica = pool.replicas[0]

    replica.end(1)

    assert replica.discarded == [(0, ["chunks"])]
    assert list(replica.listeners) == [0]


async def test_a_running_producer_whose_stream_is_lost_starts_again(
    pool: FakePool, dispatch_code: DispatchCode
) -> None:
    dispatch_code(lambda: counted_chain(continues=False))
    replica = pool.replicas[0]

    lose_input(replica, 1)

    assert replica.started == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert replica.requested[0] == ["chunks"]


@pytest.mark.parametrize("continues", [False, True])
async def test_a_stream_whose_producer_has_sent_values_is_only_repeated_exactly(
    pool: FakePool, dispatch_code: DispatchCode, continues: bool
) -> None:
    dispatcher = dispatch_code(lambda: counted_chain(continues=continues))
    replica = pool.replicas[0]
    replica.end(0)

    lose_input(replica, 1)

    error = dispatcher.executions[1].invocation.error
    if continues:
        assert replica.started[2:] == [(0, 1), (1, 1)]
        assert error is None
    else:
        assert "CountedChunksTask cannot repeat its stream 'chunks' exactly" in str(error)


@pytest.mark.parametrize("continues", [False, True])
async def test_a_producer_that_dies_after_its_stream_has_been_read_is_only_repeated_exactly(
    pool: FakePool, dispatch_code: DispatchCode, continues: bool
) -> None:
    def chain() -> None:
        first = CountedChunksTask().invoke(ChunksRequest(continues=continues))
        CountedChunksTask().invoke(ChunksRequest(chunks=first.chunks))

    dispatcher = dispatch_code(chain)
    replica = pool.replicas[0]
    replica.end(1)

    replica.end(0, "ABORTED")

    error = dispatcher.executions[0].invocation.error
    assert (error is None) == continues
    assert pool.replicas[1].started == ([(0, 1)] if continues else [])


async def test_a_stream_is_not_repeated_for_a_consumer_with_output_unless_it_is_exact(
    pool: FakePool, dispatch_code: DispatchCode
) -> None:
    def chain() -> None:
        second = CountedChunksTask().invoke(
            ChunksRequest(chunks=ChunksTask().invoke(ChunksRequest()).chunks, continues=True)
        )
        CountedChunksTask().invoke(ChunksRequest(chunks=second.chunks))

    dispatcher = dispatch_code(chain)
    replica = pool.replicas[0]
    replica.end(0)
    replica.end(1)
    lose_input(replica, 2)
    assert replica.started[3:] == [(1, 1), (2, 1)]

    lose_input(replica, 1)

    assert "ChunksTask cannot repeat its stream 'chunks' exactly" in str(dispatcher.executions[1].invocation.error)
