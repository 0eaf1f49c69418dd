"""Reads the format, size, frames and duration of a video from the headers in its file, without decoding it.

The sender controls the number of a file's parts, so all loops over parts are bounded.
"""

from __future__ import annotations

import struct

from cornserve.gateway.media.errors import MediaError
from cornserve.gateway.media.formats import avi, gif, isobmff, matroska
from cornserve.gateway.media.formats.base import AudioHeader, VideoHeader, no_sound, truncated_header

SUPPORTED_VIDEOS = "MP4, MOV, WebM, MKV, AVI or GIF"


def read_video_header(data: bytes, max_frames: int) -> VideoHeader:
    """Raises a `MediaError`, also for videos with more than `max_frames` frames."""
    try:
        if data.startswith(matroska.MAGIC):
            return matroska.read_header(data, max_frames)
        if avi.is_avi(data):
            return avi.read_header(data, max_frames)
        if data.startswith(gif.MAGICS):
            return gif.read_animation(data, max_frames)
        if isobmff.is_isobmff(data):
            return isobmff.read_header(data, max_frames)
    except (struct.error, IndexError, OverflowError):
        raise truncated_header() from None
    if not data:
        raise MediaError("invalid", f"the file is empty: send {SUPPORTED_VIDEOS}")
    raise MediaError("unsupported", f"unsupported video format: send {SUPPORTED_VIDEOS}")


def read_sound_header(data: bytes, max_packets: int) -> AudioHeader:
    """Reads the first sound track of a video. Raises a `MediaError`, `NoSoundError` for a video without sound."""
    try:
        if data.startswith(matroska.MAGIC):
            return matroska.read_audio_header(data, max_packets, of_video=True)
        if isobmff.is_isobmff(data):
            return isobmff.read_audio_header(data, max_packets)
        if avi.is_avi(data):
            return avi.read_audio_header(data)
    except (struct.error, IndexError, OverflowError):
        raise truncated_header() from None
    raise no_sound("GIF")
