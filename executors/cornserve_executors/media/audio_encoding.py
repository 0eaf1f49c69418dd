"""Encodes audio while a model generates it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from cornserve_tasklib.audio_format import AudioFormat

if TYPE_CHECKING:
    import av


class _Target(NamedTuple):
    """FFmpeg's names of a container and a codec, and the options of the container."""

    container: str
    codec: str
    options: dict[str, str]


_TARGETS: dict[AudioFormat, _Target] = {
    "mp3": _Target("mp3", "libmp3lame", {"write_xing": "0", "id3v2_version": "0"}),
    "opus": _Target("ogg", "libopus", {"page_duration": "200000"}),  # µs; by default a second, which delays the start
    "aac": _Target("adts", "aac", {}),
    "flac": _Target("flac", "flac", {}),
    "wav": _Target("wav", "pcm_s16le", {}),
    "pcm": _Target("s16le", "pcm_s16le", {}),
}
_REPRODUCIBLE = {"fflags": "+bitexact"}
"""Without the version of FFmpeg in the file."""


class _Output:
    """A file that cannot seek. The headers of its containers have no length."""

    def __init__(self) -> None:
        self._written = bytearray()

    def write(self, data: bytes) -> int:
        self._written += data
        return len(data)

    def take(self) -> bytes:
        """Returns what was written since the last call."""
        written = bytes(self._written)
        self._written.clear()
        return written


class AudioEncoder:
    """Encodes mono audio in parts, whose concatenation is a valid file. Its methods block: call them in a thread.

    An encoder that is dropped before `finish` releases its codec.

    The parts of WAV and PCM contain the same samples as one call with all samples. `encode` may keep samples back for
    the next frame of the codec.

    Args:
        format: the format of the file.
        sample_rate: rate of the given samples in Hz. Audio of a rate that the codec does not have is resampled to
            the next higher one.
    """

    def __init__(self, format: AudioFormat, sample_rate: int) -> None:
        self._sample_rate = sample_rate
        self._output = _Output()
        self._container, self._stream = _open(self._output, format, sample_rate)

    def encode(self, samples: npt.NDArray[np.float32]) -> bytes:
        """Returns the next bytes of the file.

        Args:
            samples: shape [samples], from -1 to 1. Larger ones are clipped.
        """
        if samples.size == 0:
            return b""
        self._container.mux(self._stream.encode(_frame(to_int16(samples), self._sample_rate)))
        return self._output.take()

    def finish(self) -> bytes:
        """Returns the last bytes of the file, and releases the codec."""
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._output.take()


def encode_file(pcm: bytes, format: AudioFormat, sample_rate: int) -> bytes:
    """Returns a complete file. WAV and FLAC headers have the length, unlike those of an `AudioEncoder`. Blocks.

    Args:
        pcm: signed 16-bit little-endian samples of one channel.
    """
    if format == "pcm":
        return pcm
    file = io.BytesIO()
    container, stream = _open(file, format, sample_rate)
    with container:
        container.start_encoding()  # An empty file has a header too.
        if pcm:
            container.mux(stream.encode(_frame(np.frombuffer(pcm, "<i2"), sample_rate)))
        container.mux(stream.encode(None))
    return file.getvalue()


def _open(
    file: _Output | io.BytesIO, format: AudioFormat, sample_rate: int
) -> tuple[av.container.OutputContainer, av.AudioStream]:
    """Returns a container that writes to the file, and its stream."""
    import av

    target = _TARGETS[format]
    container = av.open(file, "w", format=target.container, container_options=target.options | _REPRODUCIBLE)
    stream = container.add_stream(target.codec, rate=_supported_rate(target.codec, sample_rate), layout="mono")
    assert isinstance(stream, av.AudioStream)
    return container, stream


def _frame(samples: npt.NDArray[np.int16], sample_rate: int) -> av.AudioFrame:
    import av

    frame = av.AudioFrame.from_ndarray(samples[np.newaxis], format="s16", layout="mono")
    frame.sample_rate = sample_rate
    return frame


def to_int16(samples: npt.NDArray[np.float32]) -> npt.NDArray[np.int16]:
    """Converts samples from -1 to 1 to 16 bits. Larger ones are clipped."""
    return np.rint(np.clip(samples, -1, 1) * np.iinfo(np.int16).max).astype(np.int16)


def _supported_rate(codec: str, sample_rate: int) -> int:
    """Returns the lowest rate of the codec that keeps all frequencies, or its highest rate."""
    import av

    rates = av.Codec(codec, "w").audio_rates or [sample_rate]
    return min((rate for rate in rates if rate >= sample_rate), default=max(rates))
