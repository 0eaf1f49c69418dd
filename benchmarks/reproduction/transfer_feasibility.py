"""Bytes that executors transfer, and the feasibility of a transfer over a link [H §4.1, §4.2].

The position of the cut determines the size: embeddings after an encoder, keys and values of all layers after a prefill.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cornserve_planner.errors import require_non_negative, require_positive
from cornserve_planner.profiles.architecture import DecoderShape

BYTES = 2
"""Bytes of a value in FP16 or BF16."""


def kv_cache_bytes(decoder: DecoderShape, context: int, bytes_per_value: float = BYTES) -> float:
    """Returns D_KV: the keys and values of a context, which a prefill sends to a decode [H Eq. 1].

    Args:
        context: text and media tokens.
    """
    require_positive("context", context)
    return decoder.kv_values_per_token * context * bytes_per_value


def embedding_bytes(hidden: int, tokens: int, bytes_per_value: float = BYTES) -> float:
    """Returns D_emb: the embeddings of a medium, which an encoder sends to a language model [H §4.1]."""
    require_positive("hidden", hidden)
    require_positive("tokens", tokens)
    return hidden * tokens * bytes_per_value


@dataclass(frozen=True, slots=True)
class TransferRatio:
    """The bytes of a cut between prefill and decode divided by those of a cut after the encoder [H Theorem 1].

    Args:
        vision_tokens: N_v.
        text_tokens: s_text. The context contains both.
    """

    decoder: DecoderShape
    vision_tokens: int
    text_tokens: int = 0

    def __post_init__(self) -> None:
        require_positive("vision_tokens", self.vision_tokens)
        require_non_negative("text_tokens", self.text_tokens)

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
        """R if every attention head had its own keys and values: 2 L (1 + s_text / N_v) [H Eq. 3]."""
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
        require_positive("bandwidth", self.bandwidth)
        require_non_negative("latency", self.latency)

    def seconds(self, size: float) -> float:
        return self.latency + size / self.bandwidth


@dataclass(frozen=True, slots=True)
class TransferFeasibility:
    """Feasibility of a transfer: its time must be short compared with the producer's time [H Eq. 4].

    Args:
        overhead: T_xfer / T_producer.
        limit: the maximum acceptable overhead.
        needed: the bandwidth at which the overhead equals the maximum; infinite if the link's latency alone exceeds it.
    """

    seconds: float
    overhead: float
    limit: float
    needed: float

    @property
    def feasible(self) -> bool:
        return self.overhead <= self.limit


def transfer_feasibility(
    link: NetworkLink, size: float, producer_seconds: float, limit: float = 0.1
) -> TransferFeasibility:
    """
    Args:
        size: bytes of one request.
        producer_seconds: seconds of the producer's time for the same request.
    """
    require_positive("size", size)
    require_positive("producer_seconds", producer_seconds)
    require_positive("limit", limit)
    seconds = link.seconds(size)
    left = limit * producer_seconds - link.latency
    return TransferFeasibility(seconds, seconds / producer_seconds, limit, size / left if left > 0 else math.inf)


PCIE_4 = NetworkLink("PCIe 4.0 x16", 25e9)
"""The link of [H §4.1]."""
