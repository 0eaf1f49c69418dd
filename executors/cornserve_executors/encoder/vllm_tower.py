"""vLLM's encoders of a multimodal model and its processor, without its language model and without an engine."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy, deepcopy
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import torch
from vllm.config import set_current_vllm_config
from vllm.distributed import (
    destroy_distributed_environment,
    destroy_model_parallel,
    ensure_model_parallel_initialized,
    init_distributed_environment,
)
from vllm.engine.arg_utils import EngineArgs
from vllm.forward_context import set_forward_context
from vllm.model_executor.model_loader import DefaultModelLoader
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.utils import group_and_batch_mm_kwargs
from vllm.tokenizers import cached_tokenizer_from_config

from cornserve_executors.base import ExecutorStartError
from cornserve_executors.checkpoint import INDEX, find_file
from cornserve_executors.encoder.video_parts import split_video
from cornserve_executors.media.audio_decoding import DecodedAudio
from cornserve_executors.media.video_decoding import DecodedVideo
from cornserve_executors.media.video_sampling import VideoSource
from cornserve_executors.tensor_copies import tensor_digest
from cornserve_executors.vllm.media_decoder import Decoded, MediaDecoder, row_size, video_input
from cornserve_executors.vllm.media_metadata import UnsendableItemError, describe_medium
from cornserve_executors.vllm.private_api import encoder_files
from cornserve_executors.vllm.processed_media import PATCH_PIXELS, ProcessedMedium, medium_marker, process_medium
from cornserve_tasklib.encoder import EncoderTask
from cornserve_tasklib.encoder_families import ENCODER_MODALITIES
from cornserve_tasklib.media import Audio, Media, Modality, Video

SAMPLE_RATE = 16_000

SAMPLE_FRAMES = 4

_SAMPLES: dict[Modality, Callable[[], Decoded]] = {
    "image": lambda: PIL.Image.new("RGB", (224, 224)),
    "video": lambda: video_input(
        DecodedVideo(
            np.zeros((SAMPLE_FRAMES, 224, 224, 3), np.uint8),
            [*range(SAMPLE_FRAMES)],
            VideoSource(SAMPLE_FRAMES, original_fps=2, duration=SAMPLE_FRAMES / 2),
        )
    ),
    "audio": lambda: DecodedAudio(np.zeros(SAMPLE_RATE, np.float32), SAMPLE_RATE),
}
"""Media of a usual size."""


class VllmTower:
    """Processes and encodes the media of one model.

    Args:
        config: vLLM's configuration of the model.
        model: the model without its language model, or None if media are only processed.
        weights: a digest of its weights.
    """

    def __init__(self, config: Any, modalities: Sequence[Modality], model: Any | None, weights: str) -> None:
        self._config = config
        self._model = model
        processor = _create_processor(config.model_config)
        self._idle_processors = [processor]
        known = processor.info.supported_mm_limits
        for modality in modalities:
            if modality not in known:
                raise ExecutorStartError(f"{config.model_config.model} has no encoder of the modality {modality}")
        self._decoder = MediaDecoder(config.model_config, processor.info)
        self._markers = {
            modality: medium_marker(config.model_config, processor, processor.info.get_tokenizer(), modality)
            for modality in modalities
        }
        processor_settings = _processor_settings(processor.info.get_hf_processor())
        model_settings = config.model_config.hf_config.to_dict() | {"_name_or_path": ""}
        self._digest = repr((weights, model_settings, processor_settings, self.dtype))
        self._splits_videos = any(
            "video" in ENCODER_MODALITIES.get(name, ()) for name in config.model_config.architectures
        )
        self.samples = {modality: self._process(modality, _SAMPLES[modality](), {}) for modality in modalities}
        """A processed medium of a usual size for each modality."""
        try:
            for sample in self.samples.values():
                describe_medium(sample)
        except UnsendableItemError as error:
            reason = f"the encoders of {config.model_config.model} cannot run apart: {error}"
            raise ExecutorStartError(reason) from error

    @classmethod
    def load(cls, task: EncoderTask, device: str) -> VllmTower:
        """Loads the encoders. Blocks. Raises `ExecutorStartError`.

        Constant encoders have no weights: they process media, but cannot encode them.
        """
        try:
            return cls._load(task, device)
        except ExecutorStartError:
            raise
        except Exception as error:  # vLLM and transformers raise many types for files that they cannot load.
            reason = next(iter(str(error).splitlines()), "") or type(error).__name__
            raise ExecutorStartError(f"{task.model_id} cannot be loaded: {reason}") from error

    @classmethod
    def _load(cls, task: EncoderTask, device: str) -> VllmTower:
        config = EngineArgs(
            model=task.model_id,
            revision=task.revision,
            dtype="float32" if task.dtype == "auto" and device == "cpu" else task.dtype,
            enforce_eager=True,
            mm_encoder_only=True,
            mm_processor_cache_gb=0,
            enable_prefix_caching=False,
        ).create_engine_config()
        if not config.model_config.is_multimodal_model:
            raise ExecutorStartError(f"{task.model_id} is a text model, which has no encoders")
        if task.constant:
            return cls(config, task.modalities, None, "constant")
        model, digest = _load_model(config)
        return cls(config, task.modalities, model, digest)

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = self._config.model_config.dtype
        return dtype

    def fingerprint(self, modality: Modality) -> str:
        """Identifies everything except the medium that the embeddings of a modality depend on."""
        return sha256(f"{modality} {self._digest}".encode()).hexdigest()

    def row_size(self, modality: Modality) -> int:
        return row_size(self._config.model_config, modality)

    def decode_pixels(self, media: Media) -> int:
        """Returns the pixels or samples that are decoded, or `memory_pixels` if they are more."""
        return max(self._decoder.decode_pixels(media), self.memory_pixels(media))

    def memory_pixels(self, media: Media) -> int:
        """Estimates the pixels or samples for which a medium needs memory.

        Processors may enlarge small images and frames, and extend audio: to the size of the sample, or to the smallest
        size that the request wants. The tiles of long images are not counted.
        """
        kept, sample = self._decoder.kept_pixels(media), self.samples[media.modality].patches * PATCH_PIXELS
        if isinstance(media, Audio):
            return max(kept, sample)
        frames = kept // (media.width * media.height)
        enlarged = max(sample // SAMPLE_FRAMES if isinstance(media, Video) else sample, media.options.min_pixels or 0)
        return max(kept, frames * enlarged)

    def process(self, media: Media) -> ProcessedMedium:
        """Decodes a medium and processes it. Blocks.

        Raises:
            UnusableMediaError: the file is not valid.
            ValueError: the model does not accept it.
        """
        arguments = self._decoder.arguments(media)
        return self._process(media.modality, self._decoder.decode(media), arguments)

    def _process(self, modality: Modality, decoded: Decoded, arguments: Mapping[str, Any]) -> ProcessedMedium:
        # vLLM uses a processor in one thread at a time.
        try:
            processor = self._idle_processors.pop()
        except IndexError:
            processor = _create_processor(self._config.model_config)
        try:
            return process_medium(processor, self._markers[modality], modality, decoded, arguments)
        finally:
            self._idle_processors.append(processor)

    def split(self, medium: ProcessedMedium, max_patches: int) -> list[ProcessedMedium]:
        """Returns the parts in which a medium is encoded, of `max_patches` patches each if possible.

        Videos are split if `make families` compares the architecture with the whole model. The attention of others
        may cross frames.
        """
        if medium.modality != "video" or not self._splits_videos or medium.patches <= max_patches:
            return [medium]
        return split_video(medium, max_patches)

    def encode(self, media: Sequence[ProcessedMedium]) -> list[torch.Tensor]:
        """Returns the embeddings of each medium.

        Blocks, except that a GPU may still be computing when this returns.

        Returns:
            For each medium, a tensor of shape `(rows, row_size)` on the model's device, in its dtype.

        Raises:
            torch.OutOfMemoryError: the batch does not fit into the device's memory.
        """
        assert self._model is not None
        batches = defaultdict[tuple[Modality, int], list[int]](list)
        for index, medium in enumerate(media):
            batches[medium.modality, self._window(medium)].append(index)
        found: dict[int, torch.Tensor] = {}
        with set_current_vllm_config(self._config), set_forward_context(None, self._config):
            for batch in batches.values():
                rows: list[torch.Tensor] = []
                items = [(media[index].modality, media[index].item) for index in batch]
                for _, _, inputs in group_and_batch_mm_kwargs(items, device=self._config.device_config.device):
                    rows += self._model.embed_multimodal(**inputs)
                found.update(zip(batch, rows, strict=True))
        return [found[index] for index in range(len(media))]

    def _window(self, medium: ProcessedMedium) -> int:
        """Returns the feature frames of the longest window of an audio, or 0.

        Qwen's audio towers pad the windows of a batch to the longest one, which changes the last positions of shorter
        ones. Batches of equal windows make the embeddings of an audio independent of the others.
        """
        if "audio_feature_lengths" not in medium.item:
            return 0
        frames = int(medium.item["audio_feature_lengths"].data)
        return min(frames, int(2 * self._model.config.audio_config.n_window))  # type: ignore[union-attr]


def _create_processor(model_config: Any) -> Any:
    """Returns vLLM's processor of a model, with a copy of the tokenizer."""
    tokenizer = deepcopy(cached_tokenizer_from_config(model_config))
    return MULTIMODAL_REGISTRY.create_processor(model_config, tokenizer=tokenizer)


class _EncoderLoader(DefaultModelLoader):  # type: ignore[misc]
    """Loads the weights of the encoders, and digests them before vLLM converts them for its kernels."""

    digest = ""

    def __init__(self, load_config: Any, model_id: str) -> None:
        super().__init__(load_config)
        self._model_id = model_id

    def get_all_weights(self, model_config: Any, model: Any) -> Iterator[tuple[str, torch.Tensor]]:
        """Yields the weights. Opens and downloads only the files that contain weights of the encoders."""
        model_id, revision = self._model_id, model_config.revision
        index = find_file(model_id, revision, INDEX)
        if index is None:
            yield from super().get_all_weights(model_config, model)
            return
        # In a directory without an index, vLLM does not require the other files.
        with tempfile.TemporaryDirectory() as directory:
            for name in encoder_files(self, index):
                file = find_file(model_id, revision, name)
                if file is None:
                    raise ExecutorStartError(f"{model_id} lacks a file with weights of the encoder: {name}")
                Path(directory, name).symlink_to(file.absolute())
            linked = copy(model_config)
            linked.model = directory
            yield from super().get_all_weights(linked, model)

    def track_weights_loading(self, model: Any, loaded_weights: set[str] | None, *, quantized: bool) -> None:
        """Requires all weights of a model that is not quantized. vLLM does not require those of linear layers."""
        if loaded_weights is not None and not quantized:
            missing = sorted({name for name, _ in model.named_parameters()} - loaded_weights)
            if missing:
                raise ExecutorStartError(
                    f"the checkpoint of {self._model_id} lacks weights of the encoder: {', '.join(missing)}"
                )
        super().track_weights_loading(model, loaded_weights, quantized=quantized)

    def load_weights(self, model: Any, model_config: Any) -> None:
        super().load_weights(model, model_config)
        with ThreadPoolExecutor() as threads:
            weights = model.state_dict()
            digests = [*zip(weights, threads.map(tensor_digest, weights.values()), strict=True)]
        self.digest = sha256(repr(sorted(digests)).encode()).hexdigest()


def _load_model(config: Any) -> tuple[Any, str]:
    """Returns the model without its language model, and a digest of its weights."""
    with set_current_vllm_config(config), tempfile.TemporaryDirectory() as directory:
        # An earlier model of the process may lack the group for expert parallelism.
        destroy_model_parallel()
        destroy_distributed_environment()
        init_distributed_environment(1, 0, f"file://{Path(directory, 'store')}", 0, backend="gloo")
        ensure_model_parallel_initialized(1, 1)
        loader = _EncoderLoader(config.load_config, config.model_config.model)
        model = loader.load_model(vllm_config=config, model_config=config.model_config)
    return model.eval(), loader.digest


def _processor_settings(processor: Any) -> list[Any]:
    """Returns what the results of a processor of transformers depend on."""
    parts = (getattr(processor, name, None) for name in ("image_processor", "video_processor", "feature_extractor"))
    return [part.to_dict() for part in parts if part is not None]
