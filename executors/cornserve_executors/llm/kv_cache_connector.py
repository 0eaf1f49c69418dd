"""Copies KV caches between vLLM's engine and the data plane.

Prefill and decode run in different executors, and replicas that leave hand running requests over. A request that saves
names lent memory (`SAVE`). When a step has computed the last of the tokens to save, a thread copies their blocks there,
while further steps run, and then sends a message to the executor's main process: the memory is free of writers. The
blocks of a running request are copied between two steps (`save_running`). A request that loads names a received tensor
(`LOAD`): a thread copies it into blocks that the scheduler has allocated, sends a message, too, and the request runs.
Without a token that follows the loaded ones, vLLM computes the last of them again.

Only whole blocks are copied, because engines may pack the tokens of a block in any order.
"""

from __future__ import annotations

import logging
import socket
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from struct import Struct
from threading import Lock
from typing import Any

import torch
from vllm.config import VllmConfig
from vllm.distributed.kv_transfer import get_kv_transfer_group
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    SupportsHMA,
)
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.request import Request

from cornserve.transport import Location, SegmentReader, SegmentWriter, StaleError
from cornserve_executors.llm.block_copies import BlockCopies
from cornserve_executors.llm.kv_format import KvFormat
from cornserve_executors.llm.scheduled_requests import new_blocks, parameters, scheduled_requests
from cornserve_executors.tensor_copies import dtype_name

log = logging.getLogger(__name__)

SAVE = "save_kv"
"""The key in `SamplingParams.extra_args` of a prefill. The value is a `KvTarget` as a dictionary."""

LOAD = "load_kv"
"""The key in `SamplingParams.extra_args` of a decode. The value is a `KvSource` as a dictionary."""

ALTERNATIVE = "use a task that runs the whole model in one executor, such as Chat"

MESSAGE = Struct("<?dQ")
"""The head of a message to the main process: whether the copy is done, its seconds and its bytes. The key of the
request follows."""


@dataclass(slots=True)
class KvTarget:
    """The memory in which a KV cache is saved, and the progress."""

    key: str
    """Identifies the request in the main process."""
    socket: str
    """The path of the socket that receives the message."""
    location: dict[str, Any]
    """The lent memory, as the fields of a `Location`."""
    tokens: int
    """The number of tokens to save."""
    blocks: list[int] = field(default_factory=list)
    is_computed: bool = False
    """Whether a step has computed the last token."""


@dataclass(slots=True)
class KvSource:
    """The tensor from which a KV cache is loaded."""

    key: str
    """Identifies the request in the main process."""
    socket: str
    """The path of the socket that receives the message."""
    location: dict[str, Any] | None
    """The received tensor, as the fields of a `Location`. None for keys and values of zero."""
    tokens: int
    """The number of tokens in it."""
    loaded_tokens: int
    """The tokens that are not computed again: at most all, and fewer than the engine's request has."""


@dataclass(slots=True)
class BlockLoad:
    source: KvSource
    total: int
    """The number of blocks in the tensor."""
    first: int
    """The first of them to load."""
    blocks: list[int]
    """The blocks of the cache that receive them."""


@dataclass(slots=True)
class TransfersOfStep(KVConnectorMetadata):  # type: ignore[misc]
    """The copies that begin in a step, by request, and the changes of the blocks of running requests."""

    saves: dict[str, KvTarget] = field(default_factory=dict)
    loads: dict[str, BlockLoad] = field(default_factory=dict)
    new_blocks: dict[str, list[int]] = field(default_factory=dict)
    preempted: set[str] = field(default_factory=set)


class KvCacheConnector(KVConnectorBase_V1):  # type: ignore[misc]
    """The connector of prefill and decode executors.

    All layers have the same blocks, also those with a sliding window: vLLM has one table of blocks for a connector
    without `SupportsHMA`.
    """

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        if len(kv_cache_config.kv_cache_groups) != 1 or vllm_config.parallel_config.world_size != 1:
            self.refuse(
                "prefill and decode run apart only on one GPU, for models whose layers all have keys and values: "
                f"{ALTERNATIVE}"
            )
        self._config = vllm_config
        self._block_size: int = vllm_config.cache_config.block_size
        self._num_blocks: int = kv_cache_config.num_blocks
        self._saves: dict[str, KvTarget] = {}
        self._preempted: set[str] = set()
        """Unfinished requests that were preempted. Their tokens may be computed again at the moment."""
        self._step = TransfersOfStep()
        self._caches: list[torch.Tensor] = []
        self._blocks: defaultdict[str, list[int]] = defaultdict(list)
        """The blocks of the running requests that were never preempted."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kv-cache")
        self._lock = Lock()
        self._saving: set[str] = set()
        """Requests whose saves have begun and are not reported to the scheduler yet."""
        self._saved: set[str] = set()
        self._finished: set[str] = set()
        """Saving requests that have finished."""
        self._results = KVConnectorTransferResults()
        self._reader = SegmentReader()
        self._writer = SegmentWriter()

    def refuse(self, problem: str) -> None:
        """Handles a model whose KV cache cannot be saved and loaded."""
        raise ValueError(problem)

    # Called in the scheduler

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int, bool]:
        fields = parameters(request.sampling_params).get(LOAD)
        if fields is None or request.num_preemptions:  # The memory of a preempted request may be free.
            return 0, False
        missing = KvSource(**fields).loaded_tokens - num_computed_tokens
        return (missing, True) if missing > 0 else (0, False)

    def update_state_after_alloc(self, request: Request, blocks: Any, num_external_tokens: int) -> None:
        fields = parameters(request.sampling_params).get(LOAD)
        if fields is None:
            return
        source = KvSource(**fields)
        if not num_external_tokens:  # The blocks are cached already, or loaded.
            _send(source, is_done=True)
            return
        first = (source.loaded_tokens - num_external_tokens) // self._block_size
        end = -(-source.loaded_tokens // self._block_size)
        total = -(-source.tokens // self._block_size)
        targets = list(blocks.get_block_ids()[0][first:end])
        self._step.loads[request.request_id] = BlockLoad(source, total, first, targets)

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> TransfersOfStep:
        for request in scheduled_requests(scheduler_output, self._saves):
            if SAVE in request.parameters:
                self._saves.setdefault(request.id, KvTarget(**request.parameters[SAVE]))
            if (target := self._saves.get(request.id)) is None:
                continue
            request.add_blocks(target.blocks)
            if request.end >= target.tokens and not target.is_computed:
                target.is_computed = True
                self._step.saves[request.id] = target
        step, self._step = self._step, TransfersOfStep()
        step.preempted = scheduler_output.preempted_req_ids or set()
        self._preempted |= step.preempted
        step.new_blocks = {id: blocks for id, blocks in new_blocks(scheduler_output) if id not in self._preempted}
        return step

    def request_finished(self, request: Request, block_ids: list[int]) -> tuple[bool, None]:
        """Keeps the blocks of a request until they are saved."""
        self._preempted.discard(request.request_id)
        target = self._saves.pop(request.request_id, None)
        return target is not None and target.is_computed, None

    # Called in the worker

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        self._caches = [*kv_caches.values()]
        layouts = {(cache.dtype, cache.shape) for cache in self._caches}
        if len(layouts) != 1 or list(self._caches[0].shape).count(self._num_blocks) != 1:
            self.refuse(f"prefill and decode do not run apart with caches of the layouts {layouts}: {ALTERNATIVE}")
            return
        self._copies = BlockCopies(self._caches, list(self._caches[0].shape).index(self._num_blocks))

    def format(self) -> KvFormat:
        cache, model = self._caches[0], self._config.model_config
        shape = tuple(self._copies.shape(1))
        return KvFormat(
            model.model, model.revision, dtype_name(cache.dtype), self._block_size, shape, len(self._caches)
        )

    def end_save(self, target: KvTarget) -> None:
        """Sends a message after the save of a request that has ended, if there is one."""
        self._thread.submit(_send, target, is_done=False)

    def save_running(self, id: str, target: KvTarget) -> None:
        """Saves the blocks of a running request, which has computed their tokens. Must be called between two steps:
        later ones may give the blocks to other requests."""
        target.blocks = self._blocks.get(id, [])
        is_complete = len(target.blocks) >= self.format().blocks(target.tokens)
        self._report(target, self._copy(target, self._computed()) if is_complete else None)

    def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
        super().bind_connector_metadata(connector_metadata)
        for id in self._transfers.preempted:
            self._blocks.pop(id, None)
        for id, blocks in self._transfers.new_blocks.items():
            self._blocks[id] += blocks
        # vLLM calls `start_load_kv` when it has launched the step, which a CPU has then computed.
        if not self._is_cuda:
            self._start_loads()

    def start_load_kv(self, forward_context: Any, **_: Any) -> None:
        if self._is_cuda:
            self._start_loads()

    def _start_loads(self) -> None:
        for id, load in self._transfers.loads.items():
            self._thread.submit(self._load, id, load)

    def wait_for_save(self) -> None:
        """Begins to save the blocks whose last token the step has computed."""
        if not (saves := self._transfers.saves):
            return
        computed = self._computed()
        for id, target in saves.items():
            self._saving.add(id)
            self._thread.submit(self._save, id, target, computed)

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        for id in finished_req_ids:
            self._blocks.pop(id, None)
        with self._lock:
            results, self._results = self._results, KVConnectorTransferResults()
            self._finished |= finished_req_ids & self._saving
            results.finished_sending = self._finished & self._saved
            self._saving -= results.finished_sending
            self._saved -= results.finished_sending
            self._finished -= results.finished_sending
        return results

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Does nothing, because a request runs after all its layers have been loaded."""

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **_: Any) -> None:
        """Does nothing, because the blocks are saved after the step."""

    def shutdown(self) -> None:
        self._thread.shutdown(cancel_futures=True)

    @property
    def _is_cuda(self) -> bool:
        return bool(self._caches) and self._caches[0].is_cuda

    def _computed(self) -> torch.cuda.Event | None:
        """Returns the end of the steps that have been launched on a GPU."""
        return torch.cuda.current_stream().record_event() if self._is_cuda else None

    @property
    def _transfers(self) -> TransfersOfStep:
        step = self._get_connector_metadata()
        assert isinstance(step, TransfersOfStep)
        return step

    # Called in the thread

    # vLLM neither preempts a request nor frees its blocks between the step that computes its last token and its end
    # (`defer_block_free`), so that the thread may read them.

    def _save(self, id: str, target: KvTarget, computed: torch.cuda.Event | None) -> None:
        seconds = self._copy(target, computed)
        with self._lock:
            self._saved.add(id)
        self._report(target, seconds)

    def _copy(self, target: KvTarget, computed: torch.cuda.Event | None) -> float | None:
        """Copies the blocks of a request. Returns the seconds, or None if nothing is saved."""
        blocks = target.blocks[: self.format().blocks(target.tokens)]
        try:
            buffer = self._writer.buffer(Location(**target.location))
            if computed is not None:
                computed.synchronize()
            started = time.perf_counter()
            self._copies.save(blocks, buffer)
            return time.perf_counter() - started
        except StaleError:
            pass  # The request was cancelled, and its main process waits for the message.
        except Exception:  # The main process reports that nothing is saved.
            log.exception("cannot save the KV cache of a request")
        return None

    def _report(self, target: KvTarget, seconds: float | None) -> None:
        _send(target, seconds is not None, seconds or 0, self.format().nbytes(target.tokens))

    def _load(self, id: str, load: BlockLoad) -> None:
        seconds = None
        try:
            started = time.perf_counter()
            self._load_blocks(load)
            seconds = time.perf_counter() - started
        except StaleError:
            pass  # vLLM ends the request, and the main process finds out why.
        except Exception:  # vLLM ends the request.
            log.exception("cannot load the KV cache of a request")
        with self._lock:
            self._results.finished_recving.add(id)
            if seconds is None:
                self._results.failed_recving.add(id)
        nbytes = 0 if load.source.location is None else len(load.blocks) * self.format().token_block_bytes
        _send(load.source, seconds is not None, seconds or 0, nbytes)

    def _load_blocks(self, load: BlockLoad) -> None:
        """Raises `StaleError` if the tensor has been revoked."""
        if load.source.location is None:
            self._copies.clear(load.blocks)
            return
        location = Location(**load.source.location)
        self._copies.load(load.blocks, self._reader.view(location), load.first, load.total)
        self._reader.check(location)


class HandOverConnector(KvCacheConnector, SupportsHMA):  # type: ignore[misc]
    """The connector of executors that run whole requests, which they hand over when they leave.

    It changes nothing else: layers with a sliding window have separate blocks, and a model whose KV cache cannot be
    saved runs without.
    """

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: Any) -> None:
        self.is_usable = all(
            isinstance(group.kv_cache_spec, FullAttentionSpec) for group in kv_cache_config.kv_cache_groups
        )
        super().__init__(vllm_config, role, kv_cache_config)

    def refuse(self, problem: str) -> None:
        self.is_usable = False

    def request_finished_all_groups(self, request: Request, block_ids: tuple[list[int], ...]) -> tuple[bool, None]:
        return self.request_finished(request, [])


def kv_cache_connector() -> KvCacheConnector:
    """Returns the connector of this worker."""
    connector = get_kv_transfer_group()
    assert isinstance(connector, KvCacheConnector)
    return connector


def _send(copied: KvTarget | KvSource, is_done: bool, seconds: float = 0, nbytes: int = 0) -> None:
    """Sends a message to the main process, unless it has exited."""
    head = MESSAGE.pack(is_done, seconds, nbytes)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(head + copied.key.encode(), copied.socket)
    except OSError as error:
        log.warning("cannot send a message about a KV cache: %s", error)
