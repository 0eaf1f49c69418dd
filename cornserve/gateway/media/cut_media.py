"""Cuts the base64 media out of a JSON body, before it is parsed.

Parsing, copying and counting the characters of large media would block the event loop. References replace the media
in the JSON, and the parsed request gets its media back. They stay in the body's memory until they are decoded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from cornserve.app.media_slots import MediaSlot
from cornserve.gateway.media.data_url import BodyDataUrl

MIN_CUT_BYTES = 16 * 1024
"""Shorter media stay in the JSON."""

_KEY = re.compile(rb'"(?:image_url|audio_url|video_url|input_audio|source)"')
_SPACE = rb"[ \t\r\n]*"


def _pattern(pattern: bytes) -> bytes:
    """Returns the pattern with optional white space in place of blanks."""
    return pattern.replace(b" ", _SPACE)


_SCHEME = rb"[Dd][Aa][Tt][Aa]:"
_HEAD = _SCHEME + rb"(?:[!#-+\--\[\]-~]|\\/){0,200};[Bb][Aa][Ss][Ee]64,"
_STRING = rb'"(?:[^"\\]|\\.){0,200}"'
_OBJECT = rb'\{ (?:"\w{1,40}" : (?:' + _STRING + rb"|[\w.+-]{1,40}) , ){0,8}"
"""The start of an object, up to one of its keys. The fields before it are texts, numbers or constants."""
_URL = _pattern(rb'"(?:image|audio|video)_url" : (?:' + _OBJECT + rb'"url" : )?"(' + _HEAD + rb")")
_BASE64 = _pattern(rb'"(?:input_audio|source)" : ' + _OBJECT + rb'"data" : "(' + _HEAD + rb"|(?!" + _SCHEME + rb"))")
_START = re.compile(_URL + rb"|" + _BASE64)
"""The start of a part up to the base64. Quotes inside a JSON string are escaped, so it cannot match there."""

MAX_KEY_BYTES = len(b'"input_audio"')

MAX_CANDIDATES = 10_000
"""Further keys are not examined. Each medium has at most two of them: its type and its content."""


@dataclass(frozen=True, slots=True)
class CutBody:
    """A body without its large media."""

    json: bytes
    media: dict[str, memoryview]
    """The base64 of the media, by the URL that the parsed request has in their place."""


def cut_media(body: bytes | bytearray, max_json_bytes: int, kept_urls: Collection[str] = ()) -> CutBody | None:
    """Returns the body without its large media, or None if it is still larger than `max_json_bytes`.

    Args:
        kept_urls: the URLs, from an earlier call for this body, of media that stay in the JSON.
    """
    view = memoryview(body)
    parts: list[bytes | memoryview] = []
    media: dict[str, memoryview] = {}
    size = kept = position = 0
    numbers = count()
    for _ in range(MAX_CANDIDATES):
        # The JSON that may follow is limited, so a search in a long text ends early.
        key = _KEY.search(body, position, kept + max_json_bytes - size + MAX_KEY_BYTES)
        if key is None:
            break
        position = key.end()
        match = _START.match(body, key.start())
        if match is None or (end := body.find(b'"', match.end())) - match.end() < MIN_CUT_BYTES:
            continue
        reference = f"…{next(numbers)}".encode()  # An error that quotes it shows a shortened URL.
        head = (match[1] or match[2] or b"data:;base64,").replace(rb"\/", b"/")
        if (url := (head + reference).decode()) in kept_urls:
            continue
        media[url] = view[match.end() : end]
        parts += (view[kept : match.end()], reference)
        size += match.end() - kept + len(reference)
        kept = position = end
    if size + len(body) - kept > max_json_bytes:
        return None
    return CutBody(b"".join((*parts, view[kept:])), media)


def find_similar_texts(slots: Sequence[MediaSlot], media: Mapping[str, memoryview]) -> set[str]:
    """Returns the URLs that do not have exactly one slot of the parsed request: the JSON has their texts elsewhere."""
    uses = Counter(slot.url for slot in slots)
    return {url for url in media if uses[url] != 1}


def insert_media(slots: Sequence[MediaSlot], media: Mapping[str, memoryview]) -> None:
    """Inserts cut media into the slots of the parsed request."""
    for slot in slots:
        if (content := media.get(slot.url)) is not None:
            slot.replace_url(BodyDataUrl(slot.url.partition(",")[0] + ",", content))
