"""Several streams as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TypeVar

from cornserve.task import Stream

Name = TypeVar("Name")
Item = TypeVar("Item")


async def merge(streams: Mapping[Name, Stream[Item]]) -> AsyncGenerator[tuple[Name, Sequence[Item]], None]:
    """The items of all streams, in batches of those that came together. One that fails ends the others."""
    iterators = {name: aiter(stream.batches()) for name, stream in streams.items()}
    coming = {asyncio.ensure_future(anext(iterator)): name for name, iterator in iterators.items()}
    try:
        while coming:
            arrived, _ = await asyncio.wait(coming, return_when=asyncio.FIRST_COMPLETED)
            for arrival in arrived:
                name = coming.pop(arrival)
                try:
                    batch = arrival.result()
                except StopAsyncIteration:
                    continue
                coming[asyncio.ensure_future(anext(iterators[name]))] = name
                yield name, batch
    finally:
        for arrival in coming:
            arrival.cancel()
        await asyncio.gather(*coming, return_exceptions=True)
