"""vLLM's encoders of a multimodal model and its processor, without its language model and without an engine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy, deepcopy
from hashlib import sha256
from pathlib import Path
from threading import local
from typing import Any

import numpy as np
import PIL.Image
import torch
from vllm.config import set_current_vllm_config
from vllm.distributed import ensure_model_parallel_initialized, init_distributed_environment
from vllm.engine.arg_utils import EngineArgs
from vllm.forward_context import set_forward_context
from vllm.model_executor.model_loader import DefaultModelLoader
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.utils import group_and_batch_mm_kwargs
from vllm.tokenizers import cached_tokenizer_from_config

from cornserve_executors.base import ExecutorStartError
from cornserve_executors.encoder.checkpoint import INDEX, find_file
from cornserve_executors.media.audio_decoding import DecodedAudio
from cornserve_executors.media.video_decoding import DecodedVideo
from cornserve_executors.media.video_sampling import VideoSource
from cornserve_executors.tensor_copies import tensor_digest
from cornserve_executors.vllm.media_decoder import Decoded, MediaDecoder, row_size, video_input
from cornserve_executors.vllm.private_api import encoder_files
from cornserve_executors.vllm.processed_media import ProcessedMedium, UnsendableItemError, medium_marker, process_medium
from cornserve_tasklib.encoder import EncoderTask
from cornserve_tasklib.media import Media, Modality

SAMPLE_RATE = 16_000


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
        self._processors = _Processors(config.model_config)
        processor = self._processors.own
        known = processor.info.supported_mm_limits
        for modality in modalities:
            if modality not in known:
                raise ExecutorStartError(f"{config.model_config.model} has no encoder of the modality {modality}")
        self.decoder = MediaDecoder(config.model_config, processor.info)
        self._markers = {
            modality: medium_marker(config.model_config, processor, processor.info.get_tokenizer(), modality)
            for modality in modalities
        }
        processor_settings = _processor_settings(processor.info.get_hf_processor())
        model_settings = config.model_config.hf_config.to_dict() | {"_name_or_path": ""}
        self.digest = sha256(repr((weights, model_settings, processor_settings, self.dtype)).encode()).hexdigest()
        """Identifies everything except the medium that the embeddings depend on."""
        for modality in modalities:
            try:
                self.sample(modality).describe()
            except UnsendableItemError as error:
                raise ExecutorStartError(
                    f"the encoders of {config.model_config.model} cannot run apart: {error}"
                ) from error

    @classmethod
    def load(cls, task: EncoderTask, device: str) -> VllmTower:
        """Loads the encoders. Blocks. Raises `ExecutorStartError`, and errors of vLLM for files that it cannot load."""
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
            return cls(config, task.modalities, None, "")
        model, digest = _load_model(config)
        return cls(config, task.modalities, model, digest)

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = self._config.model_config.dtype
        return dtype

    def row_size(self, modality: Modality) -> int:
        return row_size(self._config.model_config, modality)

    def process(self, media: Media) -> ProcessedMedium:
        """Decodes a medium and processes it. Blocks.

        Raises:
            UnusableMediaError: the file is not valid.
            ValueError: the model does not accept it.
        """
        arguments = self.decoder.arguments(media)
        return self._process(media.modality, self.decoder.decode(media), arguments)

    def _process(self, modality: Modality, decoded: Decoded, arguments: Mapping[str, Any]) -> ProcessedMedium:
        return process_medium(self._processors.own, self._markers[modality], modality, decoded, arguments)

    def sample(self, modality: Modality) -> ProcessedMedium:
        """Returns a processed medium of a usual size."""
        samples: dict[Modality, Decoded] = {
            "image": PIL.Image.new("RGB", (224, 224)),
            "video": video_input(DecodedVideo(np.zeros((4, 224, 224, 3), np.uint8), [*range(4)], VideoSource(4, 2, 2))),
            "audio": DecodedAudio(np.zeros(SAMPLE_RATE, np.float32), SAMPLE_RATE),
        }
        return self._process(modality, samples[modality], {})

    def encode(self, media: Sequence[ProcessedMedium]) -> list[torch.Tensor]:
        """Returns the embeddings of each medium. Media of one modality next to each other are a batch."""
        assert self._model is not None
        items = [(medium.modality, medium.item) for medium in media]
        rows: list[torch.Tensor] = []
        with set_current_vllm_config(self._config), set_forward_context(None, self._config):
            for _, _, inputs in group_and_batch_mm_kwargs(items, device=self._config.device_config.device):
                rows += self._model.embed_multimodal(**inputs)
        return rows


class _Processors(local):
    """vLLM's processors of a model. Each thread has its own one, because vLLM uses a processor in one thread only."""

    def __init__(self, model_config: Any) -> None:
        tokenizer = deepcopy(cached_tokenizer_from_config(model_config))
        self.own = MULTIMODAL_REGISTRY.create_processor(model_config, tokenizer=tokenizer)


class _EncoderLoader(DefaultModelLoader):  # type: ignore[misc]
    """Loads the weights of the encoders, and digests them before vLLM converts them for its kernels."""

    digest = ""
    _model_id = ""

    def get_all_weights(self, model_config: Any, model: Any) -> Iterator[tuple[str, torch.Tensor]]:
        """Yields the weights. Opens and downloads only the files that contain weights of the encoders."""
        model_id, revision = model_config.model, model_config.revision
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
        self._model_id = model_config.model
        super().load_weights(model, model_config)
        with ThreadPoolExecutor() as threads:
            weights = model.state_dict()
            digests = [*zip(weights, threads.map(tensor_digest, weights.values()), strict=True)]
        self.digest = sha256(repr(sorted(digests)).encode()).hexdigest()


def _load_model(config: Any) -> tuple[Any, str]:
    """Returns the model without its language model, and a digest of its weights."""
    with set_current_vllm_config(config), tempfile.TemporaryDirectory() as directory:
        init_distributed_environment(1, 0, f"file://{Path(directory, 'store')}", 0, backend="gloo")
        ensure_model_parallel_initialized(1, 1)
        loader = _EncoderLoader(config.load_config)
        model = loader.load_model(vllm_config=config, model_config=config.model_config)
    return model.eval(), loader.digest


def _processor_settings(processor: Any) -> list[Any]:
    """Returns what the results of a processor of transformers depend on."""
    parts = (getattr(processor, name, None) for name in ("image_processor", "video_processor", "feature_extractor"))
    return [part.to_dict() for part in parts if part is not None]
