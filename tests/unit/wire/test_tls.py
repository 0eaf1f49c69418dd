"""TLS between the processes of an instance, which begins after the handshake."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cornserve.transport.errors import LostError
from cornserve.transport.pull.tcp import TcpPuller
from cornserve.v1 import executor_pb2 as pb
from cornserve.wire import handshake, sockets
from cornserve.wire.connection import MessageConnection
from cornserve.wire.credentials import ConnectionCredentials, TlsFiles, TlsFilesError
from cornserve.wire.handshake import HandshakeError
from cornserve.wire.invocations import CALLER, EXECUTOR
from cornserve.wire.listener import ConnectionFactories, ConnectionListener
from tests.credentials import CREDENTIALS
from tests.executor_caller import Caller, calling
from tests.loop_clock import LoopClock
from tests.pull_sources import pull_source, pull_target

Listen = Callable[[ConnectionFactories, ConnectionCredentials], Awaitable[str]]


def write_tls_files(directory: Path) -> Path:
    """Creates an authority, and a certificate that it has signed."""
    directory.mkdir()
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority, name = (
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in ("authority", "cornserve")
    )
    start, end = datetime.now(UTC), datetime.now(UTC) + timedelta(days=1)
    new = x509.CertificateBuilder
    number = x509.random_serial_number
    ca = new(authority, authority, authority_key.public_key(), number(), start, end).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    (directory / "ca.crt").write_bytes(ca.sign(authority_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    certificate = new(authority, name, key.public_key(), number(), start, end).sign(authority_key, hashes.SHA256())
    (directory / "tls.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (directory / "tls.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return directory


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> ConnectionCredentials:
    directory = write_tls_files(tmp_path_factory.mktemp("tls") / "own")
    return ConnectionCredentials(CREDENTIALS.secret, TlsFiles(directory))


@pytest.fixture
async def listen() -> AsyncIterator[Listen]:
    listeners: list[ConnectionListener] = []

    async def listen(factories: ConnectionFactories, credentials: ConnectionCredentials) -> str:
        listeners.append(ConnectionListener(factories, credentials))
        return await listeners[-1].listen("127.0.0.1:0")

    yield listen
    for listener in listeners:
        await listener.close()


class EndingExecutors:
    """Executors that end each invocation at once."""

    def __init__(self) -> None:
        self.connections: list[MessageConnection[pb.Event, pb.Command]] = []

    @property
    def factories(self) -> ConnectionFactories:
        return {EXECUTOR.preamble: self._create}

    def _create(self) -> MessageConnection[pb.Event, pb.Command]:
        connection: MessageConnection[pb.Event, pb.Command] = MessageConnection(
            EXECUTOR,
            lambda command: (
                connection.finish()
                if command is None
                else connection.send(pb.Event(call=command.call, end=pb.End(values=command.start.request)))
            ),
        )
        self.connections.append(connection)
        return connection

    async def wait_closed(self) -> None:
        async with asyncio.timeout(60):
            for connection in self.connections:
                await connection.wait_closed()


async def invoke(caller: Caller, request: bytes) -> bytes:
    caller.send(pb.Command(call=1, start=pb.Start(request=request)))
    event = await caller.read()
    assert event is not None
    return event.end.values


async def test_invocations_pass_over_tls(listen: Listen, tls: ConnectionCredentials) -> None:
    executors = EndingExecutors()
    caller = Caller(tls)
    await caller.connect(await listen(executors.factories, tls))
    request = bytes(3_000_000)

    caller.send(pb.Command(call=1, start=pb.Start(request=request)))
    caller.finish()

    event = await caller.read()
    assert event is not None
    assert event.end.values == request
    assert await caller.read() is None
    assert len(executors.connections) == 1
    await executors.wait_closed()


@pytest.mark.parametrize("is_caller", [True, False], ids=["caller", "executor"])
async def test_an_end_without_tls_is_refused(listen: Listen, tls: ConnectionCredentials, is_caller: bool) -> None:
    executors = EndingExecutors()
    endpoint = await listen(executors.factories, CREDENTIALS if is_caller else tls)

    with pytest.raises(HandshakeError):
        await Caller(tls if is_caller else CREDENTIALS).connect(endpoint)

    assert executors.connections == []


async def test_a_certificate_of_another_authority_is_refused(
    listen: Listen, tls: ConnectionCredentials, tmp_path: Path
) -> None:
    other = ConnectionCredentials(CREDENTIALS.secret, TlsFiles(write_tls_files(tmp_path / "other")))
    executors = EndingExecutors()
    endpoint = await listen(executors.factories, tls)

    with pytest.raises(ssl.SSLCertVerificationError):
        await Caller(other).connect(endpoint)

    assert executors.connections == []


async def test_a_caller_without_a_valid_certificate_is_refused(
    listen: Listen, tls: ConnectionCredentials, tmp_path: Path
) -> None:
    other = TlsFiles(write_tls_files(tmp_path / "other"))
    other.contexts().connecting.verify_mode = ssl.CERT_NONE
    executors = EndingExecutors()
    caller = Caller(ConnectionCredentials(CREDENTIALS.secret, other))

    await caller.connect(await listen(executors.factories, tls))

    with pytest.raises(ConnectionError):
        await caller.read()
    assert executors.connections == []


async def test_replaced_certificates_are_used_without_a_restart(listen: Listen, tmp_path: Path) -> None:
    directory, new = write_tls_files(tmp_path / "tls"), write_tls_files(tmp_path / "new")
    executor, caller, outsider = (
        ConnectionCredentials(CREDENTIALS.secret, TlsFiles(files)) for files in (directory, directory, new)
    )
    executors = EndingExecutors()
    endpoint = await listen(executors.factories, executor)

    async with calling(endpoint, caller) as established:
        with pytest.raises(ssl.SSLCertVerificationError):
            await Caller(outsider).connect(endpoint)
        for file in new.iterdir():
            file.replace(directory / file.name)
        for credentials in (caller, outsider):
            async with calling(endpoint, credentials) as later:
                assert await invoke(later, b"new certificate") == b"new certificate"
        assert await invoke(established, b"old certificate") == b"old certificate"

    await executors.wait_closed()


async def test_certificates_that_are_being_replaced_do_not_interrupt_connections(
    listen: Listen, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory, new = write_tls_files(tmp_path / "tls"), write_tls_files(tmp_path / "new")
    credentials = ConnectionCredentials(CREDENTIALS.secret, TlsFiles(directory))
    executors = EndingExecutors()
    endpoint = await listen(executors.factories, credentials)

    (new / "tls.crt").replace(directory / "tls.crt")  # does not belong to the key
    async with calling(endpoint, credentials) as caller:
        assert await invoke(caller, b"half") == b"half"
    assert "cannot use tls.crt, tls.key and ca.crt" in caplog.text

    for name in ("tls.key", "ca.crt"):
        (new / name).replace(directory / name)
    for current in (ConnectionCredentials(CREDENTIALS.secret, TlsFiles(directory)), credentials):
        async with calling(endpoint, current) as caller:
            assert await invoke(caller, b"complete") == b"complete"
    await executors.wait_closed()


async def test_tensors_are_pulled_over_tls(listen: Listen, tls: ConnectionCredentials) -> None:
    data = bytes(range(256)) * 20_000
    puller = TcpPuller(tls)
    sources = [pull_source(data), pull_source(memoryview(data)[:100], lambda: False)]
    endpoint = await listen(puller.serve(lambda _: sources.pop(0)), tls)
    into = bytearray(len(data))

    await puller.pull(endpoint, bytes(16), pull_target(into))

    assert into == data
    with pytest.raises(LostError, match="freed during the pull"):
        await puller.pull(endpoint, bytes(16), pull_target(memoryview(into)[:100]))
    await puller.close()


async def test_a_connection_that_stalls_before_tls_is_closed(
    listen: Listen, tls: ConnectionCredentials, clock: LoopClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The other end has the secret, but does not begin with TLS."""
    executors = EndingExecutors()
    connection = await sockets.connect(await listen(executors.factories, tls))
    await handshake.connect(connection, CALLER.preamble, tls)

    await clock.advance_until(lambda: "no handshake within 5 s" in caplog.text, step=1)

    assert executors.connections == []
    connection.close()


@pytest.mark.parametrize("name", ["tls.crt", "tls.key", "ca.crt"])
@pytest.mark.parametrize("content", [None, b"", b"not a certificate"])
def test_files_that_cannot_be_used_are_reported(tmp_path: Path, name: str, content: bytes | None) -> None:
    directory = write_tls_files(tmp_path / "tls")
    (directory / name).unlink()
    if content is not None:
        (directory / name).write_bytes(content)

    with pytest.raises(TlsFilesError, match=r"cannot use tls\.crt, tls\.key and ca\.crt in"):
        TlsFiles(directory)
