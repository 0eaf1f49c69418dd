"""Converts speech to prompts: decodes it, divides it into clips, and extracts its features, as vLLM's server does.

The decoded size is limited over all requests (`media/decode_pool.py`). The samples of a request are dropped as soon as
the features replace them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import av
import numpy as np
import numpy.typing as npt
from vllm.config.speech_to_text import SpeechToTextConfig
from vllm.multimodal.audio import resample_audio_pyav, split_audio

from cornserve_executors.media.audio_decoding import DecodedAudio, decode_audio, decoded_samples
from cornserve_executors.media.container_audio import DEMUXERS
from cornserve_executors.media.decode_pool import DecodePools
from cornserve_tasklib.media import Audio

Samples: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Clips:
    """The samples of decoded speech, in clips that the model can process at once."""

    samples: Sequence[Samples]
    sample_rate: int

    @property
    def seconds(self) -> float:
        return sum(map(len, self.samples)) / self.sample_rate

    @property
    def starts(self) -> list[float]:
        """The start of each clip, in seconds."""
        ends = np.cumsum([len(clip) for clip in self.samples]) / self.sample_rate
        return [0.0, *ends[:-1].tolist()]


class SpeechDecoder:
    """Decodes speech in threads.

    Args:
        config: the sample rate and the clips of the model.
    """

    def __init__(self, config: SpeechToTextConfig) -> None:
        self._config = config
        self._pools = DecodePools()

    @asynccontextmanager
    async def clips(self, audio: Audio, owner: str) -> AsyncIterator[Clips]:
        """Decodes the audio once memory is available to `owner`. The memory is in use until the block ends."""
        size = decoded_samples(audio)
        async with self._pools.pool_for(size).acquire(size, owner) as pool:
            yield await pool.run(partial(self._decode, audio))

    def _decode(self, audio: Audio) -> Clips:
        decoded = decode_audio(audio)
        config = self._config
        rate = int(config.sample_rate)
        samples = _resample_stream(decoded, rate) if audio.format in DEMUXERS else _resample(decoded, rate)
        if not config.allow_audio_chunking or len(samples) <= (config.max_audio_clip_s or 0) * rate:
            return Clips([samples], rate)
        clips: list[Any] = split_audio(
            audio_data=samples,
            sample_rate=rate,
            max_clip_duration_s=config.max_audio_clip_s,
            overlap_duration_s=config.overlap_chunk_second,
            min_energy_window_size=config.min_energy_split_window_size,
        )
        return Clips(clips, rate)


def _resample(audio: DecodedAudio, rate: int) -> Samples:
    samples: Samples = resample_audio_pyav(audio.samples, orig_sr=audio.sample_rate, target_sr=rate)
    return samples


def _resample_stream(audio: DecodedAudio, rate: int) -> Samples:
    """Resamples as vLLM does while it decodes a container: the last millisecond stays in the filter."""
    if audio.sample_rate == rate:
        return audio.samples
    frame = av.AudioFrame.from_ndarray(audio.samples[None], "fltp", "mono")
    frame.sample_rate = audio.sample_rate
    resampled = av.AudioResampler(format="fltp", layout="mono", rate=rate).resample(frame)
    return np.concatenate([part.to_ndarray()[0] for part in resampled]) if resampled else _resample(audio, rate)
