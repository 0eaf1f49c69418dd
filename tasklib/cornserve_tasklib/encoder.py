"""Encoders, which convert media to embeddings for a language model."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator

from cornserve.task import ExecutorSpec, Output, Tensor, UnitTask
from cornserve_policies.input_size import InputSize
from cornserve_tasklib.engine import Dtype
from cornserve_tasklib.media import MODALITIES, Media, Modality
from cornserve_tasklib.model_settings import ModelSettings


class Embeddings(Output):
    """The embeddings of a medium."""

    embeddings: Tensor = Tensor()
    """A tensor with a row for each placeholder token. Its metadata is an `EncodedMedia`."""


MAX_BATCH_PATCHES = 16384


class EncoderOptions(BaseModel):
    """Options of the encoder of a multimodal model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dtype: Dtype | None = None
    """See `EncoderTask.dtype`. Defaults to that of the language model."""
    max_batch_patches: int = Field(default=MAX_BATCH_PATCHES, ge=1)
    """See `EncoderTask.max_batch_patches`."""
    gpus: int = Field(default=1, ge=0, le=1)
    """See `EncoderTask.gpus`."""


class EncoderTask(ModelSettings, UnitTask[Media, Embeddings]):
    """Runs the encoder and the projector of a multimodal language model, without the language model [C §5.1].

    Media of all requests, and of all apps that have an equal `EncoderTask`, are batched together.
    """

    executor = "encoder"

    model_id: str
    """A Hugging Face id, or the path of a model directory. Only the encoder's weights are loaded."""
    modality: Modality | tuple[Modality, ...] = "image"
    """The type of media that is encoded, or several types that one executor encodes: `("image", "audio")`."""
    dtype: Dtype = "auto"
    """The dtype of weights and embeddings. Choose the language model's to get the same responses as without a separate
    encoder. The language model converts embeddings of another dtype."""
    max_batch_patches: int = Field(default=MAX_BATCH_PATCHES, ge=1)
    """The maximum number of patches per batch. Larger batches use a GPU better, but take longer."""
    gpus: int = Field(default=1, ge=0, le=1)
    """GPUs of a replica. With 0, the encoder runs on the CPU."""
    constant: bool = False
    """Whether the executor publishes zeros of the shape of the embeddings. It then loads no weights. For profiles of
    the language model."""

    @field_validator("modality")
    @classmethod
    def _normalize(cls, modality: Modality | tuple[Modality, ...]) -> Modality | tuple[Modality, ...]:
        """Returns one value for each set of modalities, so that equal encoders share executors."""
        given = (modality,) if isinstance(modality, str) else modality
        if not given or len(set(given)) < len(given):
            raise ValueError("give at least one modality, and each one once")
        first, *others = (known for known in MODALITIES if known in given)
        return (first, *others) if others else first

    @property
    def modalities(self) -> tuple[Modality, ...]:
        return (self.modality,) if isinstance(self.modality, str) else self.modality

    def executor_spec(self) -> ExecutorSpec:
        spec = super().executor_spec()
        config = {name: value for name, value in spec.config.items() if name != "constant" or value}
        return spec.model_copy(update={"config": config})

    @property
    def replica_gpus(self) -> int:
        return self.gpus

    def input_source(self) -> EncoderTask:
        return self.model_validate(self.model_dump() | {"constant": True, "gpus": 0})

    def invoke(self, request: Media) -> Embeddings:
        """Records an invocation. Raises `ValueError` for a medium of another modality."""
        if request.modality not in self.modalities:
            encoded = " and ".join(self.modalities)
            raise ValueError(f"{request.where}: this encoder encodes {encoded}, not {request.modality}")
        return super().invoke(request)

    def size(self, request: Media) -> InputSize:
        return request.size

    def components(self, request: Media) -> frozenset[str]:
        return frozenset({f"{request.modality}_encoder"})
