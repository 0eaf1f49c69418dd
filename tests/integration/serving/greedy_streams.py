"""Greedy streams of a language model, which run while replicas leave."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import repeat

from openai import AsyncOpenAI

NUMBERS = ", ".join(str(number) for number in range(36))
"""A text of slightly more tokens than one block of the KV cache."""


class GreedyStream:
    """The response to one prompt."""

    def __init__(self, prompt: str, max_tokens: int, characters: int) -> None:
        self.prompt = prompt
        self.max_tokens = max_tokens
        self.characters = characters
        """The part of the text after which the client disconnects."""
        self.parts: list[str] = []
        self.begun = asyncio.Event()

    @property
    def text(self) -> str:
        return "".join(self.parts)

    async def run(self, client: AsyncOpenAI, app: str, salt: str) -> None:
        extra = {"ignore_eos": True, "cache_salt": salt}
        stream = await client.completions.create(
            model=app, prompt=self.prompt, max_tokens=self.max_tokens, temperature=0, stream=True, extra_body=extra
        )
        async with stream:
            async for chunk in stream:
                self.parts.append(chunk.choices[0].text)
                self.begun.set()
                if len(self.text) >= self.characters:
                    break


@asynccontextmanager
async def running_streams(
    url: str,
    app: str,
    prompts: Sequence[str],
    max_tokens: int,
    salt: str,
    read: Sequence[str] = (),
    api_key: str = "none",
) -> AsyncIterator[list[GreedyStream]]:
    """Streams responses to all prompts during the block, which begins when all have begun. Waits for their ends.

    Args:
        salt: requests with other salts do not find the prompts in the prefix cache.
        read: texts that are as long as the part of each response that is read. By default, all of it.
    """
    lengths = map(len, read) if read else repeat(sys.maxsize)
    streams = [GreedyStream(prompt, max_tokens, length) for prompt, length in zip(prompts, lengths, strict=False)]
    async with (
        AsyncOpenAI(base_url=f"{url}/v1", api_key=api_key, max_retries=0, timeout=400) as client,
        asyncio.TaskGroup() as tasks,
    ):
        running = [tasks.create_task(stream.run(client, app, salt)) for stream in streams]
        await asyncio.gather(*(stream.begun.wait() for stream in streams))
        yield streams
        assert not any(task.done() for task in running)
