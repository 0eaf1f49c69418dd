"""Bounds the tokenization of large texts, which takes up to a second per megabyte.

vLLM tokenizes in threads. One large request at a time uses one of them, so that another remains for small requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from cornserve.weighted_semaphore import WeightedSemaphore
from cornserve_executors.base import InvalidRequestError

Result = TypeVar("Result")

LARGE_CHARACTERS = 64 * 1024
"""Requests with more text take turns. The tokenization of less takes tens of milliseconds."""

CHARACTERS_PER_TOKEN = 8
"""Few texts have longer tokens on average."""

MARGIN_TOKENS = 64
"""Cutting a text may change the tokens next to the cut."""


class LargeTexts:
    def __init__(self) -> None:
        self._turn = WeightedSemaphore(1)

    async def run(self, work: Callable[[], Coroutine[Any, Any, Result]], characters: int, owner: Hashable) -> Result:
        """Returns the result of `work`, which tokenizes `characters`. Owners take turns with large texts.

        A cancelled call keeps its turn until the work is done, because threads cannot be cancelled.
        """
        if characters <= LARGE_CHARACTERS:
            return await work()
        async with self._turn.acquire(1, owner):
            working = asyncio.ensure_future(work())
            try:
                return await asyncio.shield(working)
            except asyncio.CancelledError:
                await asyncio.gather(working, return_exceptions=True)
                raise


async def check_length(texts: Sequence[str], tokenizer: Any, context: int) -> None:
    """Raises `InvalidRequestError` if the start of a very long text already exceeds the model's context length."""
    limit = CHARACTERS_PER_TOKEN * context
    if sum(map(len, texts)) <= limit:
        return
    tokens = await asyncio.to_thread(
        lambda: len(tokenizer(_start(texts, limit), add_special_tokens=False)["input_ids"])
    )
    if tokens > context + MARGIN_TOKENS:
        message = f"the prompt is too long: this model's maximum context length is {context} tokens: shorten it"
        raise InvalidRequestError(message)


def _start(texts: Iterable[str], characters: int) -> str:
    """Returns the first characters of the texts."""
    parts = []
    for text in texts:
        parts.append(text[:characters])
        characters -= len(parts[-1])
        if not characters:
            break
    return "".join(parts)


def text_batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yields the texts in batches that are small or have one element."""
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and size + len(text) > LARGE_CHARACTERS:
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield batch
