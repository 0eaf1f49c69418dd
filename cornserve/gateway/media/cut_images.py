"""Cuts the base64 images out of a JSON body, before it is parsed.

Parsing, copying and counting the characters of large images would block the event loop. References replace the images
in the JSON, and the parsed request gets its images back. They stay in the body's memory until they are decoded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cornserve.app.image_slots import ImageSlot
from cornserve.gateway.media.data_url import BodyDataUrl

MIN_CUT_BYTES = 16 * 1024
"""Shorter images stay in the JSON."""

_KEY = b'"image_url"'
_URL = re.compile(
    rb'"image_url"[ \t\r\n]*:[ \t\r\n]*\{[ \t\r\n]*(?:"detail"[ \t\r\n]*:[ \t\r\n]*"[a-z]*"[ \t\r\n]*,[ \t\r\n]*)?'
    rb'"url"[ \t\r\n]*:[ \t\r\n]*"([Dd][Aa][Tt][Aa]:[!#-+\--\[\]-~]{0,200};[Bb][Aa][Ss][Ee]64,)'
)
"""The start of an image part up to the base64. Quotes inside a JSON string are escaped, so it cannot match there."""

MAX_CANDIDATES = 10_000
"""Further keys are not examined. Each image has two of them: its type and its URL."""


@dataclass(frozen=True, slots=True)
class CutBody:
    """A body without its large images."""

    json: bytes
    images: dict[str, memoryview]
    """The base64 of the images, by the URL that replaces it in the JSON."""


def cut_images(body: bytes | bytearray, max_json_bytes: int) -> CutBody | None:
    """Returns the body without its large images, or None if it is still larger than `max_json_bytes`."""
    view = memoryview(body)
    parts: list[bytes | memoryview] = []
    images: dict[str, memoryview] = {}
    size = kept = position = 0
    for _ in range(MAX_CANDIDATES):
        # The JSON that may follow is limited, so a search in a long text ends early.
        start = body.find(_KEY, position, kept + max_json_bytes - size + len(_KEY))
        if start < 0:
            break
        position = start + len(_KEY)
        match = _URL.match(body, start)
        if match is None or (end := body.find(b'"', match.end())) - match.end() < MIN_CUT_BYTES:
            continue
        reference = b"@%d" % len(images)
        images[(match[1] + reference).decode()] = view[match.end() : end]
        parts += (view[kept : match.end()], reference)
        size += match.end() - kept + len(reference)
        kept = position = end
    if size + len(body) - kept > max_json_bytes:
        return None
    return CutBody(b"".join((*parts, view[kept:])), images)


def insert_images(slots: Sequence[ImageSlot], images: Mapping[str, memoryview]) -> bool:
    """Inserts cut images into the slots of the parsed request. Returns whether each image had exactly one slot.

    Otherwise, the JSON has a similar text elsewhere, and must be parsed with its images.
    """
    cut_slots = [slot for slot in slots if slot.url in images]
    if sorted(slot.url for slot in cut_slots) != sorted(images):
        return False
    for slot in cut_slots:
        slot.replace_url(BodyDataUrl(slot.url.partition(",")[0] + ",", images[slot.url]))
    return True
