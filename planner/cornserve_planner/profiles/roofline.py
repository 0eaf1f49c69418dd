"""Predicts performance from FLOPs, bytes and the GPU's datasheet.

Every parameter costs two FLOPs for each position. Attention costs 4 · hidden more for each pair of positions (queries
with keys, weights with values); a causal mask halves the number of pairs.

The time of a computation is the larger of its compute time and its memory time, each at a fraction of the datasheet's
peak. The model ignores kernels, scheduling, CPU preprocessing and communication between GPUs, so it estimates the
possible and not the actual performance. `benchmarks/reproduction/accuracy.py` measures the difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cornserve_planner.errors import InvalidInputError, require_positive
from cornserve_planner.profiles.architecture import DecoderShape, DiffusionTransformerShape, EncoderShape
from cornserve_planner.profiles.gpus import Dtype, GpuDatasheet
from cornserve_planner.profiles.sourced_value import SourcedValue

ACTIVATIONS = 10
"""Values that a layer of an encoder or a diffusion transformer reads and writes for each position and hidden dimension.

This is an estimate, because it depends on kernel fusion. It matters only if compute is not the limit.
"""

_BYTES: dict[Dtype, float] = {"bf16": 2.0, "fp8": 1.0, "fp4": 0.5}


@dataclass(frozen=True, slots=True)
class RooflineEfficiency:
    """Fractions of the datasheet's peaks. The defaults are typical of well-tuned engines and were chosen before any
    comparison."""

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
    """The cost of one request, independent of the hardware."""

    flops: float
    bytes: float
    """Bytes read from and written to GPU memory."""

    def times(self, count: float) -> ComputeWork:
        return ComputeWork(self.flops * count, self.bytes * count)


@dataclass(frozen=True, slots=True)
class GpuMachine:
    """The GPUs of one replica: tensor parallelism without communication."""

    gpu: GpuDatasheet
    count: int = 1
    dtype: Dtype = "bf16"
    efficiency: RooflineEfficiency = RooflineEfficiency()

    MEMORY_USED: ClassVar[float] = 0.9
    """Fraction of GPU memory for weights and cache, the default of common engines."""

    def seconds(self, work: ComputeWork) -> float:
        arithmetic = work.flops / (self.count * self.gpu.peak(self.dtype) * self.efficiency.compute)
        traffic = work.bytes / (self.count * self.gpu.memory_speed() * self.efficiency.bandwidth)
        return max(arithmetic, traffic)

    def utilization(self, work: ComputeWork, seconds: float) -> float:
        """Returns the fraction of the peak FLOP/s that a measurement implies. Above 1, the measurement is of different
        work."""
        return work.flops / (seconds * self.count * self.gpu.peak(self.dtype))

    @property
    def bytes_per_value(self) -> float:
        return _BYTES[self.dtype]

    @property
    def memory(self) -> float:
        """Bytes for weights and cache."""
        return self.count * self.gpu.memory.value * self.MEMORY_USED


def encode(encoder: EncoderShape, tokens: float, batch: int = 8, bytes_per_value: float = 2) -> ComputeWork:
    """Returns the work of one medium in a batch.

    Args:
        tokens: tokens that the encoder produces for the medium.
        batch: media that share one read of the weights.
    """
    positions = tokens * encoder.positions_per_token
    windowed = encoder.layers - encoder.full_layers if encoder.block else 0
    attended = windowed * min(positions, encoder.block or positions) + (encoder.layers - windowed) * positions
    flops = 2 * encoder.parameters * positions + 4 * positions * attended * encoder.hidden
    activations = ACTIVATIONS * encoder.layers * positions * encoder.hidden
    return ComputeWork(flops, bytes_per_value * (encoder.parameters / batch + activations))


def prefill(decoder: DecoderShape, tokens: float, bytes_per_value: float = 2) -> ComputeWork:
    """Returns the work of one prompt without batching, because a long prompt saturates the GPU."""
    attention = 2 * decoder.layers * decoder.heads * decoder.head_dim * tokens**2  # causal: half of 4 · tokens²
    flops = 2 * decoder.active_parameters * tokens + attention
    return ComputeWork(flops, bytes_per_value * (decoder.parameters + tokens * decoder.kv_values_per_token))


def decode_step(decoder: DecoderShape, context: float, batch: float, bytes_per_value: float = 2) -> ComputeWork:
    """Returns the work of one output token for each request of a batch.

    Args:
        context: tokens of each request.
    """
    read = _weights_read(decoder, batch) + batch * context * decoder.kv_values_per_token
    attention = 4 * decoder.layers * decoder.heads * decoder.head_dim * context
    head = decoder.vocabulary * decoder.hidden
    return ComputeWork(batch * (2 * (decoder.active_parameters + head) + attention), bytes_per_value * read)


def denoise(dit: DiffusionTransformerShape, positions: float, steps: int) -> ComputeWork:
    """Returns the work of all steps of one image or video, without batching."""
    joint = positions if dit.cross_attention else positions + dit.prompt
    weights = 4 * dit.hidden**2 + 2 * dit.hidden * dit.intermediate + (2 * dit.hidden**2 if dit.cross_attention else 0)
    attended = positions + (dit.prompt if dit.cross_attention else 0)
    flops = dit.layers * (2 * weights * joint + 4 * joint * (attended if dit.cross_attention else joint) * dit.hidden)
    traffic = 2 * (dit.parameters + ACTIVATIONS * dit.layers * joint * dit.hidden)
    return ComputeWork(flops, traffic).times(steps * dit.passes)


def batch_limit(decoder: DecoderShape, context: float, machine: GpuMachine, most: int = 256) -> float:
    """Returns the number of requests whose caches fit next to the weights, at most `most`.

    Raises `InvalidInputError` if the weights and the cache of one request do not fit.
    """
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
    """Returns the seconds of a replica's time for one request, with the largest batch that fits in memory."""
    each = machine.bytes_per_value
    return machine.seconds(prefill(decoder, prompt, each)) + decode_seconds(decoder, prompt, output, machine)


def decode_seconds(decoder: DecoderShape, prompt: float, output: float, machine: GpuMachine) -> float:
    context = prompt + output / 2
    batch = batch_limit(decoder, prompt + output, machine)
    step = machine.seconds(decode_step(decoder, context, batch, machine.bytes_per_value))
    return output * step / batch


def predicted_rate(seconds: float, machine: GpuMachine, what: str) -> SourcedValue:
    require_positive("seconds", seconds)
    used = machine.efficiency
    source = f"roofline of {what} at {used.compute:.0%} of peak FLOP/s and {used.bandwidth:.0%} of peak bandwidth"
    return SourcedValue(value=1 / seconds, unit="requests/s", tag="predicted", source=source)


def _weights_read(decoder: DecoderShape, batch: float) -> float:
    """Returns the weights that a decode step reads, including the expected number of active experts."""
    if decoder.experts is None:
        return decoder.parameters - decoder.vocabulary * decoder.hidden
    untouched: float = (1 - decoder.experts.per_token / decoder.experts.count) ** batch
    all_experts = 3 * decoder.layers * decoder.hidden * decoder.experts.count * decoder.experts.intermediate
    rest = decoder.attention_parameters + decoder.vocabulary * decoder.hidden
    return rest + (1 - untouched) * all_experts
