"""What a request took is free as soon as it is answered: nobody waits for the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest

from cornserve.gateway.request.channel import Channel
from cornserve.gateway.request.dispatch import Dispatch
from cornserve.gateway.request.session import Session
from cornserve.task.recording import Invocation, Recording
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.sources import READER
from tests.waiting import until


@pytest.fixture
def others() -> Iterator[list[Any]]:
    """What other tests have left. From here on, nothing is collected."""
    gc.collect()
    gc.disable()
    yield _left()
    gc.enable()


def _left() -> list[Any]:
    # Not isinstance: it asks objects for their class, of which some that other tests have loaded warn.
    return [it for it in gc.get_objects() if type(it) in (Session, Dispatch, Recording, Invocation, Channel)]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answered_request_leaves_no_circles(
    others: list[Any], gateway: httpx.AsyncClient, deploy: Deploy, stream: bool
) -> None:
    await deploy(READER)
    message = {"role": "user", "content": "one two three"}

    answer = await gateway.post(
        "/v1/chat/completions", json={"model": "reader", "messages": [message], "stream": stream}
    )

    assert answer.status_code == 200
    await until(lambda: all(any(it is other for other in others) for it in _left()))
