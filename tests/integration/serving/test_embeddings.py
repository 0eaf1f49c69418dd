"""A deployed embedding model returns the vectors that transformers computes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import BadRequestError, OpenAI

from tests.integration.serving.conftest import CommandLine

TEXTS = ["one", "Ein etwas längerer Text", "three " * 30]


@pytest.fixture(scope="module")
def bert(cornserve: CommandLine, tiny_bert: Path) -> Iterator[str]:
    cornserve.json("deploy", str(tiny_bert), "--name", "bert")
    yield "bert"
    assert cornserve.run("delete", "bert").returncode == 0


@pytest.fixture(scope="module")
def expected(tiny_bert: Path) -> list[list[float]]:
    """The normalized last hidden state of the first token: vLLM's default pooling for BERT."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(tiny_bert), AutoModel.from_pretrained(tiny_bert).float().eval()
    with torch.no_grad():
        states = [model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0, 0] for text in TEXTS]
    return [(state / state.norm()).tolist() for state in states]


def test_the_length_of_the_vectors_may_be_stated(client: OpenAI, bert: str, expected: list[list[float]]) -> None:
    response = client.embeddings.create(model=bert, input=TEXTS[0], dimensions=len(expected[0]))

    assert response.data[0].embedding == pytest.approx(expected[0], abs=1e-4)


@pytest.mark.parametrize("format", ["float", "base64", None])
def test_vectors_have_the_order_of_the_texts(
    client: OpenAI, bert: str, expected: list[list[float]], format: str | None
) -> None:
    options = {} if format is None else {"encoding_format": format}
    response = client.embeddings.create(model=bert, input=TEXTS, **options)  # type: ignore[arg-type]

    assert [item.index for item in response.data] == [0, 1, 2]
    for item, vector in zip(response.data, expected, strict=True):
        embedding = as_list(item.embedding)
        assert embedding == pytest.approx(vector, abs=1e-4)
    assert response.usage.prompt_tokens == response.usage.total_tokens == sum(len(text.encode()) + 2 for text in TEXTS)


def as_list(embedding: list[float] | str) -> list[float]:
    """Decodes base64. The client decodes it only if it has set the encoding format itself."""
    import base64
    from array import array

    return array("f", base64.b64decode(embedding)).tolist() if isinstance(embedding, str) else embedding


def test_many_inputs_keep_their_order(client: OpenAI, bert: str) -> None:
    texts = [f"text {number}" for number in range(200)]

    together = client.embeddings.create(model=bert, input=texts).data

    assert together[150].embedding == pytest.approx(
        client.embeddings.create(model=bert, input=texts[150]).data[0].embedding, abs=1e-4
    )


def test_an_input_may_consist_of_token_ids(client: OpenAI, bert: str) -> None:
    # The token ids of printable characters begin with 0. Special tokens are not added to token ids.
    begin, end = 257, 258
    tokens = [begin, *[ord(letter) - ord("!") for letter in "one"], end]

    by_tokens, by_list = (client.embeddings.create(model=bert, input=given).data for given in (tokens, [tokens]))

    text = client.embeddings.create(model=bert, input="one").data[0].embedding
    assert by_tokens[0].embedding == pytest.approx(text, abs=1e-4)
    assert by_list[0].embedding == pytest.approx(text, abs=1e-4)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"input": "x", "dimensions": 8},
            r"the vectors of this model have \d+ elements and cannot be shortened",
        ),
        ({"input": "x" * 600}, "maximum context length is 512"),
        ({"input": "x" * 8_000_000}, "maximum context length is 512"),
        ({"input": ["x", [1]]}, r"input\[1\]"),
        ({"input": [99999]}, "99999|vocabulary"),
        ({"input": []}, "at least 1 item"),
        ({"input": ["x"] * 2049}, "at most 2048"),
        ({"input": "x", "encoding_format": "hex"}, "encoding_format"),
    ],
)
def test_an_invalid_request_is_rejected(client: OpenAI, bert: str, fields: dict[str, object], message: str) -> None:
    with pytest.raises(BadRequestError, match=message):
        client.embeddings.create(model=bert, **fields)  # type: ignore[arg-type]


def test_an_embedding_app_rejects_chats(client: OpenAI, bert: str) -> None:
    with pytest.raises(
        BadRequestError, match="does not support /v1/chat/completions: call it with POST /v1/embeddings"
    ):
        client.chat.completions.create(model=bert, messages=[{"role": "user", "content": "x"}])
