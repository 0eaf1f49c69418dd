"""What goes from one executor to the next, in bytes, and whether a link can carry it [H §4.1, §4.2].

Where a model is cut decides how much: behind an encoder its embeddings, behind a prefill keys and values of every
layer, behind a thinker its hidden states.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.profiles.architecture import DecoderShape

BYTES = 2
"""Of a value in FP16 or BF16."""


def kv_cache_bytes(decoder: DecoderShape, context: int, bytes_per_value: float = BYTES) -> float:
    """Keys and values of a context: D_KV [H Eq. 1]. What a prefill hands to a decode.

    Args:
        context: tokens of text and media.
    """
    _require("context", context)
    return decoder.kv_values_per_token * context * bytes_per_value


def embedding_bytes(hidden: int, tokens: int, bytes_per_value: float = BYTES) -> float:
    """Embeddings of a medium: D_emb [H §4.1]. What an encoder hands to a language model of that hidden dimension."""
    _require("hidden", hidden)
    _require("tokens", tokens)
    return hidden * tokens * bytes_per_value


def hidden_state_bytes(decoder: DecoderShape, tokens: int, states: int = 1, bytes_per_value: float = BYTES) -> float:
    """Hidden states of so many tokens. What a thinker hands to a talker.

    Args:
        states: per token: 1 for those of one layer, 2 for those and the token's embedding (as Qwen2.5-Omni's talker).
    """
    _require("tokens", tokens)
    return decoder.hidden * tokens * states * bytes_per_value


@dataclass(frozen=True, slots=True)
class TransferRatio:
    """How many times as much a cut between prefill and decode moves as one behind the encoder [H Theorem 1].

    Args:
        vision_tokens: N_v.
        text_tokens: s_text; the context has both.
    """

    decoder: DecoderShape
    vision_tokens: int
    text_tokens: int = 0

    def __post_init__(self) -> None:
        _require("vision_tokens", self.vision_tokens)
        if self.text_tokens < 0:
            raise InvalidInputError("text_tokens", f"must be at least 0, not {self.text_tokens}")

    @property
    def kv_bytes(self) -> float:
        return kv_cache_bytes(self.decoder, self.vision_tokens + self.text_tokens)

    @property
    def embedding_bytes(self) -> float:
        return embedding_bytes(self.decoder.hidden, self.vision_tokens)

    @property
    def value(self) -> float:
        """R with the model's own key-value heads [H Eq. 2]."""
        return self.kv_bytes / self.embedding_bytes

    @property
    def with_all_heads(self) -> float:
        """R if every head had keys and values of its own: 2 L (1 + s_text / N_v) [H Eq. 3]."""
        return 2 * self.decoder.layers * (1 + self.text_tokens / self.vision_tokens)


@dataclass(frozen=True, slots=True)
class NetworkLink:
    """
    Args:
        bandwidth: bytes per second, in one direction.
        latency: seconds until the first byte.
    """

    name: str
    bandwidth: float
    latency: float = 0.0

    def __post_init__(self) -> None:
        _require("bandwidth", self.bandwidth)
        if not (math.isfinite(self.latency) and self.latency >= 0):
            raise InvalidInputError("latency", f"must be a number of at least 0 seconds, not {self.latency}")

    def seconds(self, size: float) -> float:
        """For so many bytes."""
        return self.latency + size / self.bandwidth


@dataclass(frozen=True, slots=True)
class TransferFeasibility:
    """Whether a link carries what a producer makes: the transfer must be short beside the making [H Eq. 4].

    Args:
        overhead: T_xfer / T_producer.
        most: the overhead up to which a link will do.
        needed: bandwidth at which the overhead is just that; infinite if the link's latency alone is too long.
    """

    seconds: float
    overhead: float
    most: float
    needed: float

    @property
    def feasible(self) -> bool:
        return self.overhead <= self.most


def transfer_feasibility(
    link: NetworkLink, size: float, producer_seconds: float, most: float = 0.1
) -> TransferFeasibility:
    """
    Args:
        size: bytes of one request.
        producer_seconds: of the producer's time that the same request takes.
    """
    _require("size", size)
    _require("producer_seconds", producer_seconds)
    _require("most", most)
    seconds = link.seconds(size)
    left = most * producer_seconds - link.latency
    return TransferFeasibility(seconds, seconds / producer_seconds, most, size / left if left > 0 else math.inf)


def _require(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InvalidInputError(name, f"must be a number above 0, not {value}")


PCIE_4 = NetworkLink("PCIe 4.0 x16", 25e9)
"""As [H §4.1] counts it."""
