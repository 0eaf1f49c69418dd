"""Fields of chats that have several valid forms."""

from __future__ import annotations

import pytest

from cornserve_tasklib.chat_request import ChatRequest

CHAT = {"messages": [{"role": "user", "content": "x"}]}


def test_both_names_of_the_token_limit_may_have_one_value() -> None:
    assert ChatRequest.model_validate(CHAT | {"max_tokens": 5, "max_completion_tokens": 5}).token_limit == 5


def test_minus_one_samples_from_all_tokens_as_zero_does() -> None:
    assert ChatRequest.model_validate(CHAT | {"top_k": -1}).top_k == 0


def test_empty_lists_of_tools_and_calls_count_as_omitted() -> None:
    answer = {"role": "assistant", "content": "y", "tool_calls": []}
    chat = ChatRequest.model_validate({"messages": [*CHAT["messages"], answer], "tools": []})

    assert chat.tools is None
    assert chat.messages[1].tool_calls is None


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_an_empty_list_of_tools_may_have_a_choice(choice: str) -> None:
    assert ChatRequest.model_validate(CHAT | {"tools": [], "tool_choice": choice}).tool_choice is None


def test_the_largest_reasoning_effort_has_two_names() -> None:
    assert ChatRequest.model_validate(CHAT | {"reasoning_effort": "max"}).reasoning_effort == "xhigh"


def test_unused_fields_of_messages_are_left_out_and_reasoning_is_kept() -> None:
    answer = {"role": "assistant", "content": "y", "id": "1", "reasoning": "z"}
    [message] = ChatRequest.model_validate({"messages": [answer]}).messages

    fields = {"role": "assistant", "content": "y", "reasoning_content": "z"}
    assert message.model_dump(exclude_defaults=True) == fields
