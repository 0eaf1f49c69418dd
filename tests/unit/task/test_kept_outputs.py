"""Outputs that code keeps after their request: every use raises an error."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from cornserve.task import Stream
from cornserve.task.errors import ReleasedOutputError
from cornserve.task.recording import Recording
from cornserve_policies.replayable_random import ReplayableRandom
from tests.unit.task.shout_task import Shout, ShoutOutput, ShoutRequest, finish, record

shout = Shout()


def keep_outputs() -> tuple[ShoutOutput, ShoutOutput]:
    """Returns the pending and the complete output of a request that has ended."""
    kept: list[ShoutOutput] = []

    def code() -> str:
        kept.append(shout.invoke(ShoutRequest(text="secret")))
        return kept[-1].text

    _, recording = record(code)
    finish(recording.invocations[0])
    assert recording.run("Calls", code) == "SECRET"
    recording.release_outputs()
    recording.close()
    pending, complete = kept
    return pending, complete


@pytest.mark.parametrize("index", [0, 1], ids=["pending", "complete"])
@pytest.mark.parametrize(
    "use",
    [
        lambda output: output.text,
        lambda output: output.embedding,
        lambda output: output.model_dump(),
        lambda output: output.model_dump_json(),
        vars,
        repr,
        copy.copy,
        lambda output: ShoutRequest(text="x", embedding=output.embedding),
    ],
    ids=["value", "tensor", "model_dump", "model_dump_json", "vars", "repr", "copy", "input"],
)
def test_a_kept_output_raises(index: int, use: Callable[[ShoutOutput], object]) -> None:
    output = keep_outputs()[index]

    with pytest.raises(Exception, match="an output of the type ShoutOutput was used after its request"):
        use(output)
    with pytest.raises(Exception, match="an output of the type ShoutOutput was used after its request"):
        record(lambda: use(output))


def test_a_kept_tensor_is_no_input_of_another_request() -> None:
    _, recording = record(lambda: shout.invoke(ShoutRequest(text="a")))
    tensor = recording.invocations[0].output.embedding  # type: ignore[attr-defined]  # of ShoutOutput
    recording.release_outputs()

    with pytest.raises(Exception, match="a Tensor was used after its request"):
        record(lambda: shout.invoke(ShoutRequest(text="a", embedding=tensor)))


STREAM_USES: dict[str, Callable[[Stream[str]], object]] = {
    "read": lambda words: words.batches(),
    "return": lambda words: words.is_open,
    "return as chunks": lambda words: words.is_mapped,
    "map": lambda words: words.map(str.upper),
}


@pytest.mark.parametrize("use", STREAM_USES.values(), ids=STREAM_USES)
@pytest.mark.parametrize("is_mapped", [False, True])
def test_a_kept_stream_raises(use: Callable[[Stream[str]], object], is_mapped: bool) -> None:
    _, recording = record(lambda: shout.invoke(ShoutRequest(text="a")))
    words: Stream[str] = recording.invocations[0].output.words  # type: ignore[attr-defined]  # of ShoutOutput
    kept = words.map(str.upper).map(str.title) if is_mapped else words
    recording.release_outputs()

    with pytest.raises(ReleasedOutputError, match="a Stream was used after its request"):
        use(kept)


def test_other_requests_keep_their_outputs() -> None:
    recording, other = (Recording(ReplayableRandom(name)) for name in "ab")
    for each in (recording, other):
        each.run("Calls", lambda: shout.invoke(ShoutRequest(text="a")).text)
        finish(each.invocations[0])

    recording.release_outputs()

    assert other.run("Calls", lambda: shout.invoke(ShoutRequest(text="a")).text) == "A"
    with pytest.raises(ReleasedOutputError):
        recording.run("Calls", lambda: shout.invoke(ShoutRequest(text="a")).text)
