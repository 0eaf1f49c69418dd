"""Decodes audio files to samples, identically in all executors.

Audio that an encoder executor encodes must become the same samples as audio that vLLM encodes itself. This module
therefore decodes as vLLM does: libsndfile returns float32 samples at the file's rate, whose channels are averaged.
FFmpeg returns those of AAC, M4A, WebM and AVI files.
"""

from __future__ import annotations

import io
from collections.abc import Generator
from contextlib import closing
from functools import lru_cache
from math import ceil, gcd
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cornserve import id3_tags
from cornserve_executors.media.cancellation import raise_if_cancelled
from cornserve_executors.media.container_audio import DEMUXERS, read_packets
from cornserve_executors.media.errors import UnusableMediaError
from cornserve_tasklib.media import Audio

BLOCK_SAMPLES = 1 << 16
"""Samples of each channel that are decoded at once. Only their mean is kept."""

TOLERANCE_SECONDS = 0.2
"""The duration by which decoded audio may exceed the duration in the file's headers."""

MAX_SAMPLE = 65_536.0
"""The largest absolute value of a sample. Full scale is 1. Some files contain 16-bit integers as floats, up to 32,768.
The square of larger values, and sums of them, can exceed the range of the models' dtypes."""

MAX_KERNEL_SAMPLES = 1 << 20
"""The largest size of a table with which a sample rate is converted, 4 MiB. It grows with the product of the rates,
divided by their greatest common divisor twice. Common rates need less than a third of it."""

_CONTAINERS = {
    "WAV": ("WAV", "WAVEX", "RF64", "W64"),
    "AIFF": ("AIFF",),
    "FLAC": ("FLAC",),
    "OGG": ("OGG",),
    "MP3": ("MP3", "MPEG"),
}
"""libsndfile's names of the formats that the gateway detects."""

_EXACT_FORMATS = frozenset({"WAV", "FLAC"})
"""The formats whose headers contain the exact number of samples."""
_ESTIMATED_ENCODING = "MPEG_LAYER_III"
"""libsndfile's name of MP3, whose number of samples it estimates in WAV files."""

_MAX_FLAC_SAMPLES = 0xFFFFFFFFF
"""The number of samples has 36 bits in the header of a FLAC file."""


class DecodedAudio(NamedTuple):
    """The samples of audio, in one channel."""

    samples: npt.NDArray[np.float32]
    sample_rate: int


def decoded_samples(audio: Audio) -> int:
    """Returns the number of samples that `decode_audio` returns at most, by the header."""
    return ceil((audio.seconds + TOLERANCE_SECONDS) * audio.sample_rate)


def decode_audio(audio: Audio) -> DecodedAudio:
    """Decodes audio to one channel, at the file's sample rate. Blocks.

    Raises `UnusableMediaError`, an `InvalidRequestError`, unless the file is complete audio of the declared duration.
    """
    blocks, rates = zip(*_blocks(audio), strict=True)
    return DecodedAudio(np.concatenate(blocks), rates[0])


def check_conversion(audio: Audio, sample_rate: int, target: int) -> None:
    """Raises `UnusableMediaError` for sample rates whose conversion needs too much memory, such as 44,101 to 16,000."""
    common = gcd(sample_rate, target)
    before, after = sample_rate // common, target // common
    # torchaudio filters each of `after` phases with some 12 samples of the lower rate, and `before` samples between.
    width = ceil(6 * before / min(before, after) / 0.99)
    if before != after and after * (before + 2 * width) > MAX_KERNEL_SAMPLES:
        raise UnusableMediaError(
            audio.where, f"the sample rate {sample_rate} cannot be converted to {target}: convert the audio to {target}"
        )


def resample(audio: DecodedAudio, target: int) -> npt.NDArray[np.float32]:
    """Returns the samples at another rate, as vLLM converts them for most models."""
    if audio.sample_rate == target:
        return audio.samples
    import torch

    converted: npt.NDArray[np.float32] = _resampler(audio.sample_rate, target)(torch.from_numpy(audio.samples)).numpy()
    return converted


@lru_cache(maxsize=32)
def _resampler(sample_rate: int, target: int) -> Any:
    import torchaudio

    return torchaudio.transforms.Resample(sample_rate, target)


def _blocks(audio: Audio) -> Generator[tuple[npt.NDArray[np.float32], int]]:
    """Yields the mean of all channels, in blocks, and the sample rate.

    Raises `UnusableMediaError` unless the file is complete audio of the declared duration, and `CancelledError` in a
    `DecodePool` whose caller is cancelled.
    """
    if audio.data is None:
        raise UnusableMediaError(audio.where, "the audio has no data")
    count = 0
    with closing(read_packets(audio) if audio.format in DEMUXERS else _read_sound_file(audio)) as blocks:
        for block, sample_rate in blocks:
            raise_if_cancelled()
            count += block.shape[1]
            if count > (audio.seconds + TOLERANCE_SECONDS) * sample_rate:
                raise UnusableMediaError(audio.where, f"the audio takes more than the declared {audio.seconds:.1f} s")
            if not np.abs(block).max(initial=0) <= MAX_SAMPLE:  # Also refuses NaN.
                raise UnusableMediaError(audio.where, f"the audio has a sample that is not within ±{MAX_SAMPLE:.0f}")
            yield np.mean(block, axis=0), sample_rate
    if count == 0:
        raise UnusableMediaError(audio.where, "the audio has no samples")


def _read_sound_file(audio: Audio) -> Generator[tuple[npt.NDArray[np.float32], int]]:
    """Yields the samples, of the shape [channels, samples], and the sample rate. Raises `UnusableMediaError`."""
    import soundfile

    data = b"" if audio.data is None else audio.data.data
    data = data[id3_tags.leading_tag_bytes(data) :]  # libsndfile skips only some of them.
    if audio.format == "FLAC":
        data = _with_duration(data, audio)
    try:
        with soundfile.SoundFile(_SoundBytes(data)) as file:
            if file.format not in _CONTAINERS[audio.format]:
                raise UnusableMediaError(audio.where, f"not valid {audio.format} audio")
            count = 0
            while len(block := file.read(BLOCK_SAMPLES, dtype="float32", always_2d=True)):
                count += len(block)
                yield block.T, file.samplerate
            exact = audio.format in _EXACT_FORMATS and file.subtype != _ESTIMATED_ENCODING
            if exact and 0 < count < file.frames:
                reason = f"the audio is truncated: it has {count} of {file.frames} samples"
                raise UnusableMediaError(audio.where, reason)
    except soundfile.LibsndfileError as error:
        reason = f"the {audio.format} audio cannot be decoded: it is damaged, or in a rare encoding: save it as PCM WAV"
        raise UnusableMediaError(audio.where, reason) from error


class _SoundBytes(io.BytesIO):
    """A file in which libsndfile may seek to a negative position, as it does for broken headers."""

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return super().seek(max(offset, 0) if whence == io.SEEK_SET else offset, whence)


def _with_duration(data: bytes, audio: Audio) -> bytes:
    """Returns the FLAC file with its number of samples in the header, without which libsndfile does not read it."""
    samples = int.from_bytes(data[21:26]) & _MAX_FLAC_SAMPLES
    if samples or len(data) < 26:
        return data
    declared = min(round(audio.seconds * audio.sample_rate), _MAX_FLAC_SAMPLES)
    return data[:21] + (int.from_bytes(data[21:26]) | declared).to_bytes(5) + data[26:]
