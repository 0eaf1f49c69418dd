"""Sizes of requests, by which replicas are chosen."""

from __future__ import annotations

from cornserve_policies.input_size import InputSize
from cornserve_tasklib import ChatRequest, CompletionRequest
from cornserve_tasklib.classification import ClassificationRequest, ClassificationTask
from cornserve_tasklib.embedding import EmbeddingRequest, EmbeddingTask
from cornserve_tasklib.encoder import EncoderTask
from cornserve_tasklib.llm import LLMTask
from cornserve_tasklib.media import Image, MediaPart
from cornserve_tasklib.messages import ChatMessage, ContentPart, TextPart

IMAGE = Image(format="PNG", width=56, height=30, digest="d", where="messages[0].content[1]")


def test_the_size_of_a_chat_counts_its_texts_and_images() -> None:
    parts: list[ContentPart] = [TextPart(type="text", text="x" * 40), MediaPart(type="media", media=IMAGE)]
    messages = [ChatMessage(role="system", content="y" * 8), ChatMessage(role="user", content=parts)]

    size = LLMTask(model_id="a/b").size(ChatRequest(messages=messages, max_tokens=9))

    assert size == InputSize(text=12, media=3, output=9, items=2)


def test_the_size_of_a_completion_counts_tokens_if_they_are_given() -> None:
    task = LLMTask(model_id="a/b")

    assert task.size(CompletionRequest(prompt="x" * 20)).tokens == 5
    assert task.size(CompletionRequest(prompt=[1, 2, 3])).tokens == 3


def test_the_size_of_an_image_follows_from_its_pixels() -> None:
    assert EncoderTask(model_id="a/b").size(IMAGE) == InputSize(media=3)


def test_the_size_of_texts_counts_each() -> None:
    texts = ["x" * 8, "y" * 4]

    assert EmbeddingTask(model_id="a/b").size(EmbeddingRequest(input=texts)) == InputSize(text=3, items=2)
    assert EmbeddingTask(model_id="a/b").size(EmbeddingRequest(input=[[1, 2, 3]])) == InputSize(text=3)
    classifier = ClassificationTask(model_id="a/b")
    assert classifier.size(ClassificationRequest(input=texts)) == InputSize(text=3, items=2)
