"""Outputs without tokens, which let a response be handed over before its next token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cornserve_tasklib import CompletionRequest
from cornserve_tasklib.chat_response import ChatChunk
from tests.integration.multimodal.engine import running_llm

if TYPE_CHECKING:
    from cornserve_executors.llm.engine import LLMEngine


@pytest.fixture
def engine(tiny_llama: Path, fork_variables: dict[str, str]) -> Iterator[LLMEngine]:
    with running_llm(tiny_llama, fork_variables, with_enc=True) as engine:
        yield engine


class WithdrawnHandOver:
    """A hand-over that is not wanted any more when the executor asks."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []

    def is_wanted(self) -> bool:
        return False

    def on_wanted(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    async def save(self, *_: Any) -> None:
        raise AssertionError("it is not wanted")

    async def send(self, *_: Any) -> None:
        raise AssertionError("it is not wanted")


@pytest.mark.slow
async def test_an_output_that_follows_an_empty_one_has_its_metrics(
    engine: LLMEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[Any] = []
    monkeypatch.setattr("cornserve_executors.llm.trace.record_engine_spans", ends.append)
    hand_over = WithdrawnHandOver()

    async def deliver(chunk: ChatChunk) -> None:
        if hand_over.callbacks:
            hand_over.callbacks.pop()()
            # The response ends during this longer one, before its next output is read.
            await engine.generate(_tokens(40), "longer")

    await engine.generate(_tokens(8), "response", deliver, hand_over=hand_over)

    *_, end = ends
    assert end.finished
    assert end.metrics.num_generation_tokens == 8
    assert end.prompt_token_ids


def _tokens(count: int) -> CompletionRequest:
    return CompletionRequest(prompt="Hello", max_tokens=count, ignore_eos=True, temperature=0)
