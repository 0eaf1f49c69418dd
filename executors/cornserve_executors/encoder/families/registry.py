"""Maps transformers' model types to encoder families, which `cornserve_tasklib.model_families` offers to apps."""

from __future__ import annotations

from cornserve_executors.encoder.families.family import EncoderFamily
from cornserve_executors.encoder.families.internvl import InternVL
from cornserve_executors.encoder.families.qwen2_5_vl import Qwen25VL

ENCODER_FAMILIES: dict[str, type[EncoderFamily]] = {"internvl": InternVL, "qwen2_5_vl": Qwen25VL}
