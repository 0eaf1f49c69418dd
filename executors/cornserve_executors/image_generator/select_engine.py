"""Selects the engine of an image generation model."""

from __future__ import annotations

from cornserve_executors.image_generator.engine import ImageGeneratorEngine
from cornserve_executors.image_generator.pipeline import pipeline_name
from cornserve_executors.image_generator.pipeline_engine import PipelineEngine
from cornserve_executors.image_generator.pipeline_family import FAMILIES
from cornserve_executors.image_generator.stats import ImageGeneratorStats
from cornserve_tasklib.image_generation import ImageGenerator


def create_engine(config: ImageGenerator, stats: ImageGeneratorStats) -> ImageGeneratorEngine | PipelineEngine:
    """Loads the model. Blocks. Raises `ExecutorStartError` if it cannot be loaded."""
    family = FAMILIES.get(pipeline_name(config))
    return ImageGeneratorEngine.load(config, stats) if family is None else PipelineEngine.load(config, stats, family)
