"""Decodes audio in containers that libsndfile does not read. Like vLLM, it uses PyAV for them."""

from __future__ import annotations

import io
from collections.abc import Generator

import numpy as np
import numpy.typing as npt

from cornserve_executors.media.errors import UnusableMediaError
from cornserve_tasklib.media import Audio

DEMUXERS = {"AAC": "aac", "M4A": "mov", "WEBM": "matroska", "AVI": "avi"}
"""FFmpeg's names of the containers that the gateway detects."""

_DECODERS = ("aac", "opus", "vorbis")
"""FFmpeg's decoders that may run."""
_AVI_DECODERS = ("mp3float", "aac")
_FLOAT_PLANAR = "fltp"
"""The format of the samples of these decoders: float32, each channel apart."""


def read_packets(audio: Audio) -> Generator[tuple[npt.NDArray[np.float32], int]]:
    """Yields the samples, of the shape [channels, samples], and the sample rate. Raises `UnusableMediaError`."""
    import av

    data = b"" if audio.data is None else audio.data.data
    demuxer = DEMUXERS[audio.format]
    decoders = _AVI_DECODERS if audio.format == "AVI" else _DECODERS
    options = {"codec_whitelist": ",".join(decoders), "format_whitelist": demuxer}
    try:
        with av.open(
            io.BytesIO(data), "r", format=demuxer, container_options=options, metadata_errors="replace"
        ) as container:
            if not container.streams.audio:
                raise UnusableMediaError(audio.where, "the file has no audio")
            stream = container.streams.audio[0]
            if getattr(stream.codec_context, "name", None) not in decoders:  # None for codecs that FFmpeg does not know
                raise UnusableMediaError(audio.where, "the codec of the audio is not supported: convert it to WAV")
            for frame in container.decode(stream):
                if frame.format.name != _FLOAT_PLANAR or frame.sample_rate != stream.rate:
                    raise UnusableMediaError(audio.where, "the format of the samples changes: convert it to WAV")
                yield frame.to_ndarray(), frame.sample_rate
    except av.FFmpegError as error:
        reason = error.strerror or "its parts are inconsistent"
        raise UnusableMediaError(audio.where, f"the {audio.format} audio cannot be decoded: {reason}") from error
