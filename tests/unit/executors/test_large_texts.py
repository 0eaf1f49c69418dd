from __future__ import annotations

import asyncio
from functools import partial

import pytest

from cornserve_executors.base import InvalidRequestError
from cornserve_executors.vllm.large_texts import LARGE_CHARACTERS, LargeTexts, check_length, text_batches
from tests.waiting import until

LARGE = LARGE_CHARACTERS + 1


class Tokenization:
    """Work that ends when it is allowed to."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.may_end = asyncio.Event()

    async def run(self, name: str) -> str:
        self.started.append(name)
        await self.may_end.wait()
        return name


def words(text: str, add_special_tokens: bool) -> dict[str, list[str]]:
    """Tokenizes words."""
    return {"input_ids": text.split()}


async def test_large_texts_take_turns_by_owner_and_small_texts_do_not_wait() -> None:
    texts, work = LargeTexts(), Tokenization()
    sizes = {"a1": LARGE, "a2": LARGE, "a3": LARGE, "b1": LARGE, "small": LARGE_CHARACTERS}
    tasks = [
        asyncio.create_task(texts.run(partial(work.run, name), size, owner=name[0])) for name, size in sizes.items()
    ]
    await until(lambda: len(work.started) == 2)

    assert set(work.started) == {"a1", "small"}
    work.may_end.set()
    assert await asyncio.gather(*tasks) == list(sizes)
    assert [name for name in work.started if name != "small"] == ["a1", "a2", "b1", "a3"]


async def test_a_cancelled_call_keeps_its_turn_while_its_thread_works() -> None:
    texts, work = LargeTexts(), Tokenization()
    first = asyncio.create_task(texts.run(partial(work.run, "first"), LARGE, "a"))
    await until(lambda: work.started == ["first"])
    second = asyncio.create_task(texts.run(partial(work.run, "second"), LARGE, "b"))

    first.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert work.started == ["first"]

    work.may_end.set()
    assert await second == "second"
    assert first.cancelled()


@pytest.mark.parametrize("texts", [["word " * 10_000], ["word " * 10] * 1000])
async def test_a_text_whose_start_exceeds_the_context_is_refused(texts: list[str]) -> None:
    counted = []

    def count(text: str, add_special_tokens: bool) -> dict[str, list[str]]:
        counted.append(len(text))
        return words(text, add_special_tokens)

    with pytest.raises(InvalidRequestError, match="maximum context length is 1000 tokens"):
        await check_length(texts, count, context=1000)

    assert counted == [8000]


@pytest.mark.parametrize("text", ["word " * 160, "word-of-many-letters-that-is-one-token " * 90])
async def test_a_text_that_may_fit_is_not_refused(text: str) -> None:
    await check_length([text], words, context=100)


def test_batches_are_small_or_have_one_text() -> None:
    texts = ["a" * 40_000, "b" * 20_000, "c" * 20_000, "d" * 90_000, "e"]

    assert list(text_batches(texts)) == [texts[:2], texts[2:3], texts[3:4], texts[4:]]
    assert list(text_batches([])) == []
