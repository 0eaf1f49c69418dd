"""Videos for tests."""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from hashlib import sha256
from typing import Any

import av
import av.container
import numpy as np
import numpy.typing as npt
import PIL.Image

from cornserve.gateway.media.video_header import read_sound_header
from cornserve.task import Blob
from cornserve_tasklib.media import Media, Video

CONTAINERS = {"MP4": "mp4", "MOV": "mov", "WEBM": "webm", "MKV": "matroska", "AVI": "avi", "GIF": "gif"}
"""FFmpeg's names of the containers that a gateway detects."""

AVI_CODECS = {
    "MP42": ("msmpeg4v2", "yuv420p"),
    "MP43": ("msmpeg4", "yuv420p"),
    "WMV2": ("wmv2", "yuv420p"),
    "H263": ("h263", "yuv420p"),
    "FLV1": ("flv", "yuv420p"),
    "mpg2": ("mpeg2video", "yuv420p"),
    "cvid": ("cinepak", "rgb24"),
    "MPNG": ("png", "rgb24"),
    "FFV1": ("ffv1", "yuv420p"),
    "HFYU": ("huffyuv", "yuv422p"),
    "ULY0": ("utvideo", "yuv420p"),
    "I420": ("rawvideo", "yuv420p"),
    "RGB": ("rawvideo", "bgr24"),
}
"""FFmpeg's encoder and format of the pixels, by the name of the codec in an AVI file."""

SILENCE: npt.NDArray[np.float32] = np.zeros((1, 48_000), np.float32)
"""A second at 48 kHz."""

_TIME_BASE = Fraction(1, 1000)
_MATRICES = {90: (0, 1, -1, 0), 180: (-1, 0, 0, -1), 270: (0, -1, 1, 0)}
"""The upper left part of the matrix in a track's header, by the degrees that it turns clockwise."""


def frames(count: int, width: int = 96, height: int = 64, seed: int = 0) -> list[npt.NDArray[np.uint8]]:
    """Returns random blocks of colors, which move one pixel to the right in each frame."""
    blocks = np.random.default_rng(seed).integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), np.uint8)
    picture = blocks.repeat(8, 0).repeat(8, 1)[:height, :width]
    return [np.ascontiguousarray(np.roll(picture, shift, 1)) for shift in range(count)]


def video_file(
    format: str = "MP4",
    codec: str = "h264",
    count: int = 20,
    width: int = 96,
    height: int = 64,
    fps: int = 10,
    *,
    times: Sequence[int] | None = None,
    pixel_format: str = "yuv420p",
    options: dict[str, str] | None = None,
    codec_context: dict[str, Any] | None = None,
    sound: str | None = None,
    samples: npt.NDArray[np.float32] | None = None,
) -> bytes:
    """Returns the file that FFmpeg writes.

    Args:
        times: the time of each frame in milliseconds. By default, they are `1 / fps` seconds apart.
        options: the options of the container.
        codec_context: the attributes of the codec context.
        sound: the codec of a track of sound.
        samples: the sound, of the shape [1, samples] at 48 kHz. By default, a second of silence.
    """
    with io.BytesIO() as file, _same_priority():
        with av.open(file, "w", CONTAINERS[format], options=options or {}) as container:
            stream = container.add_stream(codec, fps)
            assert isinstance(stream, av.VideoStream)
            stream.width, stream.height, stream.pix_fmt = width, height, pixel_format
            stream.codec_context.thread_count = 1
            for name, value in (codec_context or {}).items():
                setattr(stream.codec_context, name, value)
            if times is not None:
                stream.codec_context.time_base = _TIME_BASE
            sound_stream = None if sound is None else _add_sound(container, sound)
            for index, pixels in enumerate(frames(count, width, height)):
                frame = av.VideoFrame.from_ndarray(pixels, "rgb24")
                if times is not None:
                    frame.pts, frame.time_base = times[index], _TIME_BASE
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
            if sound_stream is not None:
                _write_sound(container, sound_stream, SILENCE if samples is None else samples)
        return file.getvalue()


def avi_file(codec: str) -> bytes:
    """Returns a file in one of `AVI_CODECS`. H.263 has only few sizes and rates."""
    encoder, pixel_format = AVI_CODECS[codec]
    width, height = (128, 96) if codec == "H263" else (96, 64)
    return video_file("AVI", encoder, width=width, height=height, fps=30, pixel_format=pixel_format)


@contextmanager
def _same_priority() -> Iterator[None]:
    """Keeps the priority of the thread. SVT-AV1 gives a thread of root real-time priority, which processes inherit."""
    policy, parameter = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameter)


def sound_file(codec: str, container: str) -> bytes:
    """Returns a second of silence in a container for videos."""
    with io.BytesIO() as file:
        with av.open(file, "w", container) as output:
            _write_sound(output, _add_sound(output, codec), SILENCE)
        return file.getvalue()


def _add_sound(container: av.container.OutputContainer, codec: str) -> av.AudioStream:
    stream = container.add_stream(codec, 48_000, layout="mono")
    assert isinstance(stream, av.AudioStream)
    return stream


def _write_sound(
    container: av.container.OutputContainer, stream: av.AudioStream, samples: npt.NDArray[np.float32]
) -> None:
    for start in range(0, samples.shape[1], 960):
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples[:, start : start + 960]), "fltp", "mono")
        frame.sample_rate, frame.pts = 48_000, start
        container.mux(stream.encode(frame))
    container.mux(stream.encode(None))


def long_video(count: int, fps: int = 30, width: int = 320, height: int = 240) -> bytes:
    """Returns a long MP4 file at once: it repeats the packets of ten frames."""
    with io.BytesIO() as file:
        with av.open(file, "w", "mp4") as container:
            stream = container.add_stream("mpeg4", fps)
            stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
            encoded = [packet for picture in _pictures(10, width, height) for packet in stream.encode(picture)]
            for index in range(count):
                container.mux(_copy(encoded[index % len(encoded)], index, stream))
        return file.getvalue()


def resized_video() -> bytes:
    """Returns a MOV file of four frames. The last two are smaller than the header declares."""
    with io.BytesIO() as file:
        with av.open(file, "w", "mov") as container:
            stream = container.add_stream("mjpeg", 10)
            stream.width, stream.height, stream.pix_fmt = 96, 64, "yuvj420p"
            smaller = av.CodecContext.create("mjpeg", "w")
            smaller.width, smaller.height, smaller.pix_fmt, smaller.time_base = 48, 32, "yuvj420p", Fraction(1, 10)
            encoded = [packet for picture in _pictures(2, 96, 64) for packet in stream.encode(picture)]
            encoded += [packet for picture in _pictures(2, 48, 32) for packet in smaller.encode(picture)]
            for index, packet in enumerate(encoded):
                container.mux(_copy(packet, index, stream))
        return file.getvalue()


def _pictures(count: int, width: int, height: int) -> list[av.VideoFrame]:
    return [av.VideoFrame.from_ndarray(pixels, "rgb24") for pixels in frames(count, width, height)]


def _copy(packet: av.Packet[Any], index: int, stream: av.VideoStream) -> av.Packet[Any]:
    """Returns the packet as that of another frame."""
    copy: av.Packet[Any] = av.Packet(bytes(packet))
    copy.pts = copy.dts = index
    copy.time_base, copy.stream, copy.is_keyframe = packet.time_base, stream, packet.is_keyframe
    return copy


def rotated(mp4: bytes, degrees: int) -> bytes:
    """Returns an MP4 file that players turn clockwise."""
    start = mp4.index(b"tkhd") + 44
    a, b, c, d = (value << 16 for value in _MATRICES[degrees])
    return mp4[:start] + struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30) + mp4[start + 36 :]


def transparent_gif(delays: Sequence[int]) -> bytes:
    """Returns an animation with a frame for each delay, in milliseconds, in which every other frame is transparent."""
    pictures = [PIL.Image.new("RGBA", (40, 30), (255, 0, 0, 255 * (index % 2))) for index in range(len(delays))]
    for index, picture in enumerate(pictures):
        picture.putpixel((index, index), (0, 255, 0, 255))
    with io.BytesIO() as file:
        pictures[0].save(file, "GIF", save_all=True, append_images=pictures[1:], duration=list(delays), disposal=2)
        return file.getvalue()


def video_from_file(data: bytes, format: str = "MP4", **fields: Any) -> Video:
    """Returns the `Video` that a gateway makes of a file, by default of `video_file`."""
    described: dict[str, Any] = {
        "width": 96,
        "height": 64,
        "frames": 20,
        "seconds": 2,
        "where": "messages[0].content[0]",
    }
    return Video(data=Blob(data), format=format, digest=sha256(data).hexdigest(), **described | fields)


def with_sound(video: Video) -> list[Media]:
    """Returns a video and the `Audio` that a gateway makes of its sound."""
    assert video.data is not None
    sound = read_sound_header(video.data.data, 100_000).to_media(video.data, video.digest, video.where)
    return [video, sound.model_copy(update={"of_video": True})]


def as_video(count: int, width: int, height: int, fps: int, degrees: int = 0, **options: Any) -> Video:
    """Returns the `Video` that a gateway makes of an MP4 file of this many frames, which players turn clockwise."""
    data = video_file(count=count, width=width, height=height, fps=fps, **options)
    return video_from_file(
        rotated(data, degrees) if degrees else data,
        width=width,
        height=height,
        frames=count,
        seconds=count / fps,
        rotation=degrees,
    )
