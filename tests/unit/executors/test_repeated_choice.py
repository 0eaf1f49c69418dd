"""Choices of a response that another executor generates again."""

from __future__ import annotations

import pytest

from cornserve_executors.base import NotRepeatedError
from cornserve_executors.llm.repeated_choice import RepeatedChoice
from cornserve_tasklib.chat_response import ChatChunk, TokenLogprobs, ToolCallDelta


def call(id: str | None = None, name: str | None = None, arguments: str | None = None, index: int = 0) -> ChatChunk:
    return ChatChunk(text="", tool_calls=[ToolCallDelta(index=index, id=id, name=name, arguments=arguments)])


def new_parts(delivered: list[ChatChunk], *repeated: ChatChunk) -> list[ChatChunk]:
    choice = RepeatedChoice(delivered)
    for chunk in repeated:
        choice.remove_delivered(chunk)
    choice.check_complete()
    return list(repeated)


def test_texts_reasoning_and_tokens_may_be_divided_differently() -> None:
    delivered = [ChatChunk(text="", reasoning="Hm", token_ids=[1]), ChatChunk(text="Co", token_ids=[2, 3])]

    parts = new_parts(
        delivered,
        ChatChunk(text="C", reasoning="Hm", token_ids=[1, 2]),
        ChatChunk(text="orn", token_ids=[3, 4]),
        ChatChunk(text=".", token_ids=[5]),
    )

    assert parts == [
        ChatChunk(text=""),
        ChatChunk(text="rn", token_ids=[4]),
        ChatChunk(text=".", token_ids=[5]),
    ]


def test_log_probabilities_are_counted_and_not_compared() -> None:
    def chunk(*logprobs: float) -> ChatChunk:
        return ChatChunk(text="", logprobs=[TokenLogprobs(token="a", logprob=logprob) for logprob in logprobs])

    assert new_parts([chunk(-1)], chunk(-1.001, -2), chunk(-3)) == [chunk(-2), chunk(-3)]


def test_the_id_of_a_tool_call_is_the_delivered_one() -> None:
    delivered = [call("first", "pick", ""), call(arguments='{"ripe')]

    parts = new_parts(
        delivered, call("second", "pick", '{"ri'), call(arguments='pe": 1}'), call("other", "drop", index=1)
    )

    assert [part.tool_calls for part in parts] == [
        None,
        [ToolCallDelta(index=0, arguments='": 1}')],
        [ToolCallDelta(index=1, id="other", name="drop")],
    ]


@pytest.mark.parametrize(
    ("delivered", "repeated"),
    [
        (ChatChunk(text="Corn"), ChatChunk(text="Cow")),
        (ChatChunk(text="Corn"), ChatChunk(text="Co")),
        (ChatChunk(text="Corn", token_ids=[1]), ChatChunk(text="Corn", token_ids=[2])),
        (ChatChunk(text="", reasoning="Hm"), ChatChunk(text="Hm")),
        (call("first", "pick", "{}"), call("second", "drop", "{}")),
        (call("first", "pick", "{}"), call("second", "pick", "[]")),
        (call("first", "pick", "{}"), ChatChunk(text="")),
    ],
)
def test_another_response_is_an_error(delivered: ChatChunk, repeated: ChatChunk) -> None:
    with pytest.raises(NotRepeatedError):
        new_parts([delivered], repeated)
