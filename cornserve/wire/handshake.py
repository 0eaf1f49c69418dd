"""The start of each connection: both ends name the protocol and prove that they have the instance's secret.

Both ends send the preamble and a nonce, the connecting end first. Then the connecting end sends its proof, and the
accepting end responds with its own, which also confirms that it has accepted the connection. A proof is a keyed hash of
both nonces, of the role, so that no end can return a proof to its sender, and of the address that the connection was
made to, so that a process at another address cannot pass proofs on. Neither end sends the secret, and neither reads
more than it expects.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import socket
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from cornserve.wire import sockets
from cornserve.wire.credentials import ConnectionCredentials

NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32

CONNECTING, ACCEPTING = "connecting", "accepting"


class HandshakeError(ConnectionError):
    """The other end does not speak the protocol, or does not have the instance's secret."""


class ProofError(HandshakeError):
    """The other end does not have the instance's secret."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """The values that both ends of a connection know before their proofs."""

    preamble: bytes
    address: str
    """The address that the connection was made to: `IP:PORT`."""
    connecting_nonce: bytes
    accepting_nonce: bytes

    def proof(self, role: str, credentials: ConnectionCredentials) -> bytes:
        """Returns the proof of the end with this role."""
        channel = "plain" if credentials.tls is None else "tls"
        text = self.preamble + f"{role}\n{channel}\n{self.address}\n".encode()
        return hmac.digest(credentials.secret.key, text + self.connecting_nonce + self.accepting_nonce, "sha256")

    def check(self, proof: bytes, role: str, credentials: ConnectionCredentials) -> None:
        """Raises `ProofError` if the other end, which has this role, has sent a wrong proof."""
        if not hmac.compare_digest(proof, self.proof(role, credentials)):
            raise ProofError(
                "it does not have the secret of this instance, only one of both ends uses TLS, or an intermediary "
                f"translates the address {self.address}"
            )


async def open_connection(
    endpoint: str, preamble: bytes, protocol: asyncio.BaseProtocol, credentials: ConnectionCredentials
) -> None:
    """Connects to the process at `endpoint`, `HOST:PORT`, and passes the connection to `protocol`.

    Raises:
        HandshakeError: the process does not speak the protocol, or does not have the instance's secret.
        OSError: no process accepts connections there, or TLS fails.
    """
    connection = await sockets.connect(endpoint)
    try:
        await connect(connection, preamble, credentials)
    except BaseException:
        connection.close()
        raise
    await sockets.attach(connection, protocol, credentials.tls)


async def connect(connection: socket.socket, preamble: bytes, credentials: ConnectionCredentials) -> None:
    """Raises `HandshakeError` if the other end does not speak the protocol or does not have the secret."""
    loop = asyncio.get_running_loop()
    nonce = secrets.token_bytes(NONCE_BYTES)
    await loop.sock_sendall(connection, preamble + nonce)
    await _receive_preamble(connection, preamble)
    accepting_nonce = await _receive(connection, NONCE_BYTES)
    challenge = Challenge(preamble, sockets.remote_address(connection), nonce, accepting_nonce)
    await loop.sock_sendall(connection, challenge.proof(CONNECTING, credentials))
    challenge.check(await _receive(connection, PROOF_BYTES), ACCEPTING, credentials)


async def accept(connection: socket.socket, preambles: Collection[bytes], credentials: ConnectionCredentials) -> bytes:
    """Returns the preamble that the other end has sent.

    Raises:
        HandshakeError: the other end does not send one of the preambles, or does not have the secret.
    """
    loop = asyncio.get_running_loop()
    preamble, connecting_nonce = await _receive_hello(connection, preambles)
    nonce = secrets.token_bytes(NONCE_BYTES)
    await loop.sock_sendall(connection, preamble + nonce)
    challenge = Challenge(preamble, sockets.local_address(connection), connecting_nonce, nonce)
    challenge.check(await _receive(connection, PROOF_BYTES), CONNECTING, credentials)
    await loop.sock_sendall(connection, challenge.proof(ACCEPTING, credentials))
    return preamble


async def _receive_preamble(connection: socket.socket, preamble: bytes) -> None:
    name = preamble.decode().strip()
    received = b""
    while received != preamble:
        part = await asyncio.get_running_loop().sock_recv(connection, len(preamble) - len(received))
        if not part:
            raise HandshakeError(f"the other end closed the connection before it sent the preamble {name}")
        received += part
        if not preamble.startswith(received):
            raise HandshakeError(f"the other end does not speak {name}")


async def _receive_hello(connection: socket.socket, preambles: Collection[bytes]) -> tuple[bytes, bytes]:
    """Returns the preamble and the nonce of the connecting end, which sends no more until it gets a response."""
    received = b""
    candidates = list(preambles)
    while True:
        limit = max(map(len, candidates)) + NONCE_BYTES
        part = await asyncio.get_running_loop().sock_recv(connection, limit - len(received))
        if not part:
            raise HandshakeError("it closed the connection before its proof")
        received += part
        candidates = [
            preamble for preamble in candidates if received.startswith(preamble) or preamble.startswith(received)
        ]
        if not candidates:
            raise HandshakeError("it does not speak a protocol of this process, or not this version")
        for preamble in candidates:
            if len(received) == len(preamble) + NONCE_BYTES:
                return preamble, received[len(preamble) :]
            if len(received) > len(preamble) + NONCE_BYTES:
                raise HandshakeError("it sent more than the preamble and a nonce")


async def _receive(connection: socket.socket, nbytes: int) -> bytes:
    received = b""
    while len(received) < nbytes:
        part = await asyncio.get_running_loop().sock_recv(connection, nbytes - len(received))
        if not part:
            raise HandshakeError("the other end closed the connection during the handshake: see its log for the reason")
        received += part
    return received
