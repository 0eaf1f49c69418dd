"""Bytes that a request sends along each edge of its path, for placement on nodes [C App. A].

They follow from the sizes of the model and the request. An encoder sends embeddings, a prefill sends the keys and
values of the prompt, and a language model sends its hidden states to a generator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.model.graph import Edge, ExecutorGraph, PathStep
from cornserve_planner.model.problem import RequestPath
from cornserve_planner.profiles.architecture import DecoderShape
from cornserve_planner.profiles.transfer_feasibility import embedding_bytes, hidden_state_bytes, kv_cache_bytes


@dataclass(frozen=True, slots=True)
class RequestTokens:
    """Token counts of a request that needs all components. Requests that skip an encoder lack its tokens.

    Args:
        media: tokens by encoder.
    """

    text: int
    output: int
    media: Mapping[str, int]

    def prompt(self, components: frozenset[str]) -> int:
        return self.text + sum(tokens for name, tokens in self.media.items() if name in components)


CORNSERVE_TABLE_1 = RequestTokens(1000, 100, {"image_encoder": 600, "video_encoder": 10_000, "audio_encoder": 200})
"""Token counts of [C Table 1, footnote 2]."""


@dataclass(frozen=True, slots=True)
class EdgeBytes:
    """Computes the bytes on each edge of a path. Callable as the `traffic` argument of `solve.placement`.

    Args:
        decoder: the language model. Its hidden dimension is also that of the embeddings.
        others: output bytes of other components, by name.
    """

    graph: ExecutorGraph
    decoder: DecoderShape
    tokens: RequestTokens
    others: Mapping[str, float] = field(default_factory=dict)

    def __call__(self, path: RequestPath) -> dict[Edge, float]:
        needed = frozenset(component for step in path.steps for component in step.role)
        owner = {component: step.option for step in path.steps for component in step.role}
        alone = tuple(PathStep(component, (component,)) for step in path.steps for component in step.role)
        outputs = {(producer, owner[consumer]) for producer, consumer in self.graph.transfers(alone)}
        found: dict[Edge, float] = {}
        for producer, consumer in sorted(outputs):
            if owner[producer] != consumer:
                edge = (owner[producer], consumer)
                found[edge] = found.get(edge, 0.0) + self._output(producer, needed)
        return found

    def _output(self, component: str, needed: frozenset[str]) -> float:
        prompt = self.tokens.prompt(needed)
        if component in self.others:
            return self.others[component]
        if component in self.tokens.media:
            return embedding_bytes(self.decoder.hidden, self.tokens.media[component])
        match component:
            case "prefill":
                return kv_cache_bytes(self.decoder, prompt)
            case "llm" | "decode":
                return hidden_state_bytes(self.decoder, prompt + self.tokens.output)
            case _:
                raise InvalidInputError(
                    f"components.{component}", "the size of its output is unknown: give its bytes in `others`"
                )
