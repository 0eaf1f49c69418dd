"""Sends response bodies. A large chunk counts as memory until the client has read it.

Chunks wait in the connection's buffer, which is unbounded. Without this wait, a client that requests large
responses and reads none of them could use all of the gateway's memory.
"""

from __future__ import annotations

from starlette.types import Send

from cornserve.gateway.http.admission import MemoryReservation, RequestAdmission
from cornserve.gateway.http.write_coalescing import LARGE_WRITE_BYTES


async def send_chunk(send: Send, chunk: bytes, admission: RequestAdmission, *, is_last: bool = False) -> None:
    """Sends a chunk of a response body. For a large chunk, waits until the operating system accepts it."""
    last = {"type": "http.response.body", "body": chunk, "more_body": not is_last}
    if len(chunk) <= LARGE_WRITE_BYTES:
        await send(last)
        return
    memory = MemoryReservation(admission)
    memory.add(len(chunk))
    try:
        await send(last | {"more_body": True})
        await send(last | {"body": b""})  # waits until the chunk has left the buffer
    finally:
        memory.release()
