"""Closed-form conditions under which two GPU types cost less than one [H §4.3].

Encoders are limited by compute, language models by memory bandwidth, and the price of a GPU follows its memory. The
programs in `solve` find the optimal counts for any model; these formulas give a quick estimate.
"""

from __future__ import annotations

from dataclasses import dataclass

from cornserve_planner.errors import require_non_negative, require_positive


@dataclass(frozen=True, slots=True)
class RequestLatency:
    """Latency of a request by phase, in seconds [H Eq. 5]."""

    vision: float
    transfer: float
    prefill: float
    decode: float

    def __post_init__(self) -> None:
        for name in ("vision", "transfer", "prefill", "decode"):
            require_non_negative(name, getattr(self, name))

    @property
    def total(self) -> float:
        return self.vision + self.transfer + self.language

    @property
    def language(self) -> float:
        """T_lang, the time for prefill and decode."""
        return self.prefill + self.decode

    @property
    def vision_to_language(self) -> float:
        """ρ, the encoding time divided by the language time."""
        require_positive("language", self.language)
        return self.vision / self.language


def throughput(encoders: int, vision_seconds: float, language_models: int, language_seconds: float) -> float:
    """Returns requests per second: the rate of the slower pool [H Eq. 6]."""
    require_positive("vision_seconds", vision_seconds)
    require_positive("language_seconds", language_seconds)
    return min(encoders / vision_seconds, language_models / language_seconds)


def cost_ratio(vision_to_language: float, price_ratio: float) -> float:
    """Returns the cost of two GPU types divided by the cost of one, at equal throughput and balanced pools [H Eq. 7].

    Args:
        vision_to_language: ρ, seconds of encoding per second of language.
        price_ratio: γ, the price of the encoders' GPU divided by that of the language models' GPU.
    """
    require_non_negative("vision_to_language", vision_to_language)
    require_positive("price_ratio", price_ratio)
    return (vision_to_language * price_ratio + 1) / (vision_to_language + 1)


def cost_saving(vision_to_language: float, price_ratio: float) -> float:
    """Returns the saved fraction ρ (1 - γ) / (ρ + 1) [H Eq. 8]. Negative if the encoders' GPU costs more."""
    return 1 - cost_ratio(vision_to_language, price_ratio)
