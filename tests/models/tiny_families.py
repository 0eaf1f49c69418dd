"""The tiny models that are compared with transformers, too.

To add a family, write a module `tiny_NAME.py` and add a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.models.cache import cached_model

_MODELS = Path(__file__).parent
_SHARED = [_MODELS / name for name in ("byte_tokenizer.py", "random_weights.py", "tiny_family.py")]


@dataclass(frozen=True, slots=True)
class TinyFamily:
    name: str
    """The module in this folder, without the prefix `tiny_`."""
    vision: tuple[str, ...] = ("image", "video")
    """The modalities of the vision tower."""

    def __str__(self) -> str:
        return self.name

    @property
    def path(self) -> Path:
        """A model directory, made when it is first used."""
        return tiny_model(self.name)


FAMILIES = [
    TinyFamily("qwen25vl"),
    TinyFamily("internvl"),
    TinyFamily("llava", ("image",)),
    TinyFamily("qwen2vl"),
    TinyFamily("llava_onevision"),
    TinyFamily("gemma3", ("image",)),
    TinyFamily("mistral3", ("image",)),
    TinyFamily("qwen3vl"),
    TinyFamily("qwen25omni"),
    TinyFamily("qwen3omni"),
]

VIDEO_FAMILIES = [family for family in FAMILIES if "video" in family.vision]


def tiny_model(name: str) -> Path:
    return cached_model(_MODELS / f"tiny_{name}.py", *_SHARED)


def whole_model(kind: str, name: str) -> Path:
    """Returns a further model, by its name in `tiny_KIND_families.py`."""
    further = [_MODELS / f"tiny_{module}.py" for module in ("qwen3vl", "bert")]
    return cached_model(_MODELS / f"tiny_{kind}_families.py", *further, *_SHARED) / name
