"""Copies tensors with UCX, by its Python library ucxx.

The producer sends a tagged message, because ucxx has no operation that reads the memory of another process. The
library runs in a thread: creating a worker and connecting take about 15 ms each. A worker has a file descriptor that
becomes readable when it has work, so that idle connections use no CPU.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from typing import Any, Final

from cornserve.pull_protocol import PullProtocol
from cornserve.transport.memory.step_registrations import StepRegistrations
from cornserve.transport.pull import ucx_address
from cornserve.transport.pull.loop_thread import LoopThread

_OPTIONS: Final = {
    # The consumer reads, or copies the parts of a message itself. A producer that writes to the consumer's memory could
    # do so after the consumer has cancelled the pull.
    "RNDV_SCHEME": "get_zcopy",
    "TCP_PUT_ENABLE": "n",
    # UCX would block the thread, and so all links, until a process that cannot be reached has accepted a connection.
    "TCP_CONN_NB": "y",
    # The format of addresses that `ucx_address` checks.
    "ADDRESS_VERSION": "v1",
    "ADDRESS_DEBUG_INFO": "n",
    "UNIFIED_MODE": "n",
}

_TRANSPORTS: Final = ("^sm,tcp", "^sm")
"""The transports of UCX: those without TCP, and those for machines without a device for RDMA.

Over TCP, each process that reaches UCX's port can write the memory of this process. Shared memory is never used: its
peers could go on to read or write it after the link is closed.
"""

_ENVIRONMENT: Final = {
    "UCX_WARN_UNUSED_ENV_VARS": "n",
    "UCX_LOG_FILE": "stderr",
    "UCX_LOG_LEVEL": "error",  # a request that ends with its worker is a warning
}

_RDMA_TRANSPORTS: Final = ("rc_", "dc_", "ud_", "srd", "gga_")
"""The beginnings of the names of UCX's transports over InfiniBand, RoCE and EFA."""

PROGRESS_SECONDS: Final = 0.001
"""Time for which a worker makes progress before the thread runs others."""

_FIELDS_ADDRESS_AND_LENGTH: Final = 0b11


class _MemoryParameters(ctypes.Structure):
    """`ucp_mem_map_params_t`."""

    _fields_ = (
        ("field_mask", ctypes.c_uint64),
        ("address", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
        ("flags", ctypes.c_uint),
        ("prot", ctypes.c_uint),
        ("memory_type", ctypes.c_int),
        ("exported_handle", ctypes.c_void_p),
    )


class UcxFabric:
    """UCX in this process. All calls of the library are in one thread."""

    protocol: PullProtocol = PullProtocol.UCX

    def __init__(self, thread: LoopThread) -> None:
        self.thread = thread
        for variable, value in _ENVIRONMENT.items():
            os.environ.setdefault(variable, value)
        from ucxx._lib import libucxx as ucxx
        from ucxx._lib.arr import Array

        self.ucxx, self.array = ucxx, Array
        without_tcp, with_tcp = _TRANSPORTS
        self.has_rdma = self._open_context(without_tcp)
        if not self.has_rdma:
            self._open_context(with_tcp)
        self.version = _version()
        self.registrations = StepRegistrations(self._register, "cannot register memory with UCX: pulls are slower")
        self._handles: list[ctypes.c_void_p] = []
        self.links: set[UcxLink] = set()

    @classmethod
    async def start(cls) -> UcxFabric:
        """Raises `ImportError` if ucxx is not installed, and `OSError` if UCX does not start."""

        async def create() -> UcxFabric:
            fabric = cls(thread)
            await fabric._check_address_format()
            return fabric

        thread = LoopThread("ucx")
        try:
            return await thread.run(create())
        except BaseException:
            await thread.stop()
            raise

    def _open_context(self, transports: str) -> bool:
        """Returns whether UCX uses a device for RDMA. Raises `OSError` if UCX does not start."""
        features = (self.ucxx.Feature.TAG, self.ucxx.Feature.WAKEUP)  # without RMA: no process reads memory
        try:
            self.context = self.ucxx.UCXContext({**_OPTIONS, "TLS": transports}, features)
        except self.ucxx.UCXError as error:
            raise OSError(f"UCX does not start: {error}") from error
        resources = (line.rsplit(" ", 1)[-1] for line in self.context.info.splitlines() if " resource " in line)
        return any(resource.startswith(_RDMA_TRANSPORTS) for resource in resources)

    def link(self) -> UcxLink:
        return UcxLink(self)

    async def close(self) -> None:
        await self.thread.run(self._close())
        await self.thread.stop()

    async def _check_address_format(self) -> None:
        """Raises `OSError` if the addresses of this version of UCX cannot be checked."""
        link = UcxLink(self)
        try:
            ucx_address.parse(await link._open())
        except ValueError as error:
            raise OSError(f"UCX {self.version} has addresses of an unknown format: {error}") from error
        finally:
            link.end()

    async def _close(self) -> None:
        for link in list(self.links):
            link.end()
        for handle in self._handles:
            _library().ucp_mem_unmap(ctypes.c_void_p(self.context.handle), handle)
        self._handles.clear()

    def _register(self, address: int, nbytes: int, is_readonly: bool) -> Any:
        handle = ctypes.c_void_p()
        parameters = _MemoryParameters(_FIELDS_ADDRESS_AND_LENGTH, address, nbytes)
        context = ctypes.c_void_p(self.context.handle)
        if status := _library().ucp_mem_map(context, ctypes.byref(parameters), ctypes.byref(handle)):
            raise RuntimeError(f"ucp_mem_map returned {status}")
        self._handles.append(handle)
        return lambda: None  # `close` ends the registration: tensors are in the slab of this process, which outlives it


class UcxLink:
    """A worker of UCX with one endpoint.

    Each link has its own worker, because UCX cannot cancel the receipt of a message that has begun: only the end of the
    worker ends it, also if the other process hangs. The methods of `FabricLink` pass their work to the thread.
    """

    def __init__(self, fabric: UcxFabric) -> None:
        self._fabric = fabric
        self._thread = fabric.thread
        self._worker: Any = None
        self._address = b""
        self._endpoint: Any = None
        self._pending: dict[Any, asyncio.Future[None]] = {}
        self._sending: asyncio.Future[None] | None = None
        self._is_scheduled = self._is_closed = False

    async def open(self) -> bytes:
        return await self._thread.run(self._open())

    async def connect(self, address: bytes) -> None:
        await self._thread.run(self._connect(address))

    async def offer(self, source: memoryview, tag: int) -> bytes:
        await self._thread.run(self._send(source, tag))
        return b""

    async def withdraw(self) -> None:
        await self._thread.run(self._wait_sent())

    async def fetch(self, offer: bytes, into: memoryview, tag: int) -> None:
        await self._thread.run_to_end(self._receive(into, tag))

    def close(self) -> None:
        self._thread.call_soon(self.end)

    async def wait_closed(self) -> None:
        await self._thread.flush()

    async def _open(self) -> bytes:
        self._check_open()
        ucxx = self._fabric.ucxx
        try:
            worker = ucxx.UCXWorker(self._fabric.context, enable_delayed_submission=False, enable_python_future=False)
            worker.init_blocking_progress_mode()
        except ucxx.UCXError as error:
            raise OSError(f"UCX cannot create a worker: {error}") from error
        self._worker = worker
        self._loop = asyncio.get_running_loop()
        self._descriptor = worker.epoll_file_descriptor
        self._loop.add_reader(self._descriptor, self._progress)
        self._fabric.links.add(self)
        self._schedule()
        self._address = bytes(memoryview(worker.address))
        return self._address

    async def _connect(self, address: bytes) -> None:
        self._check_open()
        ucxx = self._fabric.ucxx
        try:
            ucx_address.check(address, ucx_address.parse(self._address))
            peer = ucxx.UCXAddress.create_from_buffer(address + ucx_address.PADDING)
            self._endpoint = ucxx.UCXEndpoint.create_from_worker_address(self._worker, peer, True)
        except (ucxx.UCXError, RuntimeError, ValueError) as error:
            raise OSError(f"UCX cannot connect: {error}") from error
        self._schedule()

    async def _send(self, source: memoryview, tag: int) -> None:
        self._check_open()
        self._fabric.registrations.register(source)
        _, self._sending = self._start(self._endpoint.tag_send, source, tag)

    async def _wait_sent(self) -> None:
        assert self._sending is not None, "a tensor is offered"
        await self._sending

    async def _receive(self, into: memoryview, tag: int) -> None:
        self._check_open()
        self._fabric.registrations.register(into)
        try:
            arrival = _Arrival(self._worker, self._endpoint, self._fabric.ucxx.UCXXTag(tag))
            await self._completion(arrival)
            self._check_open()
            if arrival.nbytes is None:
                raise OSError("the connection of UCX has failed")
            if arrival.nbytes != into.nbytes:
                raise OSError(f"the producer sent {arrival.nbytes} bytes of a tensor that has {into.nbytes} bytes")
            request, receiving = self._start(self._endpoint.tag_recv, into, tag)
            await receiving
            self._check_open()
            request.check_error()
        except self._fabric.ucxx.UCXError as error:
            raise OSError(f"UCX failed: {error}") from error
        except asyncio.CancelledError:
            self.end()
            raise

    def end(self) -> None:
        """Ends all requests, in the thread."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._worker is None:
            return
        self._loop.remove_reader(self._descriptor)
        self._fabric.links.discard(self)
        self._destroy_worker()
        for future in self._pending.values():
            if not future.done():
                future.set_result(None)
        self._pending.clear()
        self._endpoint = self._worker = None

    def _destroy_worker(self) -> None:
        """Ends all requests at once, and closes the sockets.

        The destructors of ucxx must not run, so a few kilobytes stay: that of a worker first receives the messages that
        have arrived for it, and waits forever if their sender has died. That of an endpoint waits in the same way.
        """
        for part in (self._worker, self._endpoint, *self._pending):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(part))
        _library().ucp_worker_destroy(ctypes.c_void_p(self._worker.handle))
        os.close(self._descriptor)

    def _check_open(self) -> None:
        if self._is_closed:
            raise OSError("the connection of UCX is closed")

    def _start(self, operation: Any, buffer: memoryview, tag: int) -> tuple[Any, asyncio.Future[None]]:
        try:
            request = operation(self._fabric.array(buffer), self._fabric.ucxx.UCXXTag(tag))
        except (self._fabric.ucxx.UCXError, RuntimeError) as error:
            raise OSError(f"UCX failed: {error}") from error
        return request, self._completion(request)

    def _completion(self, request: Any) -> asyncio.Future[None]:
        """Returns a future that ends when the request is completed, or the link closed."""
        future = self._pending[request] = self._loop.create_future()
        self._schedule()
        return future

    def _schedule(self) -> None:
        """Lets the library work in the next iteration of the event loop."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._progress)

    def _progress(self) -> None:
        self._is_scheduled = False
        if self._is_closed:
            return
        end = time.perf_counter() + PROGRESS_SECONDS
        while (has_work := self._worker.progress_once()) and time.perf_counter() < end:
            pass
        for request in [request for request in self._pending if request.completed]:
            future = self._pending.pop(request)
            if not future.done():
                future.set_result(None)
        if has_work or not self._worker.arm():
            self._schedule()


class _Arrival:
    """The arrival of the first part of a message. ucxx does not return the size of a message that it has received."""

    def __init__(self, worker: Any, endpoint: Any, tag: Any) -> None:
        self._worker = worker
        self._endpoint = endpoint
        self._tag = tag
        self.nbytes: int | None = None
        """The size of the message, or None if it has not arrived."""

    @property
    def completed(self) -> bool:
        """Whether the message has arrived, or cannot arrive any more."""
        found = self._worker.tag_probe(self._tag)
        if found.matched:
            self.nbytes = found.length
        return bool(found.matched) or not self._endpoint.alive


def _version() -> str:
    """Returns the version without the number of the patch."""
    major, minor, patch = (ctypes.c_uint() for _ in range(3))
    _library().ucp_get_version(ctypes.byref(major), ctypes.byref(minor), ctypes.byref(patch))
    return f"{major.value}.{minor.value}"


def _library() -> ctypes.CDLL:
    """Returns the library that ucxx has loaded."""
    return ctypes.CDLL("libucp.so.0")
