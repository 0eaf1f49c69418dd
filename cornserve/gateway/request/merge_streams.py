"""Merges several streams into one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TypeVar

from cornserve.task import Stream

Name = TypeVar("Name")
Item = TypeVar("Item")


async def merge_streams(streams: Mapping[Name, Stream[Item]]) -> AsyncGenerator[tuple[Name, Sequence[Item]], None]:
    """Yields the batches of all streams as they arrive. The error of one stream ends all of them."""
    iterators = {name: aiter(stream.batches()) for name, stream in streams.items()}
    pending = {asyncio.ensure_future(anext(iterator)): name for name, iterator in iterators.items()}
    try:
        while pending:
            arrived, _ = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for arrival in arrived:
                name = pending.pop(arrival)
                try:
                    batch = arrival.result()
                except StopAsyncIteration:
                    continue
                pending[asyncio.ensure_future(anext(iterators[name]))] = name
                yield name, batch
    finally:
        for arrival in pending:
            arrival.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
