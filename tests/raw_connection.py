"""Connections to executors that send and receive bytes instead of messages."""

from __future__ import annotations

import asyncio
import socket

from cornserve.wire import handshake, sockets
from cornserve.wire.invocations import EXECUTOR
from tests.credentials import CREDENTIALS


async def authenticated(
    endpoint: str, preamble: bytes = EXECUTOR.preamble
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Returns a connection after its handshake."""
    connection = await sockets.connect(endpoint)
    await handshake.connect(connection, preamble, CREDENTIALS)
    return await asyncio.open_connection(sock=connection)


def authenticated_socket(endpoint: str, preamble: bytes) -> socket.socket:
    """Returns a blocking connection after its handshake."""
    connection = socket.create_connection(sockets.split_endpoint(endpoint))
    nonce = bytes(handshake.NONCE_BYTES)
    connection.sendall(preamble + nonce)
    hello = connection.recv(len(preamble) + len(nonce), socket.MSG_WAITALL)
    challenge = handshake.Challenge(preamble, sockets.remote_address(connection), nonce, hello[len(preamble) :])
    connection.sendall(challenge.proof(handshake.CONNECTING, CREDENTIALS))
    challenge.check(connection.recv(handshake.PROOF_BYTES, socket.MSG_WAITALL), handshake.ACCEPTING, CREDENTIALS)
    return connection
