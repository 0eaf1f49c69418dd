"""The KV connectors, driven like vLLM's scheduler and worker do."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cornserve.transport import Location
from cornserve.transport.memory import segment
from cornserve.transport.memory.segment import PAGE, SegmentMapping

if TYPE_CHECKING:
    from cornserve_executors.llm.kv_cache_connector import KvCacheConnector, KvTarget

BLOCKS, BLOCK_SIZE, LAYERS = 16, 4, 2

CONFIG: Any = SimpleNamespace(
    kv_transfer_config=SimpleNamespace(),
    cache_config=SimpleNamespace(block_size=BLOCK_SIZE),
    parallel_config=SimpleNamespace(world_size=1),
    model_config=SimpleNamespace(model="model", revision=None),
)

Create = Callable[[], "KvCacheConnector"]


@pytest.fixture
def create() -> Iterator[Create]:
    """Creates connectors of engines whose caches have different contents."""
    import torch
    from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole

    from cornserve_executors.llm.kv_cache_connector import KvCacheConnector

    created: list[KvCacheConnector] = []

    def create() -> KvCacheConnector:
        caches = SimpleNamespace(kv_cache_groups=[None], num_blocks=BLOCKS)
        connector = KvCacheConnector(CONFIG, KVConnectorRole.WORKER, caches)
        connector.register_kv_caches({f"{layer}": torch.rand(2, BLOCKS, BLOCK_SIZE, 8) for layer in range(LAYERS)})
        created.append(connector)
        return connector

    yield create
    for connector in created:
        connector.shutdown()


@pytest.fixture
def memory(tmp_path: Path) -> SegmentMapping:
    """A segment with one tensor, of the generation 7."""
    mapping, _ = segment.create(tmp_path, b"t" * segment.TOKEN_BYTES, 8)
    mapping.generations[0] = 7
    return mapping


@pytest.fixture
def messages(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "messages"))
        receiver.settimeout(30)
        yield receiver


def received(messages: socket.socket) -> tuple[bool, str]:
    """Returns whether a copy is done, and the key of its request."""
    from cornserve_executors.llm.kv_cache_connector import MESSAGE

    message = messages.recv(100)
    is_done, seconds, _ = MESSAGE.unpack_from(message)
    assert 0 <= seconds < 30
    return is_done, message[MESSAGE.size :].decode()


def location(memory: SegmentMapping, connector: KvCacheConnector, tokens: int) -> dict[str, Any]:
    nbytes = connector.format().nbytes(tokens)
    assert nbytes <= 8 * PAGE
    return asdict(Location(memory.path, memory.layout.data, nbytes, 7))


def step(
    connector: KvCacheConnector,
    new: Sequence[Any] = (),
    cached: Mapping[str, tuple[list[int], int]] | None = None,
    preempted: Collection[str] = (),
    **scheduled: int,
) -> None:
    """Runs a step.

    Args:
        cached: the new blocks and the computed tokens of requests of earlier steps.
        preempted: requests that the step preempts.
        scheduled: the number of tokens by request.
    """
    cached = cached or {}
    requests = SimpleNamespace(
        req_ids=[*cached],
        new_block_ids=[(blocks,) for blocks, _ in cached.values()],
        num_computed_tokens=[computed for _, computed in cached.values()],
        resumed_req_ids=set(),
    )
    output = SimpleNamespace(
        scheduled_new_reqs=new,
        scheduled_cached_reqs=requests,
        num_scheduled_tokens=dict(scheduled),
        preempted_req_ids=set(preempted),
    )
    connector.bind_connector_metadata(connector.build_connector_meta(output))
    connector.start_load_kv(None)
    connector.wait_for_save()
    connector.clear_connector_metadata()


def new_request(saved: KvTarget | None, tokens: int, blocks: list[int]) -> Any:
    from cornserve_executors.llm.kv_cache_connector import SAVE

    sampling = SimpleNamespace(extra_args=saved and {SAVE: asdict(saved)})
    return SimpleNamespace(
        req_id="a",
        sampling_params=sampling,
        prompt_token_ids=[*range(tokens)],
        block_ids=(blocks,),
        num_computed_tokens=0,
    )


def loading_request(
    connector: KvCacheConnector, memory: SegmentMapping, messages: socket.socket, tokens: int, computed: int = 1
) -> Any:
    """Returns a request that loads a prompt, of which it computes the last tokens again."""
    from cornserve_executors.llm.kv_cache_connector import LOAD, KvSource

    loaded = KvSource("b", messages.getsockname(), location(memory, connector, tokens), tokens, tokens - computed)
    sampling = SimpleNamespace(extra_args={LOAD: asdict(loaded)})
    return SimpleNamespace(request_id="b", sampling_params=sampling, num_preemptions=0)


def allocated(*blocks: int) -> Any:
    return SimpleNamespace(get_block_ids=lambda: ([*blocks],))


def save(connector: KvCacheConnector, memory: SegmentMapping, messages: socket.socket) -> None:
    """Saves a prompt of 10 tokens in the blocks 3, 5 and 9, whose last chunk is computed in a second step."""
    from cornserve_executors.llm.kv_cache_connector import KvTarget

    saved = KvTarget("a", messages.getsockname(), location(memory, connector, 10), 10)
    step(connector, [new_request(saved, 10, [3, 5])], a=8)
    step(connector, cached={"a": ([9], 8)}, a=2)


def save_running(connector: KvCacheConnector, memory: SegmentMapping, messages: socket.socket) -> None:
    """Saves two blocks of a running request."""
    from cornserve_executors.llm.kv_cache_connector import KvTarget

    connector.save_running("a", KvTarget("saved", messages.getsockname(), location(memory, connector, 8), 8))


def test_the_blocks_of_a_running_request_are_saved(
    create: Create, memory: SegmentMapping, messages: socket.socket
) -> None:
    import torch

    leaving, other = create(), create()
    step(leaving, [new_request(None, 4, [3])], a=4)
    step(leaving, cached={"a": ([5], 4)}, a=1)
    step(leaving, cached={"a": ([], 5)}, a=1)
    save_running(leaving, memory, messages)
    assert received(messages) == (True, "saved")

    request = loading_request(other, memory, messages, 8, computed=0)
    assert other.get_num_new_matched_tokens(request, 0) == (8, True)
    other.update_state_after_alloc(request, allocated(1, 0, 7), 8)
    step(other)

    assert received(messages) == (True, "b")
    assert torch.equal(other._caches[0][:, [1, 0]], leaving._caches[0][:, [3, 5]])


def test_a_request_whose_blocks_may_be_those_of_others_is_not_saved(
    create: Create, memory: SegmentMapping, messages: socket.socket
) -> None:
    ended, preempted, resumed = create(), create(), create()
    for connector in (ended, preempted, resumed):
        step(connector, [new_request(None, 8, [3, 5])], a=8)
    ended.get_transfer_results({"a"})
    step(preempted, preempted=["a"])
    step(resumed, preempted=["a"])
    step(resumed, cached={"a": ([1, 2], 0)}, a=4)

    for connector in (ended, preempted, resumed):
        save_running(connector, memory, messages)
        assert received(messages) == (False, "saved")


def test_all_blocks_are_saved_after_the_last_chunk_and_loaded(
    create: Create, memory: SegmentMapping, messages: socket.socket
) -> None:
    import torch

    prefill, decode = create(), create()
    save(prefill, memory, messages)
    assert received(messages) == (True, "a")

    request = loading_request(decode, memory, messages, 10)
    assert decode.get_num_new_matched_tokens(request, 0) == (9, True)
    decode.update_state_after_alloc(request, allocated(1, 0, 7, 8), 9)
    step(decode)

    assert received(messages) == (True, "b")
    assert decode.get_transfer_results(set()).finished_recving == {"b"}
    for source, target in zip(prefill._caches, decode._caches, strict=True):
        assert torch.equal(target[:, [1, 0, 7]], source[:, [3, 5, 9]])


def test_the_whole_prompt_is_loaded_before_a_known_token(
    create: Create, memory: SegmentMapping, messages: socket.socket
) -> None:
    import torch

    prefill, decode = create(), create()
    save(prefill, memory, messages)
    received(messages)

    request = loading_request(decode, memory, messages, 10, computed=0)
    assert decode.get_num_new_matched_tokens(request, 0) == (10, True)
    decode.update_state_after_alloc(request, allocated(1, 0, 7), 10)
    step(decode)

    assert received(messages) == (True, "b")
    assert torch.equal(decode._caches[0][:, [1, 0, 7]], prefill._caches[0][:, [3, 5, 9]])


def test_keys_and_values_of_zero_need_no_tensor(
    create: Create, memory: SegmentMapping, messages: socket.socket
) -> None:
    decode = create()
    request = loading_request(decode, memory, messages, 10)
    fields = next(iter(request.sampling_params.extra_args.values()))
    fields["location"] = None

    decode.update_state_after_alloc(request, allocated(1, 0, 7), 9)
    step(decode)

    assert received(messages) == (True, "b")
    assert not decode._caches[0][:, [1, 0, 7]].any()
    assert decode._caches[0][:, 2].any()


def test_blocks_that_are_cached_are_not_loaded(create: Create, memory: SegmentMapping, messages: socket.socket) -> None:
    import torch

    prefill, decode = create(), create()
    save(prefill, memory, messages)
    received(messages)
    before = decode._caches[0].clone()

    request = loading_request(decode, memory, messages, 10)
    assert decode.get_num_new_matched_tokens(request, 4) == (5, True)
    decode.update_state_after_alloc(request, allocated(1, 2, 7), 5)
    step(decode)

    assert received(messages) == (True, "b")
    assert torch.equal(decode._caches[0][:, 1], before[:, 1])
    assert torch.equal(decode._caches[0][:, [2, 7]], prefill._caches[0][:, [5, 9]])


def test_memory_is_given_up_at_once_if_nothing_has_to_be_loaded(
    create: Create, memory: SegmentMapping, messages: socket.socket
) -> None:
    decode = create()
    request = loading_request(decode, memory, messages, 9)

    assert decode.get_num_new_matched_tokens(request, 8) == (0, False)
    decode.update_state_after_alloc(request, allocated(1, 2, 7), 0)

    assert received(messages) == (True, "b")


def test_a_lost_tensor_fails_its_request(create: Create, memory: SegmentMapping, messages: socket.socket) -> None:
    decode = create()
    request = loading_request(decode, memory, messages, 10)
    memory.generations[0] = 8

    decode.update_state_after_alloc(request, allocated(1, 2, 7), 9)
    step(decode)

    assert received(messages) == (False, "b")
    assert decode.get_transfer_results(set()).failed_recving == {"b"}


def test_a_preempted_request_computes_its_prompt_itself(
    create: Create, memory: SegmentMapping, messages: socket.socket
) -> None:
    decode = create()
    request = loading_request(decode, memory, messages, 10)
    request.num_preemptions = 1

    assert decode.get_num_new_matched_tokens(request, 0) == (0, False)


def test_blocks_are_kept_until_they_are_saved(create: Create, memory: SegmentMapping, messages: socket.socket) -> None:
    prefill = create()
    save(prefill, memory, messages)

    assert prefill.request_finished(SimpleNamespace(request_id="a"), [3, 5, 9]) == (True, None)
    received(messages)
    assert prefill.get_transfer_results(set()).finished_sending == set()
    assert prefill.get_transfer_results({"a"}).finished_sending == {"a"}


def test_a_cancelled_request_that_is_not_computed_frees_its_blocks(
    create: Create, memory: SegmentMapping, messages: socket.socket
) -> None:
    from cornserve_executors.llm.kv_cache_connector import KvTarget

    prefill = create()
    saved = KvTarget("a", messages.getsockname(), location(memory, prefill, 10), 10)
    step(prefill, [new_request(saved, 10, [3, 5])], a=8)

    assert prefill.request_finished(SimpleNamespace(request_id="a"), [3, 5]) == (False, None)
    prefill.end_save(saved)
    assert received(messages) == (False, "a")


@pytest.mark.parametrize("groups", [0, 1, 2])
def test_executors_of_whole_requests_run_models_whose_cache_cannot_be_saved(groups: int) -> None:
    import torch
    from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole

    from cornserve_executors.llm.kv_cache_connector import HandOverConnector

    caches = SimpleNamespace(kv_cache_groups=[SimpleNamespace(kv_cache_spec=None)] * groups, num_blocks=BLOCKS)
    connector = HandOverConnector(CONFIG, KVConnectorRole.WORKER, caches)
    connector.register_kv_caches({"0": torch.rand(2, 5, BLOCK_SIZE, 8)})

    assert not connector.is_usable
    assert connector.request_finished_all_groups(SimpleNamespace(request_id="a"), ([1],) * groups) == (False, None)
    connector.shutdown()


def test_caches_without_one_axis_of_blocks_are_refused(create: Create) -> None:
    import torch

    with pytest.raises(ValueError, match="do not run apart with caches of the layouts"):
        create().register_kv_caches({"0": torch.rand(2, 5, BLOCK_SIZE, 8)})
