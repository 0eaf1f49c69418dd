"""The tiny models of all encoder families.

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
    model_type: str
    """transformers' name of the family."""
    fields: dict[str, list[int]] | None = None
    """The fields that the language model needs for an image of 300×200 pixels. None for encoders of vLLM, which send
    the result of vLLM's processor."""
    video_fields: dict[str, list[int] | float | list[float]] | None = None
    """The fields for a video of 300×200 pixels with 12 frames at 3 frames per second. None: a family without videos, or
    an encoder of vLLM."""
    videos_on_vllm: bool = False
    """Whether vLLM's encoder of the model encodes videos."""

    def __str__(self) -> str:
        return self.name

    @property
    def vision(self) -> tuple[str, ...]:
        """The modalities of the vision tower."""
        return ("image", "video") if self.videos_on_vllm or self.video_fields is not None else ("image",)

    @property
    def path(self) -> Path:
        """A model directory, made when it is first used."""
        return tiny_model(self.name)


FAMILIES = [
    TinyFamily(
        "qwen25vl",
        "qwen2_5_vl",
        {"image_grid_thw": [1, 14, 22]},
        {"video_grid_thw": [4, 12, 18], "second_per_grid_ts": 1.0},
    ),
    TinyFamily("internvl", "internvl", videos_on_vllm=True),
    TinyFamily("llava", "llava"),
    TinyFamily("qwen2vl", "qwen2_vl", {"image_grid_thw": [1, 14, 22]}, {"video_grid_thw": [4, 12, 18]}),
    TinyFamily("llava_onevision", "llava_onevision", {"image_sizes": [200, 300]}, {}),
    TinyFamily("gemma3", "gemma3"),
    TinyFamily("mistral3", "mistral3"),
    TinyFamily(
        "qwen3vl",
        "qwen3_vl",
        {"image_grid_thw": [1, 12, 18]},
        {"video_grid_thw": [4, 12, 18], "timestamps": [(first / 3 + (first + 2) / 3) / 2 for first in (0, 3, 6, 9)]},
    ),
    TinyFamily(
        "qwen25omni",
        "qwen2_5_omni",
        {"image_grid_thw": [1, 14, 22]},
        {"video_grid_thw": [4, 20, 28], "second_per_grid_ts": 1.0, "use_audio_in_video": 0},
    ),
    TinyFamily(
        "qwen3omni",
        "qwen3_omni_moe",
        {"image_grid_thw": [1, 12, 18]},
        {"video_grid_thw": [4, 20, 28], "second_per_grid_ts": 2.0, "use_audio_in_video": 0},
    ),
]

VIDEO_FAMILIES = [family for family in FAMILIES if family.video_fields is not None]


def tiny_model(name: str) -> Path:
    return cached_model(_MODELS / f"tiny_{name}.py", *_SHARED)


def whole_model(kind: str, name: str) -> Path:
    """Returns a model without an encoder family, by its name in `tiny_KIND_families.py`."""
    further = [_MODELS / f"tiny_{module}.py" for module in ("qwen3vl", "bert")]
    return cached_model(_MODELS / f"tiny_{kind}_families.py", *further, *_SHARED) / name
