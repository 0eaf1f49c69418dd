"""Images on their way through a graph: as they came, and encoded."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge
from pydantic import BaseModel, ConfigDict

from cornserve.task import Blob, Tensor
from cornserve_tasklib.sampling import STRICT


class Image(BaseModel):
    """An image that a gateway has looked at, without having decoded it."""

    model_config = STRICT | ConfigDict(frozen=True)

    data: Blob | None = None
    """The file as it came. None where only the encoded image is needed: language executors never see both."""
    format: str
    """As Pillow names it: "PNG", "JPEG"."""
    width: Annotated[int, Ge(1)]
    height: Annotated[int, Ge(1)]
    """In pixels, as the file says."""
    digest: str
    """SHA-256 of the file, in hexadecimal: the same image is not encoded twice."""
    where: str
    """Its place in the request ("messages[0].content[1]"), by which errors name it."""

    @property
    def seen(self) -> Image:
        """This one without its bytes."""
        return self.model_copy(update={"data": None})


class ImagePart(BaseModel):
    """An image within a message: what an `image_url` has become. It cannot be written as JSON by a client."""

    model_config = STRICT | ConfigDict(frozen=True)

    type: Literal["image"]
    image: Image
    embedding: Tensor | None = None
    """What an encoder has made of it; without, the language model encodes it itself."""


class EncodedImage(BaseModel):
    """What an encoder says of the tensor that it has made of an image, [rows, hidden size of the language model]."""

    model_config = STRICT | ConfigDict(frozen=True)

    key: str
    """Names the content: equal keys, equal tensors. Made of the image, the model, its revision and its settings."""
    rows: Annotated[int, Ge(1)]
    """Embeddings: so many of the prompt's placeholders take one."""
    fields: dict[str, list[int]]
    """What the language model has to know besides, by vLLM's names: `image_grid_thw` [t, h, w] in patches, say."""
