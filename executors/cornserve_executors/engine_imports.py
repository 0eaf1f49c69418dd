"""Imports engines before executors are forked (`base/warm_process.py`), by library."""

from __future__ import annotations

import importlib


def import_vllm() -> None:
    from cornserve_executors.vllm import settings

    settings.prepare_environment()
    _import_engines(
        *("llm.engine", "llm.cpu_worker", "embedding.engine", "classification.engine"),
        *("scoring.engine", "transcription.engine", "encoder.engine", "encoder.vllm_tower"),
    )


def import_transformers() -> None:
    _import_engines(*("omni.engine", "talker.engine", "talker.vocoder_engine", "text_to_speech.engine"))


def import_diffusers() -> None:
    _import_engines("image_generator.engine", "image_generator.editing_engine", "image_generator.pipeline_engine")


def _import_engines(*modules: str) -> None:
    for module in modules:
        importlib.import_module(f"cornserve_executors.{module}")
