"""A deployed classifier answers at `/classify`."""

from __future__ import annotations

import httpx2 as httpx
import pytest

from tests.integration.serving.conftest import CommandLine
from tests.models.tiny_families import whole_model


@pytest.mark.families
def test_texts_have_probabilities_and_labels(cornserve: CommandLine) -> None:
    cornserve.json("deploy", str(whole_model("pooling", "bert_classifier")), "--name", "moods")
    with httpx.Client(base_url=cornserve.url, timeout=60) as client:
        response = client.post("/classify", json={"model": "moods", "input": ["What a day!", "It rains."]})
    assert cornserve.run("delete", "moods").returncode == 0

    assert response.status_code == 200, response.text
    for item in response.json()["data"]:
        assert item["num_classes"] == 3
        assert sum(item["probs"]) == pytest.approx(1)
        assert item["label"] == ["sad", "calm", "happy"][item["probs"].index(max(item["probs"]))]
    assert response.json()["usage"]["prompt_tokens"] == len("What a day!It rains.") + 2 * 2
