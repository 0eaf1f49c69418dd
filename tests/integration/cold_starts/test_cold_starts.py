"""Each kind of executor starts by its real command, serves, and stops.

Other tests fork most executors from a process that has imported all engines, which hides a missing import.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import pytest

from cornserve.task import UnitTask
from cornserve_tasklib import (
    ClassificationTask,
    EmbeddingTask,
    EngineOptions,
    ImageGenerator,
    ScoringTask,
    TranscriptionTask,
)
from cornserve_tasklib.encoder import EncoderTask
from cornserve_tasklib.image_components import (
    EditPromptEncoder,
    ImageDenoiser,
    LatentDecoder,
    PromptEncoder,
    SourceEncoder,
)
from cornserve_tasklib.image_editing import ImageEditor
from cornserve_tasklib.omni import OmniTask
from cornserve_tasklib.prefill_decode import DecodeTask, PrefillSource, PrefillTask
from cornserve_tasklib.talker import TalkerTask, VocoderTask
from cornserve_tasklib.text_to_speech import TextToSpeechTask
from cornserve_tasklib.thinker import ThinkerTask, TokenSource
from tests.integration.llm.process import running_executor

pytestmark = pytest.mark.timeout(300)

OPTIONS = EngineOptions(kv_cache_memory_bytes=64 << 20)

KINDS: dict[str, tuple[str, Callable[[str], UnitTask[Any, Any]]]] = {
    "classification": ("tiny_reranker", lambda model: ClassificationTask(model_id=model)),
    "decode": ("tiny_llama", lambda model: DecodeTask(model_id=model, options=OPTIONS)),
    "edit_prompt_encoder": ("tiny_qwenimageedit", lambda model: EditPromptEncoder(model_id=model, gpus=0)),
    "embedding": ("tiny_bert", lambda model: EmbeddingTask(model_id=model)),
    "encoder": ("tiny_qwen25vl", lambda model: EncoderTask(model_id=model)),
    "image_denoiser": ("tiny_qwenimage", lambda model: ImageDenoiser(model_id=model)),
    "image_editor": ("tiny_qwenimageedit", lambda model: ImageEditor(model_id=model)),
    "image_generator": ("tiny_qwenimage", lambda model: ImageGenerator(model_id=model)),
    "latent_decoder": ("tiny_qwenimage", lambda model: LatentDecoder(model_id=model, gpus=0)),
    "omni": ("tiny_qwen25omni_talker", lambda model: OmniTask(model_id=model)),
    "prefill": ("tiny_llama", lambda model: PrefillTask(model_id=model, options=OPTIONS)),
    "prefill_source": ("tiny_llama", lambda _: PrefillSource()),
    "prompt_encoder": ("tiny_qwenimage", lambda model: PromptEncoder(model_id=model, gpus=0)),
    "scoring": ("tiny_reranker", lambda model: ScoringTask(model_id=model)),
    "source_encoder": ("tiny_qwenimageedit", lambda model: SourceEncoder(model_id=model, gpus=0)),
    "talker": ("tiny_qwen3omni_talker", lambda model: TalkerTask(model_id=model)),
    "text_to_speech": ("tiny_vits", lambda model: TextToSpeechTask(model_id=model)),
    "thinker": ("tiny_qwen25omni_talker", lambda model: ThinkerTask(model_id=model, with_enc=False, options=OPTIONS)),
    "token_source": ("tiny_llama", lambda model: TokenSource(model_id=model)),
    "transcription": ("tiny_whisper", lambda model: TranscriptionTask(model_id=model, options=OPTIONS)),
    "vocoder": ("tiny_qwen3omni_talker", lambda model: VocoderTask(model_id=model)),
}
"""The model and the task of each kind."""

OF_PACKAGES = {
    *("classification", "embedding", "encoder", "image_generator", "omni", "scoring", "talker", "text_to_speech"),
    "transcription",
}
"""One kind of each package of executors. The others share its engine and its imports."""

KILLED = "llm"
"""The kind that the test of the README's `make run` starts by its command."""


def test_each_kind_starts_by_its_command_in_a_test() -> None:
    points = [point for point in entry_points(group="cornserve.executors") if "cornserve_executors" in point.value]
    fast = {point.value.split(".")[1] for point in points if point.name in {*OF_PACKAGES, KILLED}}

    assert {point.name for point in points} == KINDS.keys() | {KILLED}
    assert {point.value.split(".")[1] for point in points} == fast


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind not in OF_PACKAGES)) for kind in KINDS]
)
def test_an_executor_starts_by_its_command(
    kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model, make_task = KINDS[kind]
    task = make_task(str(request.getfixturevalue(model)))
    assert task.executor_spec().executor == kind

    with running_executor(task, tmp_path_factory.mktemp(kind)) as executor:
        executor.until_ready()
