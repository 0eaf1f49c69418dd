"""Decodes media as vLLM's processor of a model accepts them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import PIL.Image
from vllm.multimodal.video import get_video_loader_backend_for_processor
from vllm.transformers_utils.processor import get_video_processor_cls_name_from_config

from cornserve_executors.media.audio_decoding import DecodedAudio, check_conversion, decode_audio, decoded_samples
from cornserve_executors.media.image_decoding import decode_image
from cornserve_executors.media.video_decoding import DecodedVideo, decode_video, sampled_pixels
from cornserve_executors.media.video_sampling import FrameSampling
from cornserve_executors.vllm.processor_arguments import processor_arguments, refuse_other_sizes
from cornserve_tasklib.media import Audio, Image, Media, Modality, Video

SAMPLINGS = {"opencv": FrameSampling(), "qwen2_vl": FrameSampling("qwen2_vl"), "qwen3_vl": FrameSampling("qwen3_vl")}
"""The sampling of vLLM's loaders of videos, as far as `FrameSampling` has it."""

Decoded = PIL.Image.Image | DecodedAudio | tuple[npt.NDArray[np.uint8], dict[str, Any]]
"""A decoded medium, as vLLM's processor accepts it."""


class MediaDecoder:
    """Decodes the media of one model.

    Args:
        model_config: vLLM's configuration of a multimodal model.
        info: the facts of vLLM's processor of the model.
    """

    def __init__(self, model_config: Any, info: Any) -> None:
        self._sample_rate: float | None = info.data_parser.audio_resampler.target_sr
        has_videos = "video" in info.allowed_mm_limits
        loader = video_loader(model_config.model, model_config.revision) if has_videos else ""
        self._sampling = SAMPLINGS.get(loader, FrameSampling())
        self._arguments_of = processor_arguments(model_config, info)

    def decode(self, media: Media) -> Decoded:
        """Blocks. Raises `UnusableMediaError`."""
        match media:
            case Image():
                return decode_image(media)
            case Video():
                return video_input(decode_video(media, self._sampling.with_options(media.options)))
            case Audio():
                audio = decode_audio(media)
                check_conversion(media, audio.sample_rate, int(self._sample_rate or audio.sample_rate))
                return audio

    def kept_pixels(self, media: Media) -> int:
        """Returns the pixels of an image or of sampled frames, or the samples of audio. Each takes at most 4 bytes."""
        match media:
            case Image(width=width, height=height):
                return width * height
            case Video():
                return sampled_pixels(media, self._sampling.with_options(media.options))
            case Audio():
                return decoded_samples(media)

    def decode_pixels(self, media: Media) -> int:
        """Returns the pixels or samples that are decoded, including those that are not kept."""
        if isinstance(media, Video):
            return max(media.frames * media.width * media.height, self.kept_pixels(media))
        return self.kept_pixels(media)

    def arguments(self, media: Media) -> dict[str, Any]:
        """Returns vLLM's `mm_processor_kwargs` for a medium. Raises `UnsupportedOptionError`."""
        if media.modality not in self._arguments_of:
            refuse_other_sizes(media)
            return {}
        return self._arguments_of[media.modality](media)


def video_input(video: DecodedVideo) -> Decoded:
    """Returns the frames and their description."""
    # Some processors of vLLM sample again, at their own rate, if all frames were sampled.
    return video.frames, video.metadata | {"do_sample_frames": False}


@cache
def video_loader(model: str, revision: str | None) -> str:
    """Returns vLLM's name of the loader for the model's video processor."""
    processor = get_video_processor_cls_name_from_config(model, revision)
    return get_video_loader_backend_for_processor(processor) or "opencv"


def row_size(model_config: Any, modality: Modality) -> int:
    """Returns the length of an embedding. With DeepStack, those of images have several levels of the vision tower."""
    config = getattr(model_config.hf_config, "thinker_config", model_config.hf_config)
    vision = None if modality == "audio" else getattr(config, "vision_config", None)
    levels = 1 + len(getattr(vision, "deepstack_visual_indexes", ()))
    return levels * int(model_config.get_inputs_embeds_size())
