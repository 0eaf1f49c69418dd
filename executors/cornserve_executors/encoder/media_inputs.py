"""Plans and prepares media for an encoder family: the part of an engine that depends on the modality."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import ceil
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import PIL.Image
import torch

from cornserve_executors.encoder.families.audio_family import AudioEncoderFamily, PreparedAudio
from cornserve_executors.encoder.families.family import EncoderFamily, EncodingPlan, PreparedImage
from cornserve_executors.encoder.families.registry import AnyFamily
from cornserve_executors.encoder.families.video_family import VideoEncoderFamily, VideoFrames
from cornserve_executors.encoder.families.vllm_family import PreparedItem, VllmFamily
from cornserve_executors.media.audio_decoding import (
    BLOCK_SAMPLES,
    check_conversion,
    count_samples,
    decode_audio,
    decoded_samples,
    resample,
)
from cornserve_executors.media.errors import UnusableMediaError
from cornserve_executors.media.image_decoding import ImageSize, decode_image, image_size
from cornserve_executors.media.video_decoding import decode_video, read_source, sampled_pixels
from cornserve_executors.media.video_sampling import FrameSampling, VideoSource
from cornserve_tasklib.media import Audio, Image, Media, Video

PATCH_PIXELS = 14 * 14
"""Pixels that a patch counts as when memory is limited: those of most families. A patch of Qwen3-VL has 16 * 16."""

Prepared = PreparedImage | PreparedAudio | PreparedItem

PATCH_BYTES = 3 * PATCH_PIXELS * 4
"""Bytes of a processed patch in float32."""

Family = TypeVar("Family", bound=AnyFamily)


class MediaInputs(ABC, Generic[Family]):
    """The inputs of an encoder of one modality."""

    def __init__(self, family: Family) -> None:
        self.family = family

    @abstractmethod
    def plan(self, media: Media) -> EncodingPlan:
        """Returns the plan for a medium. Blocks.

        Raises:
            UnusableMediaError: the file is not valid.
            ValueError: the model does not accept media of this size.
        """

    @abstractmethod
    def planned_size(self, media: Media) -> int:
        """Returns the number of pixels or samples that planning the medium decodes at most."""

    @abstractmethod
    def decoded_size(self, media: Media, plan: EncodingPlan) -> int:
        """Returns the number of pixels or samples, of 4 bytes each, that preparing the medium needs."""

    def work(self, media: Media, plan: EncodingPlan) -> int:
        """Returns the number of pixels or samples that preparing the medium decodes, but may not keep."""
        return self.decoded_size(media, plan)

    @abstractmethod
    def prepare(self, media: Media, plan: EncodingPlan) -> Prepared:
        """Decodes and preprocesses a medium. Blocks. Raises `UnusableMediaError`."""

    def split(self, prepared: Any, max_patches: int) -> Sequence[Prepared]:
        """Returns the parts in which a prepared medium is encoded, of `max_patches` patches each if possible."""
        return [prepared]

    def join(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """Returns the embeddings of a medium, given those of its parts."""
        (rows,) = parts
        return rows

    @abstractmethod
    def sample(self) -> Prepared:
        """Returns a prepared medium of a usual size."""


class ImageInputs(MediaInputs[EncoderFamily]):
    def plan(self, media: Media) -> EncodingPlan:
        return self.family.for_media(media).plan(image_size(_image(media)))

    def planned_size(self, media: Media) -> int:
        return 0  # The header contains the size.

    def decoded_size(self, media: Media, plan: EncodingPlan) -> int:
        image = _image(media)
        return _larger(image.width * image.height, plan)

    def prepare(self, media: Media, plan: EncodingPlan) -> PreparedImage:
        pixels = self.family.for_media(media).prepare(decode_image(_image(media)))
        return PreparedImage(pixels.to(self.family.model.dtype), plan)

    def sample(self) -> PreparedImage:
        image = PIL.Image.new("RGB", (224, 224))
        return PreparedImage(self.family.prepare(image), self.family.plan(ImageSize(*image.size)))


class VideoInputs(MediaInputs[VideoEncoderFamily]):
    def plan(self, media: Media) -> EncodingPlan:
        video = _video(media)
        width, height = (video.height, video.width) if video.rotation % 180 else (video.width, video.height)
        source = read_source(video)
        frames = VideoFrames(self._sampling(video).frame_indices(source), height, width, source)
        return self.family.for_media(video).plan(frames)

    def _sampling(self, video: Video) -> FrameSampling:
        return self.family.sampling.with_options(video.options)

    def planned_size(self, media: Media) -> int:
        return 0  # Packets are counted without decoding them.

    def decoded_size(self, media: Media, plan: EncodingPlan) -> int:
        video = _video(media)
        return _larger(sampled_pixels(video, self._sampling(video)), plan)

    def work(self, media: Media, plan: EncodingPlan) -> int:
        video = _video(media)
        return max(video.frames * video.width * video.height, self.decoded_size(media, plan))

    def split(self, prepared: PreparedImage, max_patches: int) -> Sequence[PreparedImage]:
        return self.family.split(prepared, max_patches)

    def join(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        return self.family.join(parts)

    def prepare(self, media: Media, plan: EncodingPlan) -> PreparedImage:
        video, family = _video(media), self.family.for_media(media)
        decoded = decode_video(video, self._sampling(video))
        _, height, width, _ = decoded.frames.shape
        if family.plan(VideoFrames(decoded.indices, height, width, decoded.source)) != plan:
            raise UnusableMediaError(
                media.where,
                f"only {len(decoded.indices)} frames of {width}×{height} pixels of the video can be decoded",
            )
        return PreparedImage(family.prepare(decoded.frames).to(self.family.model.dtype), plan)

    def sample(self) -> PreparedImage:
        frames: npt.NDArray[np.uint8] = np.zeros((4, 224, 224, 3), np.uint8)
        plan = self.family.plan(VideoFrames(range(4), 224, 224, VideoSource(4, 2, 2)))
        return PreparedImage(self.family.prepare(frames), plan)


class AudioInputs(MediaInputs[AudioEncoderFamily]):
    def plan(self, media: Media) -> EncodingPlan:
        """Decodes the audio without keeping its samples, because headers do not contain their exact number."""
        audio, target = _audio(media), self.family.sample_rate
        samples, sample_rate = count_samples(audio, self.family.max_samples / target)
        check_conversion(audio, sample_rate, target)
        return self.family.plan(ceil(samples * target / sample_rate))

    def planned_size(self, media: Media) -> int:
        return self._kept_samples(_audio(media))

    def decoded_size(self, media: Media, plan: EncodingPlan) -> int:
        return self._kept_samples(_audio(media))

    def work(self, media: Media, plan: EncodingPlan) -> int:
        return decoded_samples(_audio(media))

    def prepare(self, media: Media, plan: EncodingPlan) -> PreparedAudio:
        samples = resample(decode_audio(_audio(media), self._max_seconds), self.family.sample_rate)
        return PreparedAudio(self.family.prepare(samples).to(self.family.model.dtype), len(samples), plan)

    def sample(self) -> PreparedAudio:
        samples: npt.NDArray[np.float32] = np.zeros(self.family.sample_rate, np.float32)
        return PreparedAudio(self.family.prepare(samples), len(samples), self.family.plan(len(samples)))

    @property
    def _max_seconds(self) -> float:
        """The seconds that the model uses, and those around the last one, from which its samples are converted."""
        return self.family.max_samples / self.family.sample_rate + 1

    def _kept_samples(self, audio: Audio) -> int:
        return min(decoded_samples(audio), ceil(self._max_seconds * audio.sample_rate) + BLOCK_SAMPLES)


class VllmInputs(MediaInputs[VllmFamily]):
    """Media of vLLM's processor. It determines the number of embeddings, so a plan has the prepared medium."""

    def plan(self, media: Media) -> EncodingPlan:
        processed = self.family.tower.process(media)
        patches = max(1, processed.nbytes // PATCH_BYTES)
        return EncodingPlan(patches, processed.rows, *processed.describe(), processed)

    def planned_size(self, media: Media) -> int:
        return self.family.tower.decoder.decoded_size(media)

    def decoded_size(self, media: Media, plan: EncodingPlan) -> int:
        return _larger(self.planned_size(media), plan)

    def prepare(self, media: Media, plan: EncodingPlan) -> PreparedItem:
        processed = plan.prepared or self.family.tower.process(media)
        plan.forget()
        return PreparedItem(processed, plan)

    def sample(self) -> PreparedItem:
        processed = self.family.tower.sample(self.family.modality)
        return PreparedItem(processed, EncodingPlan(1, processed.rows, {}))


def media_inputs(family: AnyFamily) -> MediaInputs[Any]:
    """Returns the inputs of a family."""
    match family:
        case VllmFamily():
            return VllmInputs(family)
        case EncoderFamily():
            return ImageInputs(family)
        case VideoEncoderFamily():
            return VideoInputs(family)
        case AudioEncoderFamily():
            return AudioInputs(family)


def _larger(pixels: int, plan: EncodingPlan) -> int:
    """Returns the number of decoded or of preprocessed pixels: the processor may enlarge images."""
    return max(pixels, plan.patches * PATCH_PIXELS)


def _image(media: Media) -> Image:
    assert isinstance(media, Image)
    return media


def _video(media: Media) -> Video:
    assert isinstance(media, Video)
    return media


def _audio(media: Media) -> Audio:
    assert isinstance(media, Audio)
    return media
