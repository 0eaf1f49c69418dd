"""Decodes the sampled frames of video files, identically in all executors.

A video that an encoder executor encodes must become the same pixels as one that vLLM encodes itself. This module
therefore decodes as vLLM does with OpenCV: both use FFmpeg, count frames in the order of their presentation, convert
them to RGB with bicubic interpolation of the colors, and rotate them. Unlike OpenCV, it bounds memory and time.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import floor
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cornserve_executors.media.cancellation import raise_if_cancelled
from cornserve_executors.media.errors import UnusableMediaError
from cornserve_executors.media.video_sampling import FrameSampling, VideoSource
from cornserve_tasklib.media import Video

if TYPE_CHECKING:
    import av
    import av.container
    import av.packet
    import av.video.frame
    import av.video.stream

MAX_SAMPLED_PIXELS = 512_000_000
"""Pixels of all sampled frames of one video, 1.5 GB: 555 frames of 1280×720."""

MAX_THREADS = 4
"""Threads that decode one video. Each holds a frame."""

DEMUXERS = {"MP4": "mov", "MOV": "mov", "WEBM": "matroska", "MKV": "matroska", "AVI": "avi", "GIF": "gif"}
"""FFmpeg's names of the containers that the gateway detects."""

VIDEO_CODECS = ("h264", "hevc", "vp8", "vp9", "av1", "mpeg4", "mjpeg", "gif")

_DECODERS = (*VIDEO_CODECS, "libdav1d", "aac", "mp3float", "opus", "vorbis", "flac", "ac3", "eac3", "alac", "pcm_s16le")
"""FFmpeg's decoders that may run. It reads the beginning of the sound, too."""

_AVI_DECODERS = (
    *("msmpeg4v2", "msmpeg4", "wmv2", "h263", "flv", "mpeg2video"),
    *("cinepak", "png", "ffv1", "huffyuv", "utvideo", "rawvideo"),
)
"""FFmpeg's decoders that may also run for AVI files. `max_pixels` limits the frames of each."""

_VP8_SHOWN = 0x10
"""The flag in the first byte of a frame (RFC 6386, section 9.1)."""

_TIME_BASE = 1_000_000
"""FFmpeg's units of a container's duration per second."""

_PADDING = 256
"""Pixels by which codecs enlarge the sides of frames, at most."""


@dataclass(frozen=True, slots=True)
class DecodedVideo:
    """The sampled frames of a video."""

    frames: npt.NDArray[np.uint8]
    """[frames, height, width, 3], RGB."""
    indices: list[int]
    """The index of each frame in the video."""
    source: VideoSource

    @property
    def metadata(self) -> dict[str, Any]:
        """The description of the frames for vLLM's and transformers' processors."""
        return {
            "total_num_frames": self.source.total_frames_num,
            "fps": self.source.original_fps,
            "duration": self.source.duration,
            "video_backend": "pyav",
            "frames_indices": self.indices,
            "do_sample_frames": len(self.indices) == self.source.total_frames_num,
        }


def estimated_source(video: Video) -> VideoSource:
    """Returns the properties of a video by its header, which may differ from those of `read_source`."""
    return VideoSource(video.frames, video.frames / video.seconds, video.seconds)


def sampled_pixels(video: Video, sampling: FrameSampling) -> int:
    """Returns approximately the number of pixels that `decode_video` returns, by the header. Each takes three bytes."""
    return len(sampling.frame_indices(estimated_source(video))) * video.width * video.height


def read_source(video: Video) -> VideoSource:
    """Returns the properties by which frames are sampled. Reads all of the file, and decodes its beginning. Blocks.

    Raises `UnusableMediaError`, an `InvalidRequestError`, unless the file is a video of the declared number of frames.
    """
    with _open_video(video) as (container, stream):
        return _read_source(video, container, stream)


def decode_video(video: Video, sampling: FrameSampling) -> DecodedVideo:
    """Decodes the sampled frames. Blocks. Keeps no other frames.

    Raises:
        UnusableMediaError: an `InvalidRequestError`. The file is not valid, has more frames or pixels than declared, or
            the sampled frames have more than `MAX_SAMPLED_PIXELS`.
    """
    source = read_source(video)
    try:
        wanted = sampling.frame_indices(source)
    except ValueError as error:
        raise UnusableMediaError(video.where, str(error)) from error
    with _open_video(video) as (container, stream):
        collector = _FrameCollector(video, wanted)
        for frame in _frames(video, container, stream):
            raise_if_cancelled()
            if collector.add(frame):
                break
    return DecodedVideo(collector.frames, collector.indices, source)


class _FrameCollector:
    """Keeps the sampled frames."""

    def __init__(self, video: Video, wanted: list[int]) -> None:
        from cornserve_executors.media.frame_colors import RgbConverter

        self._video = video
        self._wanted = wanted
        self._converter = RgbConverter()
        self._frames: npt.NDArray[np.uint8] | None = None
        self._position = 0
        self.indices: list[int] = []

    def add(self, frame: av.video.frame.VideoFrame) -> bool:
        """Adds the next frame of the video. Returns whether all sampled frames are known."""
        if self._position == self._wanted[len(self.indices)]:
            self._keep(self._rgb(frame))
            self.indices.append(self._position)
        self._position += 1
        return len(self.indices) == len(self._wanted)

    @property
    def frames(self) -> npt.NDArray[np.uint8]:
        if self._frames is None:
            raise UnusableMediaError(self._video.where, "no frame of the video can be decoded")
        return self._frames[: len(self.indices)]

    def _rgb(self, frame: av.video.frame.VideoFrame) -> npt.NDArray[np.uint8]:
        pixels = self._converter.convert(frame)
        return np.rot90(pixels, frame.rotation // 90) if frame.rotation % 90 == 0 else pixels

    def _keep(self, pixels: npt.NDArray[np.uint8]) -> None:
        if self._frames is None:
            count, (height, width, _) = len(self._wanted), pixels.shape
            if count * height * width > MAX_SAMPLED_PIXELS:
                raise UnusableMediaError(
                    self._video.where,
                    f"{count} frames of {width}×{height} pixels are sampled, more than "
                    f"{MAX_SAMPLED_PIXELS // 1_000_000} million pixels in total: send a shorter or smaller video",
                )
            self._frames = np.empty((count, *pixels.shape), np.uint8)
        expected = self._frames.shape[1:]
        if pixels.shape != expected:
            raise UnusableMediaError(
                self._video.where,
                f"the size of the frames changes from {expected[1]}×{expected[0]} to "
                f"{pixels.shape[1]}×{pixels.shape[0]} pixels: convert the video to one size",
            )
        self._frames[len(self.indices)] = pixels


@contextmanager
def _open_video(video: Video) -> Iterator[tuple[av.container.InputContainer, av.video.stream.VideoStream]]:
    import av

    if video.data is None:
        raise UnusableMediaError(video.where, "the video has no data")
    max_pixels = (video.width + _PADDING) * (video.height + _PADDING)
    options = {"max_pixels": str(max_pixels)}
    decoders = (*_DECODERS, *_AVI_DECODERS) if video.format == "AVI" else _DECODERS
    try:
        with av.open(
            io.BytesIO(video.data.data),
            "r",
            format=DEMUXERS[video.format],
            options=options,
            container_options={"codec_whitelist": ",".join(decoders), "format_whitelist": DEMUXERS[video.format]},
            metadata_errors="replace",
        ) as container:
            if not container.streams.video:
                raise UnusableMediaError(video.where, "the file has no video")
            stream = container.streams.video[0]
            if getattr(stream.codec_context, "name", None) not in decoders:  # None for codecs that FFmpeg does not know
                raise UnusableMediaError(video.where, "the codec of the video is not supported: convert it to H.264")
            width, height = stream.codec_context.width, stream.codec_context.height
            if width * height > max_pixels:
                reason = f"the frames have {width}×{height} pixels, but {video.width}×{video.height} were declared"
                raise UnusableMediaError(video.where, reason)
            stream.codec_context.options = options
            stream.codec_context.thread_type = "AUTO"
            stream.codec_context.thread_count = min(MAX_THREADS, len(os.sched_getaffinity(0)))
            yield container, stream
    except av.FFmpegError as error:
        reason = error.strerror or "its parts are inconsistent"
        raise UnusableMediaError(video.where, f"the {video.format} video cannot be decoded: {reason}") from error


def _read_source(
    video: Video, container: av.container.InputContainer, stream: av.video.stream.VideoStream
) -> VideoSource:
    """Computes the properties as vLLM does with OpenCV, which trusts the header unless it has too many frames."""
    fps = float(stream.average_rate or stream.guessed_rate or 1 / (stream.time_base or 1))
    shown = _count_shown(video, container, stream)
    total = stream.frames or floor((container.duration or 0) / _TIME_BASE * fps + 0.5)
    if not shown - 1 <= total <= shown + 1:
        total = shown
    return VideoSource(total, fps, total / fps)


def _count_shown(video: Video, container: av.container.InputContainer, stream: av.video.stream.VideoStream) -> int:
    """Returns the number of frames that the container presents. Raises `UnusableMediaError` for none or too many."""
    count = shown = 0
    for packet in container.demux(stream):
        raise_if_cancelled()
        if packet.size == 0:
            continue
        if packet.is_corrupt:
            raise UnusableMediaError(video.where, f"the {video.format} video is truncated")
        count += 1
        shown += _is_shown(packet, stream)
        if count > video.frames:
            raise UnusableMediaError(video.where, f"the video has more than the declared {video.frames} frames")
    if shown == 0:
        raise UnusableMediaError(video.where, "the video has no frames")
    return shown


def _is_shown(packet: av.packet.Packet[Any], stream: av.video.stream.VideoStream) -> bool:
    """Returns whether a frame results from the packet. VP8 has packets with frames that only others refer to."""
    is_hidden = stream.codec_context.name == "vp8" and not memoryview(packet)[0] & _VP8_SHOWN
    return not (packet.is_discard or is_hidden)


def _frames(
    video: Video, container: av.container.InputContainer, stream: av.video.stream.VideoStream
) -> Iterator[av.video.frame.VideoFrame]:
    """Yields frames in the order of their presentation. Like players, skips data that cannot be decoded."""
    import av

    for packet in container.demux(stream):
        try:
            yield from stream.decode(packet)
        except av.InvalidDataError:
            continue
