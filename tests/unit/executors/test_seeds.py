"""Seeds of requests without one: all attempts of an invocation have the same."""

from __future__ import annotations

from typing import Any

from cornserve.v1 import executor_pb2 as pb
from cornserve_executors.base import InvocationContext
from cornserve_tasklib.image_generation import ImageGenerationRequest


def seed(request: str, invocation: int, attempt: int, given: int | None = None) -> int | None:
    start = pb.Start(request_id=request, invocation=invocation, attempt=attempt)
    unused: Any = None
    context = InvocationContext(start, unused, unused)
    return context.with_seed(ImageGenerationRequest(prompt="corn", seed=given)).seed


def test_all_attempts_of_an_invocation_have_the_same_seed() -> None:
    assert seed("a", 0, attempt=0) == seed("a", 0, attempt=1) is not None


def test_other_invocations_and_requests_have_other_seeds() -> None:
    assert len({seed("a", 0, 0), seed("a", 1, 0), seed("b", 0, 0)}) == 3


def test_the_seed_of_a_request_is_kept() -> None:
    assert seed("a", 0, 0, given=7) == 7
