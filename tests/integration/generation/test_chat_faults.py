"""Kills while a language model responds with several choices, or in JSON, whole and with prefill and decode apart."""

from __future__ import annotations

from collections.abc import Generator as PyGenerator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cornserve.client import Client, StreamItem
from tests.chaos.report import FaultRecorder
from tests.integration.generation.faults import PARTS, FaultyInstance, Generator, GeneratorDeployment

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(300)]

QUESTION = {"messages": [{"role": "user", "content": "Describe a field of corn."}]}
CHOICES = QUESTION | {"n": 3, "seed": 7, "temperature": 1, "max_tokens": 120, "ignore_eos": True}
WORDS = {"type": "array", "items": {"enum": ["corn", "rice", "wheat"]}, "minItems": 24, "maxItems": 24}
JSON = QUESTION | {
    "temperature": 0,
    "max_tokens": 120,
    "response_format": {"type": "json_schema", "json_schema": {"name": "words", "strict": True, "schema": WORDS}},
}


@dataclass(frozen=True)
class TextGenerator(Generator):
    """An app that streams the text of one or more choices, in chunks of any size."""

    def open(self, client: Client) -> PyGenerator[Any, None, None]:
        """Yields an item for each token: after a chunk of several, which a busy engine sends, None for the others."""
        for event in super().open(client):
            yield event
            if isinstance(event, StreamItem):
                yield from [None] * (len(event.item.get("token_ids", ())) - 1)

    def items(self, items: Sequence[Any]) -> str:
        texts: dict[int, str] = {}
        for item in filter(None, items):
            index = item.item.get("index", 0)
            texts[index] = texts.get(index, "") + item.item["text"]
        return repr(sorted(texts.items()))

    def result(self, last: Any) -> str:
        choices: Sequence[Mapping[str, Any]] = [last.response, *last.response["further"]]
        return repr([(choice["text"], choice["finish_reason"]) for choice in choices])


WHOLE = [TextGenerator("choices", "tiny_llama", CHOICES), TextGenerator("json", "tiny_llama", JSON)]
APART = [TextGenerator("choices-apart", "tiny_llama", CHOICES), TextGenerator("json-apart", "tiny_llama", JSON)]
STAGES = [(app, "llm") for app in WHOLE] + [(app, stage) for app in APART for stage in ("prefill", "decode")]


@pytest.fixture(scope="module")
def instance(
    tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path, fork_variables: dict[str, str]
) -> Iterator[FaultyInstance]:
    options = ("--option", "max_model_len=1024", "--option", f"kv_cache_memory_bytes={64 << 20}")
    deployments = [
        *(GeneratorDeployment(app, tiny_llama, options) for app in WHOLE),
        *(GeneratorDeployment(app, tiny_llama, (*options, "--share", "p-d=1")) for app in APART),
    ]
    with FaultyInstance.running(tmp_path_factory.mktemp("faults") / "home", deployments, fork_variables) as instance:
        yield instance


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(("app", "stage"), STAGES)
def test_a_stage_killed_during_a_stream_leads_to_the_same_stream(
    instance: FaultyInstance, app: TextGenerator, stage: str, part: float, record_fault: FaultRecorder
) -> None:
    record_fault(instance.kill_during_stream(app, stage, part))
