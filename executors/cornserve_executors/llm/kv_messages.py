"""Messages of an executor's engine process about its copies of KV caches.

An executor that saves a KV cache lends memory to its engine, which may still write when the request has been cancelled:
the memory is not reused before the engine has sent its message, or has died with the executor. An executor gives a
received KV cache up when its engine has loaded it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cornserve.transport import Slot, TensorView
from cornserve_executors.llm.kv_cache_connector import MESSAGE, KvSource, KvTarget
from cornserve_executors.llm.kv_format import KvMetadata
from cornserve_executors.llm.kv_stats import KvStats

log = logging.getLogger(__name__)

MESSAGE_BYTES = 4096


class LentSlot:
    """Memory that the engine writes to."""

    def __init__(self, slot: Slot, target: KvTarget) -> None:
        self.target = target
        self._buffer: memoryview | None = slot.buffer
        """The memory, which is not reused while this exists."""
        self._saved: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def wait_saved(self) -> None:
        """Waits until the engine has written. Raises `RuntimeError` if it will not."""
        if not await asyncio.shield(self._saved):
            raise RuntimeError("the engine has not saved the KV cache")

    def on_message(self, is_done: bool) -> None:
        self._buffer = None  # The traceback of a cancelled invocation may still refer to this object.
        if not self._saved.done():
            self._saved.set_result(is_done)


class PrefilledKv:
    """A received KV cache that the engine loads.

    Args:
        is_state: whether another replica has handed it over with the invocation, which can do without it.
    """

    def __init__(self, tensor: TensorView, key: str, socket: str, *, is_state: bool) -> None:
        self.tensor = tensor
        self.is_state = is_state
        self.metadata = KvMetadata.decode(tensor.metadata)
        self.unread: Sequence[TensorView] = [tensor]
        """The tensor, until the engine has a copy."""
        self._key = key
        self._socket = socket

    @property
    def is_zero(self) -> bool:
        """Whether the keys and values are zeros."""
        return self.metadata.format is None

    def source(self, prompt_tokens: int, tokens: int) -> KvSource:
        """Returns where the engine finds the KV cache.

        Args:
            prompt_tokens: the length of the prompt.
            tokens: the length with the tokens of the response that are known.
        """
        saved = self.metadata.tokens or prompt_tokens
        # vLLM computes at least one token. It would load a prompt of one token again and again, because it then counts
        # no token as computed.
        loaded = min(saved, tokens - 1)
        location = None if self.is_zero else asdict(self.tensor.location)
        return KvSource(self._key, self._socket, location, saved, loaded)


class KvMessages:
    """Receives the messages. The directory of its socket belongs to this user alone."""

    def __init__(self, stats: KvStats) -> None:
        self._stats = stats
        self._directory = tempfile.TemporaryDirectory(prefix="cornserve-kv-")
        self._path = str(Path(self._directory.name) / "messages")
        self._expected: dict[bytes, Callable[[bool], None]] = {}
        """The functions that receive whether a copy is done, by the keys of the requests."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(self._path)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._receive)

    @asynccontextmanager
    async def lend(
        self, key: str, slot: Slot, tokens: int, end_save: Callable[[KvTarget], Coroutine[Any, Any, None]]
    ) -> AsyncIterator[LentSlot]:
        """Lends the memory to the engine, until it sends its message.

        Args:
            tokens: the number of tokens to save.
            end_save: after an error, lets the engine, whose request has ended, send its message.
        """
        lent = LentSlot(slot, KvTarget(key, self._path, asdict(slot.location), tokens))
        self._expected[key.encode()] = lent.on_message
        try:
            yield lent
        except BaseException:
            self._start(end_save(lent.target))
            raise

    def receive(
        self,
        key: str,
        tensor: TensorView,
        release: Callable[[], Coroutine[Any, Any, None]],
        *,
        is_state: bool = False,
    ) -> PrefilledKv:
        """Returns a KV cache for the engine, which is released as soon as the engine has loaded it."""
        prefilled = PrefilledKv(tensor, key, self._path, is_state=is_state)

        def on_message(is_done: bool) -> None:
            if is_done:
                prefilled.unread = ()
                self._start(release())

        self._expected[key.encode()] = on_message
        return prefilled

    def forget(self, key: str) -> None:
        """Ignores a message that may come."""
        self._expected.pop(key.encode(), None)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        self._directory.cleanup()
        self._expected.clear()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("memory of a KV cache may stay in use until the executor ends", exc_info=error)

    def _receive(self) -> None:
        while True:
            try:
                message = self._socket.recv(MESSAGE_BYTES)
            except BlockingIOError:
                return
            is_done, seconds, nbytes = MESSAGE.unpack_from(message)
            if is_done and nbytes:
                self._stats.record(seconds, nbytes)
            on_message = self._expected.pop(message[MESSAGE.size :], None)
            if on_message is not None:
                on_message(is_done)
