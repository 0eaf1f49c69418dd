"""Answers on their way to their clients: a large piece counts as memory until it is read.

It would otherwise wait in the connection's buffer, which nobody bounds: a client that asks for much, again and again,
and reads nothing would have all of the gateway's memory.
"""

from __future__ import annotations

from starlette.types import Send

from cornserve.gateway.http.admission import Admission, Held
from cornserve.gateway.http.cork import LARGE


async def send_piece(send: Send, piece: bytes, admission: Admission, *, is_last: bool = False) -> None:
    """Sends a piece of an answer's body. Returns when a large one has left, but for what the system buffers."""
    if len(piece) <= LARGE:
        await _send(send, piece, more=not is_last)
        return
    held = Held(admission)
    held.count(len(piece))
    try:
        await _send(send, piece, more=True)
        await _send(send, b"", more=not is_last)  # waits for what is before it
    finally:
        held.release()


async def _send(send: Send, content: bytes, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": content, "more_body": more})
