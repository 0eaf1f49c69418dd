"""Predicts what has not been measured, from FLOPs, bytes and the GPU's datasheet.

Every parameter costs two FLOPs at each position; attention costs 4 · hidden more for each pair of positions (queries
with keys, weights with values), of which a causal mask leaves half.

A piece of work takes as long as the slower of its arithmetic and its memory traffic, each at a fraction of the
datasheet's peak. It knows nothing of kernels, scheduling, preprocessing on the CPU or communication between GPUs, so it
is an estimate of what is possible rather than of what an implementation does: `accuracy` shows how far off it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.profiles.architecture import DecoderShape, DiffusionTransformerShape, EncoderShape
from cornserve_planner.profiles.gpus import Dtype, GpuDatasheet
from cornserve_planner.profiles.sourced_value import SourcedValue

ACTIVATIONS = 10
"""Values that a layer of an encoder or a diffusion transformer reads and writes for each position and hidden dimension:
a guess, since it depends on which kernels are fused. It matters only where arithmetic does not bind."""

_BYTES: dict[Dtype, float] = {"bf16": 2.0, "fp8": 1.0, "fp4": 0.5}


@dataclass(frozen=True, slots=True)
class RooflineEfficiency:
    """Which fractions of the datasheet's peaks are reached. The defaults are what well-tuned engines report, chosen
    before any comparison with measurements."""

    compute: float = 0.5
    bandwidth: float = 0.7

    def __post_init__(self) -> None:
        for name in ("compute", "bandwidth"):
            if not 0 < getattr(self, name) <= 1:
                raise InvalidInputError(
                    f"efficiency.{name}", f"must be above 0 and at most 1, not {getattr(self, name)}"
                )


@dataclass(frozen=True, slots=True)
class ComputeWork:
    """What one request costs, whatever computes it."""

    flops: float
    bytes: float
    """Read from and written to the GPU's memory."""

    def times(self, count: float) -> ComputeWork:
        return ComputeWork(self.flops * count, self.bytes * count)


@dataclass(frozen=True, slots=True)
class GpuMachine:
    """The GPUs of one replica: tensor parallelism without its communication."""

    gpu: GpuDatasheet
    count: int = 1
    dtype: Dtype = "bf16"
    efficiency: RooflineEfficiency = RooflineEfficiency()

    MEMORY_USED: ClassVar[float] = 0.9
    """Of a GPU's memory, by weights and cache: what engines take by default."""

    def seconds(self, work: ComputeWork) -> float:
        arithmetic = work.flops / (self.count * self.gpu.peak(self.dtype) * self.efficiency.compute)
        traffic = work.bytes / (self.count * self.gpu.bandwidth.value * self.efficiency.bandwidth)
        return max(arithmetic, traffic)

    def utilisation(self, work: ComputeWork, seconds: float) -> float:
        """Which fraction of the peak arithmetic a measurement implies: above 1 it cannot have been this work."""
        return work.flops / (seconds * self.count * self.gpu.peak(self.dtype))

    @property
    def bytes_per_value(self) -> float:
        return _BYTES[self.dtype]

    @property
    def memory(self) -> float:
        """Bytes for weights and cache."""
        return self.count * self.gpu.memory.value * self.MEMORY_USED


def encode(encoder: EncoderShape, tokens: float, batch: int = 8, bytes_per_value: float = 2) -> ComputeWork:
    """One medium, as one of a batch.

    Args:
        tokens: that come out of the encoder for it.
        batch: media that share one reading of the weights.
    """
    positions = tokens * encoder.positions_per_token
    windowed = encoder.layers - encoder.full_layers if encoder.block else 0
    attended = windowed * min(positions, encoder.block or positions) + (encoder.layers - windowed) * positions
    flops = 2 * encoder.parameters * positions + 4 * positions * attended * encoder.hidden
    activations = ACTIVATIONS * encoder.layers * positions * encoder.hidden
    return ComputeWork(flops, bytes_per_value * (encoder.parameters / batch + activations))


def prefill(decoder: DecoderShape, tokens: float, bytes_per_value: float = 2) -> ComputeWork:
    """One prompt, alone: a long one fills the GPU."""
    attention = 2 * decoder.layers * decoder.heads * decoder.head_dim * tokens**2  # causal: half of 4 · tokens²
    flops = 2 * decoder.active_parameters * tokens + attention
    return ComputeWork(flops, bytes_per_value * (decoder.parameters + tokens * decoder.kv_values_per_token))


def decode_step(decoder: DecoderShape, context: float, batch: float, bytes_per_value: float = 2) -> ComputeWork:
    """One token for each request of a batch, whose contexts have so many tokens."""
    read = _weights_read(decoder, batch) + batch * context * decoder.kv_values_per_token
    attention = 4 * decoder.layers * decoder.heads * decoder.head_dim * context
    head = decoder.vocabulary * decoder.hidden
    return ComputeWork(batch * (2 * (decoder.active_parameters + head) + attention), bytes_per_value * read)


def denoise(dit: DiffusionTransformerShape, positions: float, steps: int) -> ComputeWork:
    """All steps of one image or video, alone."""
    joint = positions if dit.cross_attention else positions + dit.prompt
    weights = 4 * dit.hidden**2 + 2 * dit.hidden * dit.intermediate + (2 * dit.hidden**2 if dit.cross_attention else 0)
    attended = positions + (dit.prompt if dit.cross_attention else 0)
    flops = dit.layers * (2 * weights * joint + 4 * joint * (attended if dit.cross_attention else joint) * dit.hidden)
    traffic = 2 * (dit.parameters + ACTIVATIONS * dit.layers * joint * dit.hidden)
    return ComputeWork(flops, traffic).times(steps * dit.passes)


def batch_limit(decoder: DecoderShape, context: float, machine: GpuMachine, most: int = 256) -> float:
    """Requests whose caches fit beside the weights, at most `most`. Raises `InvalidInputError` if the weights do not
    fit, or leave no room for one request."""
    weights = decoder.parameters * machine.bytes_per_value
    cache = context * decoder.kv_values_per_token * machine.bytes_per_value
    if weights + cache > machine.memory:
        raise InvalidInputError(
            "gpu",
            f"weights of {weights / 1e9:.1f} GB and a cache of {cache / 1e9:.1f} GB exceed "
            f"{machine.memory / 1e9:.1f} GB on {machine.count} GPUs",
        )
    return min(most, (machine.memory - weights) // cache)


def generate_seconds(decoder: DecoderShape, prompt: float, output: float, machine: GpuMachine) -> float:
    """Of a replica's time that a request takes, of a language model that batches as much as its memory allows."""
    each = machine.bytes_per_value
    return machine.seconds(prefill(decoder, prompt, each)) + decode_seconds(decoder, prompt, output, machine)


def decode_seconds(decoder: DecoderShape, prompt: float, output: float, machine: GpuMachine) -> float:
    context = prompt + output / 2
    batch = batch_limit(decoder, prompt + output, machine)
    step = machine.seconds(decode_step(decoder, context, batch, machine.bytes_per_value))
    return output * step / batch


def predicted_rate(seconds: float, machine: GpuMachine, what: str) -> SourcedValue:
    if not (math.isfinite(seconds) and seconds > 0):
        raise InvalidInputError("seconds", f"must be a number above 0, not {seconds}")
    used = machine.efficiency
    source = f"roofline of {what} at {used.compute:.0%} of peak FLOP/s and {used.bandwidth:.0%} of peak bandwidth"
    return SourcedValue(value=1 / seconds, unit="requests/s", tag="predicted", source=source)


def _weights_read(decoder: DecoderShape, batch: float) -> float:
    """Values; of experts, those that a batch is expected to touch."""
    if decoder.experts is None:
        return decoder.parameters - decoder.vocabulary * decoder.hidden
    untouched: float = (1 - decoder.experts.per_token / decoder.experts.count) ** batch
    all_experts = 3 * decoder.layers * decoder.hidden * decoder.experts.count * decoder.experts.intermediate
    rest = decoder.attention_parameters + decoder.vocabulary * decoder.hidden
    return rest + (1 - untouched) * all_experts
