"""Videos are decoded in bounded memory and time, and invalid files are rejected with their position and reason."""

from __future__ import annotations

import asyncio
import os
import random
import struct
import threading
import tracemalloc
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from cornserve_executors.media import video_decoding
from cornserve_executors.media.cancellation import run_cancellable
from cornserve_executors.media.decode_pool import DecodePool
from cornserve_executors.media.errors import UnusableMediaError
from cornserve_executors.media.video_decoding import DecodedVideo, decode_video, read_source, sampled_pixels
from cornserve_executors.media.video_sampling import FrameSampling
from tests.video import (
    frames,
    long_video,
    resized_video,
    rotated,
    sound_file,
    transparent_gif,
    video_file,
    video_from_file,
)

MUTATIONS = int(os.environ.get("CORNSERVE_VIDEO_MUTATIONS", "40"))
"""Changed files of each format."""
MIB = 1 << 20
ALL = FrameSampling(num_frames=-1)

LIVE = {"options": {"live": "1"}}


@pytest.mark.parametrize(
    ("format", "codec", "options"),
    [
        ("MP4", "h264", {}),
        ("MP4", "h264", {"options": {"movflags": "frag_keyframe+empty_moov"}}),
        ("MOV", "h264", {"sound": "aac"}),
        ("MKV", "h264", {"times": [0, 10, 500, 501, 800]}),
        ("WEBM", "libvpx", {"sound": "libopus"}),
        ("WEBM", "libvpx", LIVE),
        ("WEBM", "libvpx-vp9", {}),
        ("MP4", "libsvtav1", {"sound": "aac"}),
        ("WEBM", "libsvtav1", {}),
    ],
)
def test_frames_are_decoded_in_order(format: str, codec: str, options: dict[str, Any]) -> None:
    count = 5
    video = video_from_file(video_file(format, codec, count, **options), format)

    decoded = decode_video(video, ALL)

    assert decoded.indices == [0, 1, 2, 3, 4]
    assert decoded.source.total_frames_num == count
    for pixels, original in zip(decoded.frames, frames(count), strict=True):
        differences = [np.abs(pixels.astype(int) - np.roll(original, shift, 1)).mean() for shift in range(-1, 2)]
        assert min(differences) == differences[1]


@pytest.mark.parametrize(
    ("format", "codec", "options"),
    [("MP4", "h264", {}), ("WEBM", "libvpx", {}), ("GIF", "gif", {"pixel_format": "rgb8"})],
)
def test_a_video_may_have_one_frame(format: str, codec: str, options: dict[str, Any]) -> None:
    """OpenCV, and therefore vLLM, cannot decode such videos."""
    video = video_from_file(video_file(format, codec, 1, **options), format)

    assert decode_video(video, FrameSampling()).frames.shape == (1, 64, 96, 3)
    assert decode_video(video, FrameSampling("qwen3_vl")).indices == [0]


def test_frames_are_rotated() -> None:
    data = video_file()

    upright, turned = (decode_video(video_from_file(file), ALL) for file in (data, rotated(data, 90)))

    np.testing.assert_array_equal(turned.frames, np.rot90(upright.frames, -1, (1, 2)))


def test_transparent_animations_are_decoded() -> None:
    video = video_from_file(transparent_gif([100] * 3), "GIF", width=40, height=30)

    decoded = decode_video(video, ALL)

    assert decoded.frames.shape == (3, 30, 40, 3)
    assert decoded.frames[1, 20, 20].tolist() == [255, 0, 0]


def test_only_sampled_frames_are_kept() -> None:
    video = video_from_file(long_video(200, 10, 640, 480), width=640, height=480, frames=200, seconds=20)
    tracemalloc.start()

    decoded = decode_video(video, FrameSampling(num_frames=4))

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert decoded.indices == [0, 66, 132, 199]
    assert decoded.frames.nbytes == 4 * 640 * 480 * 3
    assert peak < 2 * decoded.frames.nbytes + MIB


async def test_a_long_video_is_decoded_off_the_event_loop_and_can_be_cancelled() -> None:
    video = video_from_file(long_video(6_000, 10), width=320, height=240, frames=6_000, seconds=600)
    pool, started, completed = DecodePool("videos", 1, 1, lambda: None), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def decode() -> DecodedVideo:
        loop.call_soon_threadsafe(started.set)
        decoded = decode_video(video, FrameSampling(num_frames=500))
        completed.set()
        return decoded

    tracemalloc.start()
    decoding = asyncio.create_task(pool.run(decode))
    await started.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not completed.is_set()
    decoding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await decoding
    in_use, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    pool.shutdown()
    assert not completed.is_set()
    assert in_use < MIB


def test_decoding_ends_when_its_caller_is_cancelled() -> None:
    cancelled = threading.Event()
    cancelled.set()
    video = video_from_file(video_file())

    for work in (lambda: decode_video(video, ALL), lambda: read_source(video)):
        with pytest.raises(CancelledError):
            run_cancellable(work, cancelled)
    assert len(decode_video(video, ALL).indices) == 20


LARGE_PNG_FRAMES = video_file("AVI", "png", width=640, height=480, pixel_format="rgb24").replace(
    struct.pack("<II", 640, 480), struct.pack("<II", 96, 64)
)
"""A file that declares smaller frames than it has."""


@pytest.mark.parametrize(
    ("data", "format", "fields", "reason"),
    [
        (video_file(count=30), "MP4", {}, "the video has more than the declared 20 frames"),
        (video_file(width=640, height=480), "MP4", {}, "the frames have 640×480 pixels, but 96×64 were declared"),
        (LARGE_PNG_FRAMES, "AVI", {}, "the AVI video cannot be decoded: "),
        (sound_file("aac", "mp4"), "MP4", {}, "the file has no video"),
        (video_file(codec="mpeg2video", fps=30), "MP4", {}, "the codec of the video is not supported: convert it to H"),
        (video_file("WEBM", "libvpx"), "MP4", {}, "the MP4 video cannot be decoded: "),
        (b"", "MP4", {}, "the MP4 video cannot be decoded: "),
        (
            video_file(options={"movflags": "frag_keyframe+empty_moov"})[:900],
            "MP4",
            {},
            "the MP4 video cannot be decoded: ",
        ),
        (resized_video(), "MOV", {"frames": 4}, "the size of the frames changes from 96×64 to 48×32 pixels: convert"),
    ],
)
def test_invalid_videos_are_rejected_with_the_reason(
    data: bytes, format: str, fields: dict[str, int], reason: str
) -> None:
    with pytest.raises(UnusableMediaError, match=rf"messages\[0\].content\[0\]: {reason}"):
        decode_video(video_from_file(data, format, **fields), ALL)


def test_the_pixels_of_the_sampled_frames_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    video = video_from_file(video_file())
    monkeypatch.setattr(video_decoding, "MAX_SAMPLED_PIXELS", 7 * 96 * 64)

    assert sampled_pixels(video, FrameSampling(num_frames=7)) == 7 * 96 * 64
    assert len(decode_video(video, FrameSampling(num_frames=7)).frames) == 7
    with pytest.raises(UnusableMediaError, match="8 frames of 96×64 pixels are sampled, more than 0 million pixels in"):
        decode_video(video, FrameSampling(num_frames=8))


@pytest.mark.parametrize(
    ("format", "codec", "options"),
    [
        ("MP4", "h264", {}),
        ("MP4", "hevc", {"codec_context": {"options": {"x265-params": "log-level=none"}}}),
        ("MOV", "mjpeg", {"pixel_format": "yuvj420p", "sound": "aac"}),
        ("MKV", "mpeg4", {}),
        ("WEBM", "libvpx", {"sound": "libopus"}),
        ("WEBM", "libvpx-vp9", {}),
        ("MP4", "libsvtav1", {}),
        ("GIF", "gif", {"pixel_format": "rgb8"}),
    ],
)
def test_changed_files_are_decoded_or_rejected(format: str, codec: str, options: dict[str, Any]) -> None:
    original, draw = video_file(format, codec, 6, **options), random.Random(codec)
    for _ in range(MUTATIONS):
        data = bytearray(original)
        for _ in range(draw.randrange(1, 5)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        del data[draw.choice([len(data), draw.randrange(len(data))]) :]
        with suppress(UnusableMediaError):
            decoded = decode_video(video_from_file(bytes(data), format, frames=6), ALL)
            assert len(decoded.frames) == len(decoded.indices) > 0
