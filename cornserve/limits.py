"""Limits of an instance. `cornserve up --limit NAME=VALUE` changes a limit; errors name the limit that they enforce."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Self

from cornserve.memory_limit import memory_limit_bytes, slab_limit_mib

MIB = 1024 * 1024

BODY_MIB = 64

MAX_DIGITS = 18
"""Maximum length of the number of a limit."""

BODIES_SHARE = 8
"""The bodies of a gateway use one part in this many of the memory. While a body is parsed, it takes twice its size."""


class LimitError(ValueError):
    """A limit is unknown or not a positive integer. The message is for users."""


@cache
def _default_bodies_mib() -> int:
    return max(BODY_MIB, memory_limit_bytes() // BODIES_SHARE // MIB)


@cache
def _default_slab_mib() -> int:
    return slab_limit_mib(Path("/dev/shm"))


@dataclass(frozen=True, slots=True)
class Limits:
    in_flight: int = 2048
    """Concurrent requests to a gateway."""
    in_flight_per_app: int = 1024
    """Concurrent requests to one app."""
    queue: int = 1024
    """Running and waiting invocations of one executor."""
    slab_mib: int = field(default_factory=_default_slab_mib)
    """Shared memory that one executor takes at most for tensors that others read. One request uses at most half of it.
    By default, a share of the memory (`slab_limit_mib`)."""
    body_mib: int = BODY_MIB
    """Size of one request's body."""
    text_mib: int = 8
    """Size of one request's JSON without its base64 media. Parsing it blocks the gateway's event loop."""
    bodies_mib: int = field(default_factory=_default_bodies_mib)
    """Total size of the bodies of all requests in a gateway, and of the media that it fetched for them. By default, an
    eighth of the memory that the process may use (`memory_limit`)."""
    json_values: int = 100_000
    """Values in one JSON body; an object counts as three. Parsing blocks the gateway's event loop."""
    images: int = 64
    """Images in one request."""
    image_mib: int = 20
    """Size of one encoded image."""
    image_megapixels: int = 64
    """Pixels of one image, in millions. A million decoded pixels use 4 MB."""
    request_megapixels: int = 128
    """Pixels of all images of one request, in millions. Decoding 64 million takes up to a second."""
    audios: int = 64
    """Audios in one request."""
    audio_mib: int = 20
    """Size of one audio file."""
    audio_seconds: int = 600
    """Duration of one audio."""
    request_audio_seconds: int = 1200
    """Duration of all audios of one request."""
    videos: int = 8
    """Videos in one request."""
    video_mib: int = 64
    """Size of one video file."""
    video_megapixels: int = 9
    """Pixels of one frame of a video, in millions. A frame in 4K has 8.3 million."""
    video_frames: int = 36_000
    """Frames of one video: ten minutes at 60 frames per second."""
    video_seconds: int = 600
    """Duration of one video."""
    request_video_seconds: int = 1200
    """Duration of all videos of one request."""
    request_video_gigapixels: int = 64
    """Pixels of all frames of all videos of one request, in thousand millions. Executors decode all of them."""
    fetches: int = 128
    """Media that a gateway fetches concurrently."""
    fetch_seconds: int = 10
    """Time to fetch one medium."""
    connections: int = 16_384
    """Open client connections of a gateway."""
    idle_seconds: int = 75
    """Time for which a connection without requests stays open. Proxies reuse connections for up to 60 seconds."""
    request_seconds: int = 600
    """Duration of a request whose client does not set a shorter timeout. OpenAI's clients have the same default."""
    receive_seconds: int = 60
    """Time in which a request must arrive."""
    stall_seconds: int = 60
    """Time for which a client may stop reading its response."""
    blocked_seconds: int = 10
    """Time for which the event loop of the gateway or the controller may be blocked before its process is restarted."""
    run_seconds: int = 2
    """Time for which code of an app may run without a pause."""
    recorded_seconds: int = 60
    """Time in which a function that code of an app calls with `recorded` must return."""
    import_seconds: int = 50
    """Time in which the code of an app is imported when it is deployed. Clients wait a little longer for the
    deployment."""
    app_mib: int = 1024
    """Writable memory of the process that runs an app's code. Some 50 MiB are in use before the app is imported."""

    def __post_init__(self) -> None:
        for name, value in self._items():
            if value < 1:
                raise LimitError(f"the limit {name} is {value}: give at least 1")

    @classmethod
    def parse(cls, settings: Sequence[str]) -> Self:
        """Returns the default limits, changed by settings of the form `NAME=VALUE`."""
        known = [name for name, _ in cls()._items()]
        chosen: dict[str, int] = {}
        for setting in settings:
            name, _, value = setting.partition("=")
            if name not in known:
                raise LimitError(f"unknown limit {name!r}: give one of {', '.join(known)}")
            if not (value.isascii() and value.isdigit() and len(value) <= MAX_DIGITS):
                raise LimitError(
                    f"{setting[:80]!r} does not set the limit {name} to a whole number: give {name}=NUMBER, with at "
                    f"most {MAX_DIGITS} digits"
                )
            chosen[name.replace("-", "_")] = int(value)
        return cls(**chosen)

    @property
    def cli_arguments(self) -> list[str]:
        """The command-line arguments from which another process parses equal limits."""
        usual = dict(type(self)()._items())
        changed = [(name, value) for name, value in self._items() if value != usual[name]]
        return [part for name, value in changed for part in ("--limit", f"{name}={value}")]

    def hint(self, name: str) -> str:
        """Returns the part of an error message that names a limit and the option that changes it."""
        value = dict(self._items())[name]
        return f"limit {name}={value}, see `cornserve up --limit`"

    def _items(self) -> list[tuple[str, int]]:
        return [(field.name.replace("_", "-"), getattr(self, field.name)) for field in fields(self)]
