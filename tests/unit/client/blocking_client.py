"""The asynchronous client with the interface of the synchronous one, so that one test covers both."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Iterator
from typing import Any, Self

from cornserve import AsyncClient


class BlockingClient:
    def __init__(self, url: str, *, retries: int = 2) -> None:
        self._runner = asyncio.Runner()
        self._client = AsyncClient(url, retries=retries)

    def __enter__(self) -> Self:
        self._runner.run(self._client.__aenter__())
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._runner.run(self._client.__aexit__(*exc_info))
        self._runner.close()

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._client, name)
        return self._blocking(value) if callable(value) else value

    def _blocking(self, method: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            result = method(*arguments, **options)
            return self._runner.run(result) if inspect.iscoroutine(result) else self._items(result)

        return call

    def _items(self, items: AsyncGenerator[Any, None]) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self._runner.run(anext(items))
                except StopAsyncIteration:
                    return
        finally:
            self._runner.run(items.aclose())
