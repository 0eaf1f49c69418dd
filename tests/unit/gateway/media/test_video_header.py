"""The gateway finds the properties of videos that FFmpeg finds, and rejects files that executors must not get."""

from __future__ import annotations

import io
import os
import random
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import av
import pytest

from cornserve.gateway.media.errors import MediaError
from cornserve.gateway.media.formats.base import VideoHeader
from cornserve.gateway.media.inspection import RULES
from cornserve.gateway.media.video_header import read_video_header
from cornserve.limits import Limits
from tests.audio import audio_file, sound
from tests.video import AVI_CODECS, avi_file, rotated, transparent_gif, video_file

MUTATIONS = int(os.environ.get("CORNSERVE_VIDEO_MUTATIONS", "40"))
"""Changed files of each format."""

TIMES = [0, 40, 90, 400, 450, 1000, 1020, 1500]
FRAGMENTED = {"movflags": "frag_keyframe+empty_moov"}

VIDEOS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "H.264": ("MP4", video_file),
    "fragmented": ("MP4", lambda: video_file(options=FRAGMENTED)),
    "DASH": ("MP4", lambda: video_file(options={"movflags": "dash"})),
    "variable frame rate": ("MP4", lambda: video_file(count=8, times=TIMES)),
    "sound": ("MOV", lambda: video_file("MOV", sound="aac")),
    "Matroska": ("MKV", lambda: video_file("MKV", sound="aac")),
    "VP8": ("WEBM", lambda: video_file("WEBM", "libvpx", sound="libopus")),
    "VP9": ("WEBM", lambda: video_file("WEBM", "libvpx-vp9", width=95, height=63)),
    "variable frame rate in WebM": ("WEBM", lambda: video_file("WEBM", "libvpx", count=8, times=TIMES)),
    "AVI": ("AVI", lambda: video_file("AVI", "mpeg4")),
    "Motion JPEG": ("AVI", lambda: video_file("AVI", "mjpeg", width=95, height=63, pixel_format="yuvj420p")),
    **{name: ("AVI", partial(avi_file, name)) for name in AVI_CODECS},
    "GIF": ("GIF", lambda: video_file("GIF", "gif", pixel_format="rgb8")),
    "one frame": ("MP4", lambda: video_file(count=1)),
    "one frame in WebM": ("WEBM", lambda: video_file("WEBM", "libvpx", count=1)),
    "one frame in GIF": ("GIF", lambda: video_file("GIF", "gif", count=1, pixel_format="rgb8")),
}


@pytest.mark.parametrize("name", VIDEOS)
def test_headers_are_those_that_ffmpeg_finds(name: str) -> None:
    format, make = VIDEOS[name]
    data = make()

    header = read_video_header(data, 100)

    with av.open(io.BytesIO(data), "r") as container:
        stream = container.streams.video[0]
        frames = sum(packet.size > 0 for packet in container.demux(stream))
        assert header[:4] == (format, stream.width, stream.height, frames)
        # The duration of a fragmented file may include the time before the first frame, and that of WebM may be a mean.
        assert container.duration is not None
        assert header.seconds == pytest.approx(container.duration / av.time_base, abs=0.45)


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_the_rotation_is_found(degrees: int) -> None:
    assert read_video_header(rotated(video_file(), degrees), 20) == ("MP4", 96, 64, 20, 2.0, degrees)


def test_recordings_of_browsers_have_no_duration() -> None:
    """Their segment and clusters have no size, either."""
    recording = video_file("WEBM", "libvpx", options={"live": "1"})

    assert read_video_header(recording, 20) == ("WEBM", 96, 64, 20, 2.0, 0)


def test_short_delays_of_gifs_are_replaced() -> None:
    assert read_video_header(transparent_gif([20, 10, 0, 300]), 20) == ("GIF", 40, 30, 4, 0.52, 0)


def box(kind: bytes, *content: bytes) -> bytes:
    return struct.pack(">I", 8 + sum(map(len, content))) + kind + b"".join(content)


def element(id: int, content: bytes) -> bytes:
    return id.to_bytes((id.bit_length() + 7) // 8) + (1 << 56 | len(content)).to_bytes(8) + content


def patched(data: bytes, kind: bytes, offset: int, content: bytes) -> bytes:
    """Returns the file with other content in the first box of a kind."""
    start = data.index(kind) + 4 + offset
    return data[:start] + content + data[start + len(content) :]


MP4 = video_file()
WEBM = video_file("WEBM", "libvpx")
GIF = transparent_gif([100] * 4)
WITH_SOUND = video_file("MOV", sound="aac")
EMPTY_MOVIE = video_file(options=FRAGMENTED)

AVI = video_file("AVI", "mpeg4")

INVALID = {
    "empty": (b"", "invalid", "the file is empty: send MP4, MOV, WebM, MKV, AVI or GIF"),
    "audio": (audio_file(sound(0)), "unsupported", "unsupported video format: send MP4"),
    "AVI without tracks": (b"RIFF\0\0\0\0AVI LIST", "invalid", "broken: the AVI has no video"),
    "AVI in its size": (AVI[:4] + b"\0\0", "unsupported", "unsupported video format"),
    "AVI in its list": (b"RIFF\0\0\0\0AVI ", "invalid", "broken: the AVI has no video"),
    "AVI in its track": (b"RIFF\0\0\0\0" + AVI[8 : AVI.index(b"strf") + 12], "invalid", "truncated: the file ends"),
    "AVI in a chunk": (AVI[:-9], "invalid", "truncated: the AVI ends in a chunk"),
    "Indeo": (AVI.replace(b"FMP4", b"IV50"), "unsupported", "unsupported video codec 'IV50': convert the video"),
    "RLE": (AVI.replace(b"FMP4", b"\1\0\0\0"), "unsupported", "unsupported video codec '0x1': convert the video"),
    "frame bomb in AVI": (patched(AVI, b"strh", 36, b"\xff" * 4), "too_large", "more than 36000 frames"),
    "MP4 in its first box": (MP4[:20], "invalid", "truncated: the MP4 ends in a box"),
    "MP4 without its header": (MP4[: MP4.index(b"moov") - 4], "invalid", "truncated: the MP4 has no header"),
    "MP4 in its header": (MP4[:-30], "invalid", "truncated: the MP4 ends in a box"),
    "MP4 with two bytes too many": (MP4 + b"\1\1", "invalid", "truncated: the MP4 ends in a box"),
    "MP4 in a field": (box(b"ftyp", b"isom") + box(b"moov", box(b"trak", box(b"tkhd"))), "invalid", "truncated"),
    "M4A": (WITH_SOUND.replace(b"vide", b"soun"), "invalid", "broken: the MP4 has no video"),
    "no tracks": (box(b"ftyp", b"isom") + box(b"moov", box(b"tkhd", bytes(92))), "invalid", "outside of the tracks"),
    "negative box": (MP4[:4] + b"ftyp" + struct.pack(">I4sQ", 1, b"free", 3), "invalid", "truncated"),
    "small box": (box(b"ftyp", b"isom") + struct.pack(">I4s", 7, b"free"), "invalid", "invalid size"),
    "no frames in MP4": (patched(MP4, b"stsz", 4, bytes(8)), "too_small", "the video has no frames"),
    "no frames in fragments": (EMPTY_MOVIE[: EMPTY_MOVIE.index(b"moof") - 4], "too_small", "has no frames"),
    "no duration": (patched(MP4, b"stts", 8, struct.pack(">II", 20, 0)), "too_small", "the video takes 0 s"),
    "no time scale": (patched(MP4, b"mdhd", 12, bytes(4)), "too_small", "the video takes 0 s"),
    "H.263": (patched(MP4, b"stsd", 12, b"s263"), "unsupported", "unsupported video codec 's263': convert the video"),
    "encrypted": (patched(MP4, b"stsd", 12, b"encv"), "unsupported", "unsupported video codec 'encv'"),
    "one pixel": (patched(MP4, b"stsd", 40, b"\0\1\0\1"), "too_small", "the video has 1×1 pixels: each side must"),
    "pixel bomb": (patched(MP4, b"stsd", 40, b"\xff\xff\xff\xff"), "too_large", "the video has 65535×65535 pixels ("),
    "frame bomb": (patched(MP4, b"stsz", 4, b"\0\0\0\0\xff\xff\xff\xff"), "invalid", "more frames than bytes"),
    "table bomb": (patched(MP4, b"stts", 4, b"\xff\xff\xff\xff"), "invalid", "exceeds its box"),
    "run bomb": (patched(EMPTY_MOVIE, b"trun", 4, b"\xff\xff\xff\xff"), "invalid", "exceeds its box"),
    "long": (patched(MP4, b"mdhd", 12, b"\0\0\0\1"), "too_large", "the video takes 20480.0 s (limit video-seconds=600"),
    "WebM in its header": (WEBM[:20], "invalid", "truncated: the WebM ends in an element"),
    "WebM in a frame": (WEBM[: WEBM.index(b"\x1c\x53\xbb\x6b") - 9], "invalid", "truncated: the WebM"),
    "WebM without tracks": (element(0x1A45DFA3, element(0x4282, b"webm")), "invalid", "the WebM has no video"),
    "WebM of zeros": (WEBM[:40] + bytes(100), "invalid", "broken: the WebM has"),
    "subtitles": (WEBM.replace(b"V_VP8", b"S_VP8"), "unsupported", "unsupported video codec 'S_VP8'"),
    "GIF in a frame": (GIF[:-20], "invalid", "truncated: the GIF has no end marker"),
    "GIF in its header": (GIF[:9], "invalid", "truncated: the file ends in its header"),
    "GIF without frames": (GIF[:6] + b"\10\0\10\0\0\0\0;", "too_small", "the video has no frames"),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_videos_are_rejected_with_the_reason(name: str) -> None:
    data, problem, message = INVALID[name]

    with pytest.raises(MediaError, match=message.replace("(", r"\(")) as raised:
        RULES["video"].read_header(data, Limits())

    assert raised.value.problem == problem


@pytest.mark.parametrize("name", VIDEOS)
def test_videos_with_too_many_frames_are_rejected(name: str) -> None:
    data = VIDEOS[name][1]()
    frames = read_video_header(data, 100).frames

    with pytest.raises(MediaError, match=rf"more than {frames - 1} frames \(limit video-frames={frames - 1}, see"):
        read_video_header(data, frames - 1)


def test_tracks_without_pictures_are_limited() -> None:
    """Decoders keep an entry for each of their samples."""
    sizes = struct.pack(">III", 0, 1, 1_000_001)
    handler = box(b"hdlr", bytes(8), b"soun")
    file = box(b"ftyp", b"isom") + box(b"moov", box(b"trak", handler, box(b"stsz", sizes))) + bytes(1_000_001)

    with pytest.raises(MediaError, match="has a track with more than 1000000 samples"):
        read_video_header(file, 100)


SMALL_PARTS: dict[str, Callable[[], bytes]] = {
    "boxes": lambda: box(b"ftyp", b"isom") + box(b"free") * 2_000_000,
    "elements": lambda: element(0x1A45DFA3, b"") + element(0x18538067, b"\xec\x80" * 8_000_000),
    "tracks and boxes": lambda: box(b"ftyp", b"isom") + box(b"trak") * 20_000 + box(b"trex", bytes(16)) * 20_000,
    "tracks and elements": lambda: (
        element(0x1A45DFA3, b"") + element(0x18538067, b"\xae\x80" * 20_000 + b"\xa3\x84\x81\0\0\0" * 20_000)
    ),
    "blocks": lambda: b"GIF89a" + bytes(7) + b"\x21\xfe" + b"\x01x" * 8_000_000,
}


@pytest.mark.parametrize("name", SMALL_PARTS)
def test_a_file_of_many_small_parts_takes_a_bounded_time(name: str) -> None:
    data = SMALL_PARTS[name]()
    before = time.thread_time()

    with pytest.raises(MediaError, match=r"broken: the .* has more than"):
        read_video_header(data, 36_000)

    assert time.thread_time() - before < 1.5


@pytest.mark.parametrize("name", VIDEOS)
def test_changed_files_are_described_or_rejected(name: str) -> None:
    original, draw = VIDEOS[name][1](), random.Random(name)
    for _ in range(MUTATIONS):
        with suppress(MediaError):
            header = read_video_header(changed(original, draw), 100)
            assert isinstance(header, VideoHeader)


def changed(original: bytes, draw: random.Random) -> bytes:
    """Returns the file with a few other bytes, and sometimes without its end."""
    data = bytearray(original)
    for _ in range(draw.randrange(1, 5)):
        data[draw.randrange(len(data))] = draw.randrange(256)
    if draw.random() < 0.2:
        del data[draw.randrange(len(data)) :]
    return bytes(data)
