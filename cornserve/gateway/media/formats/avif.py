"""Reads the size of AVIF images (HEIF, ISO/IEC 23008-12).

The size is that of the primary item, or for an animation that of the first track. Decoders read frames of other sizes,
too: executors decode in a process with limited memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import unpack_from

from cornserve.gateway.media.errors import MediaError
from cornserve.gateway.media.formats.base import ImageHeader, broken, truncated
from cornserve.gateway.media.formats.isobmff import IsoBox

MAX_BOXES = 1000
"""The maximum number of boxes of a container."""

_MAJOR_BRANDS = (b"avif", b"avis", b"mif1", b"msf1")
_ANIMATION = b"avis"
_FULL_BOX = 4
"""The size of the version and the flags with which some boxes begin."""


def is_avif(data: bytes) -> bool:
    """Returns whether the file has a brand of AVIF. Files with the brands of HEIC have the same boxes."""
    if data[4:8] != b"ftyp" or data[8:12] not in _MAJOR_BRANDS:
        return False
    brands = data[8 : min(int.from_bytes(data[:4]), 256)]
    return any(brands[start : start + 4] in (b"avif", b"avis") for start in range(0, len(brands), 4))


def read_header(data: bytes) -> ImageHeader:
    boxes = {box.kind: box for box in _boxes(data, 0, len(data))}
    movie, meta = boxes.get(b"moov"), boxes.get(b"meta")
    if b"mdat" not in boxes and (meta is None or b"idat" not in _kinds(data, meta)):
        raise truncated("AVIF", "has no image")
    if movie is not None and data[8:12] == _ANIMATION:
        return _track_size(data, movie)
    if meta is None:
        raise broken("AVIF", "has no primary image")
    return _primary_size(data, meta)


def _kinds(data: bytes, meta: IsoBox) -> set[bytes]:
    return {box.kind for box in _boxes(data, meta.start + _FULL_BOX, meta.end)}


def _track_size(data: bytes, movie: IsoBox) -> ImageHeader:
    for track in _boxes(data, movie.start, movie.end):
        if track.kind == b"trak":
            header = next((box for box in _boxes(data, track.start, track.end) if box.kind == b"tkhd"), None)
            if header is not None:
                width, height = unpack_from(">II", data, header.end - 8)  # 16 bits each, and 16 of a fraction
                return ImageHeader("AVIF", width >> 16, height >> 16)
    raise broken("AVIF", "has no track")


def _primary_size(data: bytes, meta: IsoBox) -> ImageHeader:
    boxes = {box.kind: box for box in _boxes(data, meta.start + _FULL_BOX, meta.end)}
    primary, properties = boxes.get(b"pitm"), boxes.get(b"iprp")
    if primary is None or properties is None:
        raise broken("AVIF", "has no primary image")
    item = unpack_from(">I" if data[primary.start] else ">H", data, primary.start + _FULL_BOX)[0]
    parts = [*_boxes(data, properties.start, properties.end)]
    contents = next((box for box in parts if box.kind == b"ipco"), None)
    if contents is not None:
        known = [*_boxes(data, contents.start, contents.end)]
        for part in parts:
            for index in _associated(data, part, item) if part.kind == b"ipma" else ():
                if 0 < index <= len(known) and known[index - 1].kind == b"ispe":
                    return ImageHeader("AVIF", *unpack_from(">II", data, known[index - 1].start + _FULL_BOX))
    raise broken("AVIF", "has no size")


def _associated(data: bytes, box: IsoBox, item: int) -> Iterator[int]:
    """Yields the numbers of the properties of an item, from 1 on."""
    version, flags, (entries,) = data[box.start], data[box.start + 3], unpack_from(">I", data, box.start + _FULL_BOX)
    position = box.start + 8
    step, essential = (2, 0x8000) if flags & 1 else (1, 0x80)
    for _ in range(min(entries, MAX_BOXES)):
        (number,) = unpack_from(">I" if version else ">H", data, position)
        position += 4 if version else 2
        (count,) = unpack_from(">B", data, position)
        position += 1
        for start in range(position, position + count * step, step):
            if number == item:
                yield unpack_from(">H" if step == 2 else ">B", data, start)[0] & ~essential
        position += count * step
        if position > box.end:
            raise broken("AVIF", "has a table that exceeds its box")


def _boxes(data: bytes, start: int, end: int) -> Iterator[IsoBox]:
    """Yields the boxes of a container. Raises a `MediaError` for a truncated one."""
    for _ in range(MAX_BOXES):
        if start == end:
            return
        size, kind = unpack_from(">I4s", data, start)
        head = 8
        if size == 1:
            (size,) = unpack_from(">Q", data, start + 8)
            head = 16
        after = start + size if size else end
        if after > end:
            raise truncated("AVIF", f"ends in a box of {size} bytes")
        if after < start + head:
            raise broken("AVIF", "has a box with an invalid size")
        yield IsoBox(kind, start + head, after)
        start = after
    raise MediaError("unsupported", f"the AVIF has more than {MAX_BOXES} boxes: save it again")
