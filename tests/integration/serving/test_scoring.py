"""A deployed cross-encoder returns the scores that transformers computes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from tests.integration.serving.conftest import CommandLine

QUERY = "What is corn?"
DOCUMENTS = ["A cereal.", "Ein etwas längerer Text", "three " * 30, "No."]


@pytest.fixture(scope="module")
def reranker(cornserve: CommandLine, tiny_reranker: Path) -> Iterator[httpx.Client]:
    """A client of the gateway that serves the app `reranker`."""
    cornserve.json("deploy", str(tiny_reranker), "--name", "reranker")
    with httpx.Client(base_url=cornserve.url, timeout=60) as client:
        yield client
    assert cornserve.run("delete", "reranker").returncode == 0


class Reference:
    """The cross-encoder in transformers."""

    def __init__(self, model: Path) -> None:
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(model)
        self._model = AutoModelForSequenceClassification.from_pretrained(model).float().eval()

    def logit(self, query: str, document: str) -> float:
        import torch

        with torch.no_grad():
            logits: Any = self._model(**self._tokenizer(query, document, return_tensors="pt")).logits
        return float(logits)

    def score(self, query: str, document: str) -> float:
        import torch

        return float(torch.sigmoid(torch.tensor(self.logit(query, document))))


@pytest.fixture(scope="module")
def reference(tiny_reranker: Path) -> Reference:
    return Reference(tiny_reranker)


def post(client: httpx.Client, path: str, **fields: Any) -> Any:
    response = client.post(path, json={"model": "reranker"} | fields)
    assert response.status_code == 200, response.text
    return response.json()


def test_documents_are_sorted_by_their_scores(reranker: httpx.Client, reference: Reference) -> None:
    expected = [reference.score(QUERY, document) for document in DOCUMENTS]
    assert max(expected) - min(expected) > 0.1

    ranking = post(reranker, "/v1/rerank", query=QUERY, documents=DOCUMENTS)
    best = post(reranker, "/v1/rerank", query=QUERY, documents=DOCUMENTS, top_n=2)

    order = sorted(range(4), key=lambda index: -expected[index])
    assert [result["index"] for result in ranking["results"]] == order
    assert [result["document"]["text"] for result in ranking["results"]] == [DOCUMENTS[index] for index in order]
    assert [result["relevance_score"] for result in ranking["results"]] == pytest.approx(
        [expected[index] for index in order], abs=1e-4
    )
    assert ranking["usage"]["prompt_tokens"] == sum(len((QUERY + text).encode()) + 3 for text in DOCUMENTS)
    assert [result["index"] for result in best["results"]] == order[:2]


def test_pairs_have_the_scores_of_transformers(reranker: httpx.Client, reference: Reference) -> None:
    one = post(reranker, "/v1/score", text_1=QUERY, text_2=DOCUMENTS)
    each = post(reranker, "/v1/score", queries=DOCUMENTS, documents=DOCUMENTS[::-1], use_activation=False)

    assert [item["index"] for item in one["data"]] == [0, 1, 2, 3]
    assert scores(one) == pytest.approx([reference.score(QUERY, text) for text in DOCUMENTS], abs=1e-4)
    expected = [reference.logit(*pair) for pair in zip(DOCUMENTS, DOCUMENTS[::-1], strict=True)]
    assert scores(each) == pytest.approx(expected, abs=1e-3)


def test_documents_may_be_empty(reranker: httpx.Client, reference: Reference) -> None:
    response = post(reranker, "/v1/score", text_1=QUERY, text_2=["A cereal.", ""])

    assert scores(response) == pytest.approx([reference.score(QUERY, text) for text in ("A cereal.", "")], abs=1e-4)


def test_texts_are_truncated(reranker: httpx.Client, reference: Reference) -> None:
    long = "x" * 1000
    pair = post(reranker, "/v1/score", queries=QUERY, items=long, truncate_prompt_tokens=100)
    query = post(reranker, "/v1/score", queries=long, documents="No.", max_tokens_per_query=7)
    document = post(reranker, "/v1/score", queries=QUERY, documents=long, max_tokens_per_doc=5)

    assert pair["usage"]["total_tokens"] == 100
    assert scores(query) == pytest.approx([reference.score("x" * 7, "No.")], abs=1e-4)
    assert scores(document) == pytest.approx([reference.score(QUERY, "x" * 5)], abs=1e-4)


@pytest.mark.parametrize(
    ("path", "fields", "message"),
    [
        ("/v1/rerank", {"query": "x" * 600, "documents": ["x"]}, "maximum context length is 512"),
        ("/v1/rerank", {"query": "x", "documents": ["x"], "max_tokens_per_doc": 512}, "not below the context length"),
        (
            "/v1/score",
            {"queries": "x", "documents": ["x"], "truncate_prompt_tokens": 513},
            "exceeds the context length",
        ),
        ("/v1/score", {"queries": "x" * 20_000, "documents": ["x" * 100] * 2048}, "send at most 32000000"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}, "call it with POST /v1/rerank"),
    ],
)
def test_an_invalid_request_is_rejected(
    reranker: httpx.Client, path: str, fields: dict[str, Any], message: str
) -> None:
    response = reranker.post(path, json={"model": "reranker"} | fields)

    assert response.status_code == 400
    assert message in response.json()["error"]["message"]


def scores(response: Any) -> list[float]:
    return [item["score"] for item in response["data"]]
