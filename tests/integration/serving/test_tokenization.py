"""`/tokenize` and `/detokenize` of a real model, compared with its tokenizer in transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.serving.conftest import CommandLine

QUESTION = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is maize?"}]
TEXT = "Maize, also known as corn, is a tall grass. 🌽"


@pytest.fixture(scope="module")
def tokenizer(smollm2: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(smollm2)


def post(cornserve: CommandLine, path: str, body: dict[str, Any], status: int = 200) -> Any:
    response = httpx.post(f"{cornserve.url}{path}", json=body, timeout=60)
    assert response.status_code == status, response.text
    return response.json()


def test_the_tokens_of_a_text_are_those_of_its_tokenizer(cornserve: CommandLine, model: str, tokenizer: Any) -> None:
    expected = tokenizer(TEXT)["input_ids"]

    assert post(cornserve, "/tokenize", {"model": model, "prompt": TEXT}) == {
        "count": len(expected),
        "max_model_len": 8192,
        "tokens": expected,
    }
    assert post(cornserve, "/detokenize", {"model": model, "tokens": expected}) == {"prompt": TEXT}


def test_the_tokens_of_a_chat_are_those_of_the_template(cornserve: CommandLine, model: str, tokenizer: Any) -> None:
    for add in (True, False):
        expected = tokenizer.apply_chat_template(QUESTION, add_generation_prompt=add, return_dict=False)
        chat = {"model": model, "messages": QUESTION, "add_generation_prompt": add}
        assert post(cornserve, "/tokenize", chat)["tokens"] == expected
        text = post(cornserve, "/detokenize", {"model": model, "tokens": expected})["prompt"]
        assert text == tokenizer.decode(expected)


def test_the_body_of_a_chat_completion_can_be_tokenized(cornserve: CommandLine, model: str) -> None:
    chat = {"model": model, "messages": QUESTION}
    options = {"max_tokens": 5, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}

    assert post(cornserve, "/tokenize", {**chat, **options}) == post(cornserve, "/tokenize", chat)


def test_the_count_is_that_of_the_usage(cornserve: CommandLine, model: str) -> None:
    chat = {"model": model, "messages": QUESTION}
    completion = post(cornserve, "/v1/chat/completions", {**chat, "max_tokens": 1})

    assert post(cornserve, "/tokenize", chat)["count"] == completion["usage"]["prompt_tokens"]


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": ""}, "prompt"),
        ("/tokenize", {"prompt": "a", "return_token_strs": True}, "return_token_strs"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"messages": QUESTION, "chat_template": "{{ x }}"}, "chat_template"),
        ("/tokenize", {"prompt": "corn " * 40_000}, "context length"),
        ("/detokenize", {"tokens": []}, "tokens"),
        ("/detokenize", {"tokens": [10_000_000]}, "tokens"),
        ("/v1/chat/completions", {"messages": QUESTION, "prompt_only": True}, "use /tokenize"),
    ],
)
def test_an_invalid_request_is_rejected(
    cornserve: CommandLine, model: str, path: str, body: dict[str, Any], message: str
) -> None:
    error = post(cornserve, path, {"model": model, **body}, status=400)["error"]

    assert message in error["message"], error


def test_an_unknown_app_is_not_found(cornserve: CommandLine) -> None:
    post(cornserve, "/tokenize", {"model": "absent", "prompt": "a"}, status=404)
