"""A process without access to an instance: `stranger.py JOB`, with the job as JSON. Prints what it could do as JSON.

It runs as another user, or in another network namespace. It imports all modules before it gives up its rights, because
other users cannot read the interpreter of root.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - `socket` imports it later
import json
import os
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from cornserve.transport.protocol import CONSUMER_CODEC
from cornserve.transport.pull.tcp import PREAMBLE as PULL_PREAMBLE
from cornserve.v1 import executor_pb2 as pb
from cornserve.v1 import transfer_pb2
from cornserve.wire.invocations import CALLER, OBSERVER

Address = tuple[str, int]


def framed(message: pb.Command | transfer_pb2.TransferCommand) -> bytes:
    content = message.SerializeToString()
    return len(content).to_bytes(4, "big") + content


REQUESTS: dict[bytes, bytes] = {
    CALLER.preamble: framed(pb.Command(call=1, start=pb.Start(request_id="stranger", request=b'{"text": "a"}'))),
    OBSERVER.preamble: bytes(4),
    CONSUMER_CODEC.preamble: framed(
        transfer_pb2.TransferCommand(
            subscription=1, subscribe=transfer_pb2.Subscribe(request_id="request", output="note")
        )
    ),
    PULL_PREAMBLE: bytes(16),
}
"""A valid request for each protocol of an executor, without the handshake."""


def readable_files(paths: list[str]) -> list[str]:
    """Returns the files and directories that this process can open."""
    found = []
    for path in paths:
        with suppress(OSError):
            os.close(os.open(path, os.O_RDONLY))
            found.append(path)
    return found


def usable_sockets(paths: list[str]) -> list[str]:
    """Returns the sockets to which this process can send a message."""
    found = []
    for path in paths:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(bytes(64), path)
            found.append(path)
    return found


def responses(address: Address) -> dict[str, int]:
    """Sends each request after wrong handshakes; returns the largest number of bytes after the executor's nonce."""
    with ThreadPoolExecutor(len(REQUESTS)) as pool:
        received = pool.map(partial(_largest_response, address), REQUESTS)
        return {preamble.decode().strip(): nbytes for preamble, nbytes in zip(REQUESTS, received, strict=True)}


def _largest_response(address: Address, preamble: bytes) -> int:
    request = REQUESTS[preamble]
    beginnings = (
        preamble + request,
        preamble + bytes(32) + request,
        preamble + bytes(32) + bytes(32) + request,
        preamble.replace(b"/3", b"/2") + request,
    )
    return max(0, *(len(_response(address, beginning)) - len(preamble) - 32 for beginning in beginnings))


def _response(address: Address, sent: bytes) -> bytes:
    received = b""
    with suppress(OSError), socket.create_connection(address, timeout=20) as connection:
        connection.sendall(sent)
        while data := connection.recv(1 << 16):
            received += data
    return received


def flood(address: Address, open_ports: list[Address], seconds: float) -> int:
    """Opens connections as fast as possible in three processes; returns the number of those to `address`."""
    end = time.monotonic() + seconds
    reader, writer = os.pipe()
    for work in (partial(_connect, [address]), partial(_occupy, address), partial(_connect, open_ports)):
        if not os.fork():
            os.write(writer, b"%d\n" % work(end))
            os._exit(0)
    os.close(writer)
    with open(reader) as counts:
        return sum(map(int, counts))


def _connect(addresses: list[Address], end: float) -> int:
    """Opens and closes connections."""
    count = 0
    while time.monotonic() < end:
        with suppress(OSError), socket.create_connection(addresses[count % len(addresses)], timeout=1):
            count += 1
    return count


def _occupy(address: Address, end: float) -> int:
    """Sends incomplete handshakes and garbage, and keeps the connections open."""
    kept: list[socket.socket] = []
    count = 0
    while time.monotonic() < end:
        with suppress(OSError):
            kept.append(socket.create_connection(address, timeout=1))
            kept[-1].sendall(CALLER.preamble + bytes(32) if count % 2 else b"\xff" * 100_000)
            count += 1
        if len(kept) > 500:
            kept.pop(0).close()
    return count


def main(job: dict[str, Any]) -> dict[str, Any]:
    if (uid := job.get("uid")) is not None:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    address: Address = (job["host"], job["port"])
    done: dict[str, Any] = {"readable": readable_files(job["files"]), "responses": responses(address)}
    done["sent"] = usable_sockets(job.get("sockets", []))
    done["environment"] = readable_files([f"/proc/{pid}/environ" for pid in job["pids"]])
    done["connections"] = flood(address, [(job["host"], port) for port in job["open_ports"]], job["flood_seconds"])
    return done


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
