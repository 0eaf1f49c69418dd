"""The ids of requests, which every response has, and by which logs and random choices refer to a request."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

REQUEST_ID = "request id"
"""The key of the `RequestId` in the state of an ASGI scope."""

HEADER = b"x-request-id"
ANTHROPIC_HEADER = b"request-id"
"""The header in which clients of Anthropic's API find the id."""

MAX_ID_LENGTH = 128

_WELL_FORMED = re.compile(rb"[A-Za-z0-9._~:/+=@-]{1,%d}" % MAX_ID_LENGTH)


class RequestId(NamedTuple):
    """The id of a request in its response and in all logs."""

    value: str
    is_fresh: bool
    """Whether the gateway has created it. Several requests may have an id that clients have sent."""

    @classmethod
    def of(cls, headers: Iterable[tuple[bytes, bytes]]) -> RequestId:
        """Returns the id that the client has sent, or a fresh one unless it has sent a single well-formed one.

        Args:
            headers: names in lower case, and values.
        """
        given = [value for name, value in headers if name == HEADER]
        if len(given) == 1 and _WELL_FORMED.fullmatch(given[0]):
            return cls(given[0].decode(), is_fresh=False)
        return cls(_fresh_id(), is_fresh=True)

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The headers of the response."""
        value = self.value.encode()
        return [(HEADER, value), (ANTHROPIC_HEADER, value)]


class RequestIds(NamedTuple):
    """The ids of a request to an app."""

    public: str
    """The id in the response and in all logs."""
    unique: str
    """Identifies the request at executors: no other request has it."""
    random_key: str
    """Determines the random choices of the request."""

    @classmethod
    def of(cls, id: RequestId, draw_key: bytes) -> RequestIds:
        """Returns the ids of a request.

        Args:
            draw_key: a secret of the instance, without which the id for a choice cannot be computed.
        """
        unique = id.value if id.is_fresh else _fresh_id()
        return cls(id.value, unique, blake2b(id.value.encode(), key=draw_key, digest_size=16).hexdigest())


def _fresh_id() -> str:
    return f"{random.getrandbits(128):032x}"  # an identifier, not a secret
