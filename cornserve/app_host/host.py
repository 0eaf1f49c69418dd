"""The main program of an app host: loads one app, and runs its code on command."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import uvloop

from cornserve.app.app import App
from cornserve.app.load import load_app
from cornserve.app.spec import AppSpec
from cornserve.app_host.activity import Activity
from cornserve.app_host.description import AppDescription
from cornserve.app_host.forked_process import ForkedProcess
from cornserve.app_host.host_error import describe_load_error
from cornserve.app_host.protocol import HOST
from cornserve.v1 import app_host_pb2 as pb
from cornserve.wire.connection import MessageConnection

HostConnection = MessageConnection[pb.HostReply, pb.HostCommand]


class Sessions(Protocol):
    """Runs the code of a loaded app."""

    def handle(self, command: pb.HostCommand) -> None:
        """Handles any command except `load`."""


CreateSessions = Callable[[App, AppSpec, str, HostConnection, Activity], Sessions]
"""Takes the app, its spec, the name of its module, the connection to the parent, and the activity page."""


def run_host(forked: ForkedProcess, *, create_sessions: CreateSessions) -> None:
    """Runs until the parent closes the connection."""
    forked.isolate()
    uvloop.run(_serve(forked, create_sessions))


async def _serve(forked: ForkedProcess, create_sessions: CreateSessions) -> None:
    host = Host(Activity(forked.activity), create_sessions)
    await host.serve(socket.socket(fileno=forked.connection))


class Host:
    """Handles the commands of the parent.

    Args:
        activity: the page to which the host writes when it runs code of the app.
        create_sessions: creates the object that runs the app's code.
    """

    def __init__(self, activity: Activity, create_sessions: CreateSessions) -> None:
        self._activity = activity
        self._create_sessions = create_sessions
        self._sessions: Sessions
        self._connection: HostConnection = MessageConnection(HOST, self._handle)

    async def serve(self, connection: socket.socket) -> None:
        """Serves the connection until it is closed."""
        connection.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: self._connection, sock=connection)
        await self._connection.wait_closed()

    def _handle(self, command: pb.HostCommand | None) -> None:
        self._activity.count_command()
        if command is None:
            self._connection.finish()
        elif command.WhichOneof("kind") == "load":
            self._connection.send(self._load(command))
        else:
            self._sessions.handle(command)

    def _load(self, command: pb.HostCommand) -> pb.HostReply:
        reply = pb.HostReply(call=command.call)
        try:
            with _without_running_loop():
                spec, module = AppSpec.model_validate_json(command.load.spec), command.load.module
                app = load_app(command.load.name, spec, module)
                self._sessions = self._create_sessions(app, spec, module, self._connection, self._activity)
                reply.loaded.description = AppDescription.of_app(app).model_dump_json().encode()
        except BaseException as error:  # Some would end the process.
            reply.error.CopyFrom(describe_load_error(error))
        return reply


@contextmanager
def _without_running_loop() -> Iterator[None]:
    """Lets code call `asyncio.run`, which fails inside a running loop."""
    loop = asyncio.get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)
