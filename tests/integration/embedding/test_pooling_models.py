"""Classifiers, and models that embed texts and images, compared with vLLM called directly and with transformers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from cornserve_executors.base import InvalidRequestError
from cornserve_executors.vllm import settings
from cornserve_tasklib import ClassificationRequest, ClassificationTask, EmbeddingRequest, EmbeddingTask, EngineOptions
from tests.images import as_image, noise
from tests.integration.multimodal.media_chats import MediaContent, media_chat, vllm_messages
from tests.integration.multimodal.multimodal_tests import MARKS, new_id
from tests.models.tiny_families import whole_model

if TYPE_CHECKING:
    from cornserve_executors.classification.engine import ClassificationEngine
    from cornserve_executors.embedding.engine import EmbeddingEngine

pytestmark = [*MARKS, pytest.mark.families]

TEXTS = ["A cereal.", "Ein etwas längerer Text", "three " * 30, "No.", "x"]
CONCURRENT = 8


@contextmanager
def classifier(name: str, fork_variables: dict[str, str]) -> Iterator[ClassificationEngine]:
    settings.prepare_environment()
    from cornserve_executors.classification.engine import ClassificationEngine

    options = EngineOptions(kv_cache_memory_bytes=16 << 20, max_model_len=512)
    with patch.dict(os.environ, fork_variables):
        engine = ClassificationEngine(ClassificationTask(model_id=str(whole_model("pooling", name)), options=options))
    yield engine
    engine.shutdown()


def transformers_logits(name: str, texts: list[str]) -> Any:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    path = whole_model("pooling", name)
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForSequenceClassification.from_pretrained(path).float().eval()
    with torch.no_grad():
        return [model(**tokenizer(text, return_tensors="pt")).logits[0] for text in texts]


async def test_texts_get_the_probabilities_of_transformers(fork_variables: dict[str, str]) -> None:
    logits = transformers_logits("bert_classifier", TEXTS)
    expected = [values.softmax(-1).tolist() for values in logits]
    with classifier("bert_classifier", fork_variables) as engine:
        request = ClassificationRequest(input=TEXTS)
        first, *others = await asyncio.gather(*(engine.classify(request, new_id()) for _ in range(CONCURRENT)))
        raw = await engine.classify(ClassificationRequest(input=TEXTS, use_activation=False), new_id())
        tokens = await engine.classify(ClassificationRequest(input=[[1, 70, 71, 2]]), new_id())
        cut = await engine.classify(ClassificationRequest(input=["x" * 600], truncate_prompt_tokens=9), new_id())
        with pytest.raises(InvalidRequestError, match="512"):
            await engine.classify(ClassificationRequest(input=["x" * 600]), new_id())

    assert [probs for found in first.probs for probs in found] == pytest.approx(
        [value for values in expected for value in values], abs=1e-4
    )
    assert [other.labels for other in others] == [first.labels] * (CONCURRENT - 1)
    names = ["sad", "calm", "happy"]
    assert first.labels == [names[int(values.argmax())] for values in logits]
    assert [value for found in raw.probs for value in found] == pytest.approx(
        [value for values in logits for value in values.tolist()], abs=1e-3
    )
    assert (tokens.prompt_tokens, cut.prompt_tokens) == (4, 9)
    assert max(values[0] for values in expected) - min(values[0] for values in expected) > 0.01


async def test_a_reward_model_has_the_values_of_transformers(fork_variables: dict[str, str]) -> None:
    expected = [float(values[0]) for values in transformers_logits("qwen3_reward", TEXTS)]
    with classifier("qwen3_reward", fork_variables) as engine:
        found = await engine.classify(ClassificationRequest(input=TEXTS, use_activation=False), new_id())

    assert [values for (values,) in found.probs] == pytest.approx(expected, abs=1e-3)
    assert max(expected) - min(expected) > 0.01


CONTENTS: dict[str, MediaContent] = {
    "text": ["What is corn?"],
    "another text": ["A picture of a cat"],
    "image": [as_image(noise(1, 112, 84))],
    "another image": [as_image(noise(2, 60, 90))],
}


@pytest.mark.parametrize("name", ["clip", "siglip"])
async def test_texts_and_images_have_the_vectors_of_vllm(name: str, fork_variables: dict[str, str]) -> None:
    settings.prepare_environment()
    from cornserve_executors.embedding.engine import EmbeddingEngine

    options = EngineOptions(kv_cache_memory_bytes=16 << 20)
    with patch.dict(os.environ, fork_variables):
        engine = EmbeddingEngine(EmbeddingTask(model_id=str(whole_model("pooling", name)), options=options))
    try:
        expected = [await vllm_vector(engine, content) for content in CONTENTS.values()]
        requests = [EmbeddingRequest(messages=media_chat(content).messages) for content in CONTENTS.values()]
        found = await asyncio.gather(*(engine.embed(request, new_id()) for request in requests * 2))
        texts = await engine.embed(EmbeddingRequest(input=["What is corn?", "A picture of a cat"]), new_id())
    finally:
        engine.shutdown()

    vectors = [vector.tolist() for response in found for vector in response.vectors]
    assert len({tuple(vector) for vector in expected}) == len(CONTENTS)
    for vector, wanted in zip(vectors, expected * 2, strict=True):
        assert vector == pytest.approx(wanted, abs=1e-5)
    assert len({tuple(vector) for vector in texts.vectors}) == 2


async def vllm_vector(engine: EmbeddingEngine, content: MediaContent) -> list[float]:
    from vllm.entrypoints.pooling.embed.protocol import EmbeddingChatRequest

    request = EmbeddingChatRequest(messages=vllm_messages(content))
    _, (prompt,) = await engine._vllm.renderer.render_chat_async(
        [request.messages],
        request.build_chat_params(None, "auto"),
        request.build_tok_params(engine._vllm.model_config),
        skip_mm_cache=True,
    )
    outputs = [output async for output in engine._vllm.encode(prompt, request.to_pooling_params(), new_id())]
    vector: list[float] = outputs[-1].outputs.data.float().tolist()
    return vector
