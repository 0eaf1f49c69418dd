"""Selects the engine of an image generation model."""

from __future__ import annotations

from diffusers import DiffusionPipeline

from cornserve_executors.image_generator.engine import ImageGeneratorEngine
from cornserve_executors.image_generator.pipeline import loading
from cornserve_executors.image_generator.pipeline_engine import PipelineEngine
from cornserve_executors.image_generator.pipeline_family import FAMILIES
from cornserve_executors.image_generator.stats import ImageGeneratorStats
from cornserve_tasklib.image_generation import ImageGenerator


def create_engine(config: ImageGenerator, stats: ImageGeneratorStats) -> ImageGeneratorEngine | PipelineEngine:
    """Loads the model. Blocks. Raises `ExecutorStartError` if it cannot be loaded."""
    with loading(config.model_id):
        index = DiffusionPipeline.load_config(config.model_id, revision=config.revision)
    family = FAMILIES.get(index["_class_name"])
    return ImageGeneratorEngine(config, stats) if family is None else PipelineEngine(config, stats, family)
