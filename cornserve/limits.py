"""What an instance takes at most. `cornserve up --limit NAME=VALUE` changes a limit; errors name it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

MIB = 1024 * 1024


class LimitError(ValueError):
    """A limit is unknown or no positive integer; the message is one for people."""


@dataclass(frozen=True, slots=True)
class Limits:
    in_flight: int = 2048
    """Requests that a gateway serves at once."""
    in_flight_per_app: int = 1024
    """Of these, those to one app."""
    queue: int = 1024
    """Invocations that one executor works on or keeps waiting."""
    slab_mib: int = 512
    """Shared memory in which one executor keeps tensors for others. One request's take half of it at most."""
    body_mib: int = 64
    """One request's body."""
    bodies_mib: int = 512
    """The bodies of all requests that a gateway serves or receives at once, and what it has fetched for them."""
    json_values: int = 100_000
    """Values in one JSON body: reading them keeps the gateway from everything else."""
    images: int = 64
    """In one request."""
    image_mib: int = 20
    """One image, as it comes."""
    image_megapixels: int = 64
    """One image, when it is decoded: a million pixels take 4 MB."""
    request_megapixels: int = 128
    """Of all images of one request together, in millions: decoding takes up to a second for 64."""
    fetches: int = 128
    """Images that a gateway fetches at once."""
    fetch_seconds: int = 10
    """How long an image may take to be fetched."""
    connections: int = 16_384
    """Clients that are connected to a gateway at once."""
    request_seconds: int = 600
    """How long a request may take, if its client does not say less. OpenAI's clients wait as long."""
    receive_seconds: int = 60
    """How long a request may take to arrive."""
    stall_seconds: int = 60
    """How long a client may leave what was sent to it unread."""

    def __post_init__(self) -> None:
        for name, value in self._items():
            if value < 1:
                raise LimitError(f"the limit {name} is {value}, and has to be at least 1")

    @classmethod
    def of(cls, settings: Sequence[str]) -> Self:
        """The defaults, changed by `NAME=VALUE`s."""
        known = [name for name, _ in cls()._items()]
        chosen: dict[str, int] = {}
        for setting in settings:
            name, _, value = setting.partition("=")
            if name not in known:
                raise LimitError(f"there is no limit {name!r}; there are: {', '.join(known)}")
            if not (value.isascii() and value.isdigit()):
                raise LimitError(f"the limit {name} has to be a whole number: {name}=NUMBER, not {setting!r}")
            chosen[name.replace("-", "_")] = int(value)
        return cls(**chosen)

    @property
    def arguments(self) -> list[str]:
        """What makes another process have the same."""
        usual = dict(type(self)()._items())
        changed = [(name, value) for name, value in self._items() if value != usual[name]]
        return [part for name, value in changed for part in ("--limit", f"{name}={value}")]

    def remedy(self, name: str) -> str:
        """How an error names a limit."""
        value = dict(self._items())[name]
        return f"limit {name}={value}, see `cornserve up --limit`"

    def _items(self) -> list[tuple[str, int]]:
        return [(field.name.replace("_", "-"), getattr(self, field.name)) for field in fields(self)]
