"""An app whose code runs in an app host."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from typing import Final

from pydantic import TypeAdapter

from cornserve.app.media_slots import MediaSlot
from cornserve.app.operations import Operation
from cornserve.app_host.app_host import AppHost
from cornserve.app_host.description import AppDescription
from cornserve.app_host.errors import AppHostLostError, AppLoadError, ForkServerError
from cornserve.gateway.errors import ApiError
from cornserve.gateway.task_runs.hosted_errors import exception_of
from cornserve.gateway.task_runs.hosted_request import NativeRequest
from cornserve.gateway.task_runs.hosted_runner import MAX_LOST_HOSTS, HostedRunner
from cornserve.gateway.task_runs.task_runner import RunSettings
from cornserve.task.errors import DefinitionError
from cornserve.v1 import app_host_pb2 as pb
from cornserve_tasklib.messages import SentMediaPart

_SENT_MEDIA: TypeAdapter[SentMediaPart] = TypeAdapter(SentMediaPart)

MAX_OFFENSES: Final = 5
"""An app is suspended when its host had to be replaced this number of times within `OFFENSE_SECONDS`."""

OFFENSE_SECONDS: Final = 300.0

StartHost = Callable[[], Awaitable[AppHost]]
Suspend = Callable[[str], None]
"""Suspends the app, for the given reason."""


class HostedApp:
    """A version of an app. It has one host at a time, which is replaced when it ends.

    Args:
        host: a started host.
        start: starts another host.
        suspend: is called once when the app's code has ended its hosts too often.
    """

    def __init__(self, host: AppHost, start: StartHost, suspend: Suspend) -> None:
        self.description: AppDescription = host.description
        self.name = self.description.name
        self.operations: frozenset[Operation] = self.description.operations
        self._host = host
        self._start_host = start
        self._starting: asyncio.Task[AppHost] | None = None
        self._suspend = suspend
        self._numbers = count(1)
        self._runners: dict[int, HostedRunner] = {}
        self._watches: set[asyncio.Task[None]] = set()
        self._offenses: deque[float] = deque(maxlen=MAX_OFFENSES)
        self._is_closed = False
        self._adopt(host)

    async def parse(self, body: bytes | bytearray) -> tuple[NativeRequest, list[MediaSlot]]:
        """Parses bodies that may contain media. The host parses all others when it runs them."""
        slots: list[MediaSlot] = []
        if self.description.finds_media:
            reply = await self._find_media(bytes(body))
            parts = [_SENT_MEDIA.validate_json(sent.part) for sent in reply.parts]
            slots = [MediaSlot.of(parts, index, sent.path) for index, sent in enumerate(reply.parts)]
        return NativeRequest(bytes(body), slots), slots

    def start(self, settings: RunSettings) -> HostedRunner:
        number = next(self._numbers)
        runner = self._runners[number] = HostedRunner(self, number, settings)
        return runner

    async def host(self) -> AppHost:
        """Returns the running host. Starts a host if none is running. Raises a 503 if it does not start."""
        if self._host.lost is None:
            return self._host
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        return await asyncio.shield(self._starting)

    def replace(self, host: AppHost, error: pb.HostError) -> None:
        """Ends a host whose memory or threads are exhausted."""
        if host is self._host:
            host.close()
            self._count_offense(f"its code raised {error.type}: {error.message}".removesuffix(": "), error.location)

    def end_session(self, number: int, host: AppHost | None) -> None:
        """Frees the part of the host that belongs to a request."""
        del self._runners[number]
        if host is not None:
            host.send(pb.HostCommand(end_session=pb.EndSession(session=number)))
        self._close_if_unused()

    def close(self) -> None:
        """Ends the host as soon as no request uses it."""
        self._is_closed = True
        self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._is_closed and not self._runners:
            self._host.close()

    async def _start(self) -> AppHost:
        try:
            host = await self._start_host()
        except (AppLoadError, DefinitionError, ForkServerError) as error:
            raise ApiError(503, f"the app {self.name!r} cannot be loaded: {error}", code="not_ready") from None
        finally:
            self._starting = None
        self._adopt(host)
        self._close_if_unused()
        return host

    def _adopt(self, host: AppHost) -> None:
        self._host = host
        host.on_source_read = partial(self._read_source, host)
        watch = asyncio.create_task(self._watch(host))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)

    async def _watch(self, host: AppHost) -> None:
        error = await host.wait_lost()
        host.on_source_read = None  # breaks a reference cycle
        if error.culprit_session is not None:
            self._count_offense(error.reason, error.location)

    def _count_offense(self, reason: str, location: str) -> None:
        self._offenses.append(asyncio.get_running_loop().time())
        if len(self._offenses) == MAX_OFFENSES and self._offenses[-1] - self._offenses[0] <= OFFENSE_SECONDS:
            place = f" at {location}" if location else ""
            self._suspend(
                f"its processes were replaced {MAX_OFFENSES} times within {OFFENSE_SECONDS:g} s, most recently "
                f"because {reason}{place}"
            )
            self._offenses.clear()

    async def _find_media(self, body: bytes) -> pb.MediaParts:
        losses = 0
        while True:
            host = await self.host()
            try:
                reply = await host.call(pb.HostCommand(find_media=pb.FindMedia(body=body)))
            except AppHostLostError as error:
                losses += 1
                is_innocent = error.culprit_session != 0 or (error.is_kill and losses == 1)
                if is_innocent and losses < MAX_LOST_HOSTS:
                    continue
                message = f"the app {self.name!r} cannot parse the request: {error}"
                raise ApiError(500, message, code="task_error") from None
            if reply.HasField("error"):
                raise exception_of(reply.error, self.name, self.description.paths[0])
            return reply.media_parts

    def _read_source(self, host: AppHost, reply: pb.HostReply) -> None:
        runner = self._runners.get(reply.source_read.session)
        if runner is not None:
            runner.send_source_items(host, reply)
