#!/usr/bin/env python3
"""Compares one language model on two slots: whole on both, prefill and decode apart, and both mixed.

Streams with short prompts run all the time, and requests with long prompts and one token next to them. The whole model
runs with vLLM's default size of a prefill chunk, and with each given one. Prefill executors process prompts one after
the other, and in parts of each given size, between which short prompts are processed. All prompts are new.

Before the first measurement of `p-d`, one long prompt at a time shows the cost of the copies of its KV cache: from the
engine to shared memory, and from there to the other engine. For comparison, numpy copies the same number of bytes.

    benchmarks/prefill_decode.py ~/models/SmolLM2-135M-Instruct
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt

from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.report import create_table, print_report
from benchmarks.harness.slot_instance import SlotInstance
from cornserve.bench.percentiles import percentile
from cornserve.bench.statistics import RequestSample
from cornserve.bench.timed_client import TimedClient
from cornserve.client import Client, calls
from cornserve.client.address import GatewayAddress
from cornserve.client.calls import ApiCall

APP = "model"

STREAM_TOKENS = 64
"""The tokens of each response with a short prompt."""

KV_COPIES = 10
"""The long prompts whose KV caches are measured one by one."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A way to run the model.

    Args:
        options: of `cornserve deploy`.
    """

    name: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlacementRow:
    """The results of one round of a placement. All times are in milliseconds."""

    placement: str
    tbt_p50: float
    """The time between two tokens of the streams."""
    tbt_p99: float
    tbt_max: float
    """The pause of a stream while its executor processes a prompt. With few long prompts, P99 does not contain it."""
    ttft_p50: float
    """The time to the first token of the streams."""
    long_ttft_p50: float
    """The time to the token of a long prompt."""
    tokens_per_second: float
    """The tokens of the streams per second."""
    long_per_second: float
    """Long prompts per second."""


@dataclass(frozen=True, slots=True)
class KvCopyRow:
    """The copies of the KV caches of long prompts by one executor."""

    executor: str
    mib: float
    """The mean size of a KV cache."""
    milliseconds: float
    """The mean time of a copy."""
    memcpy_milliseconds: float
    """The median time in which numpy copies the same number of bytes."""


PREFILL_DECODE = Placement("p-d", ("--share", "p-d=1"))


def placements(options: argparse.Namespace) -> Iterator[Placement]:
    yield Placement("whole", ("--replicas", "2"))
    if options.quick:
        yield PREFILL_DECODE
        return
    chunks: list[int] = options.chunks
    for chunk in chunks:
        option = ("--option", f"max_num_batched_tokens={chunk}")
        yield Placement(f"whole, chunks of {chunk}", ("--replicas", "2", *option))
    yield PREFILL_DECODE
    yield Placement("p-d, late binding", ("--share", "p-d=1", "--late-binding"))
    for chunk in chunks:
        parts = ("--engine-arg", f"long_prefill_token_threshold={chunk}")
        yield Placement(f"p-d, long prompts in parts of {chunk}", ("--share", "p-d=1", *parts))
    yield Placement("p-d and pd", ("--share", "p-d=1", "--share", "pd=1"))


def chats(tokens: int, max_tokens: int, seed: int) -> Iterator[ApiCall]:
    """Yields streamed chats with a prompt of about `tokens` tokens, each with another text."""
    random = Random(seed)
    while True:
        text = " ".join(str(random.randrange(10)) for _ in range(tokens // 2))  # A digit and a space are two tokens.
        options = {"max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
        yield calls.chat(APP, [{"role": "user", "content": text}], options, None, stream=True)


async def measure(url: str, placement: str, options: argparse.Namespace, seed: int) -> PlacementRow:
    started = time.perf_counter()
    end = started + options.seconds
    async with TimedClient(GatewayAddress.resolve(url)) as client:
        streams, longs = await asyncio.gather(
            keep_in_flight(client, options.streams, chats(16, STREAM_TOKENS, seed), end),
            keep_in_flight(client, options.longs, chats(options.tokens, 1, seed + 1), end),
        )
    seconds = time.perf_counter() - started
    gaps = sorted(1000 * gap for sample in streams for gap in sample.gaps)
    return PlacementRow(
        placement=placement,
        tbt_p50=percentile(gaps, 50),
        tbt_p99=percentile(gaps, 99),
        tbt_max=gaps[-1],
        ttft_p50=percentile(_ttfts(streams), 50),
        long_ttft_p50=percentile(_ttfts(longs), 50),
        tokens_per_second=sum(sample.tokens for sample in streams) / seconds,
        long_per_second=len(longs) / seconds,
    )


async def keep_in_flight(client: TimedClient, number: int, chats: Iterator[ApiCall], end: float) -> list[RequestSample]:
    """Keeps that many requests in flight until `end`. Raises RuntimeError if one fails."""
    samples: list[RequestSample] = []

    async def send() -> None:
        while (now := time.perf_counter()) < end:
            samples.append(sample := RequestSample(now, now))
            await client.run(next(chats), sample)
            if sample.error is not None:
                raise RuntimeError(f"a request failed: {sample.reason or sample.error}")

    async with asyncio.TaskGroup() as senders:
        for _ in range(number):
            senders.create_task(send())
    return samples


def measure_kv_copies(client: Client, options: argparse.Namespace) -> list[KvCopyRow]:
    """Sends single long prompts to the new app, and measures the copies of their KV caches."""
    prompts = chats(options.tokens, 2, seed=options.rounds)
    asyncio.run(_send_one_by_one(client.url, [next(prompts) for _ in range(KV_COPIES)]))
    rows = []
    for copied in client.app(APP, memory=True).memory:
        nbytes, seconds = copied.kv_copied_bytes // copied.kv_copies, copied.kv_copy_seconds / copied.kv_copies
        rows.append(KvCopyRow(copied.id, nbytes / 2**20, 1000 * seconds, 1000 * memcpy_seconds(nbytes)))
    return rows


async def _send_one_by_one(url: str, chats: list[ApiCall]) -> None:
    async with TimedClient(GatewayAddress.resolve(url)) as client:
        for chat in chats:
            sample = RequestSample(now := time.perf_counter(), now)
            await client.run(chat, sample)
            if sample.error is not None:
                raise RuntimeError(f"a request failed: {sample.reason or sample.error}")


def memcpy_seconds(nbytes: int) -> float:
    source: npt.NDArray[np.uint8] = np.ones(nbytes, np.uint8)
    target = source.copy()
    samples = []
    for _ in range(KV_COPIES):
        started = time.perf_counter()
        np.copyto(target, source)
        samples.append(time.perf_counter() - started)
    return percentile(sorted(samples), 50)


def _ttfts(samples: list[RequestSample]) -> list[float]:
    return sorted(1000 * sample.ttft for sample in samples if sample.ttft is not None)


@contextmanager
def deployed(placement: Placement, instance: SlotInstance, options: argparse.Namespace) -> Iterator[None]:
    limits = ("--option", f"max_model_len={options.tokens + 256}", "--option", f"kv_cache_memory_bytes={256 << 20}")
    instance.cornserve("deploy", str(options.model), "--name", APP, *limits, *placement.options)
    try:
        yield
    finally:
        instance.cornserve("delete", APP)
        instance.wait_for_executors(0)


def main() -> None:
    options = _options()
    machine = MachineInfo.current()
    rows: list[PlacementRow] = []
    copies: list[KvCopyRow] = []
    with tempfile.TemporaryDirectory(prefix="cornserve-benchmark-") as directory:
        instance = SlotInstance(Path(directory) / "instance", 2)
        with instance.started() as client:
            for seed in range(options.rounds):
                for placement in placements(options):
                    with deployed(placement, instance, options):
                        if placement == PREFILL_DECODE and seed == 0:
                            copies = measure_kv_copies(client, options)
                        rows.append(asyncio.run(measure(client.url, placement.name, options, seed)))
    if options.json:
        found = {"rows": [asdict(row) for row in rows], "kv_copies": [asdict(row) for row in copies]}
        print(json.dumps({"machine": asdict(machine), **found}))
        return
    figures = ("TBT p50 ms", "p99", "max", "TTFT p50 ms", "of long prompts", "tokens/s", "long prompts/s")
    table = create_table(["placement"], figures)
    for row in rows:
        name, *numbers = asdict(row).values()
        table.add_row(name, *(f"{number:.1f}" for number in numbers))
    note = (
        f"{options.streams} streams of {STREAM_TOKENS} tokens next to {options.longs} prompts of {options.tokens} "
        f"tokens, {options.seconds:g} s each: {options.model.name}"
    )
    kv_table = create_table(["KV cache of a long prompt"], ("MiB", "copy, ms", "memcpy, ms", "÷"))
    for copy in copies:
        times = (copy.milliseconds, copy.memcpy_milliseconds, copy.milliseconds / copy.memcpy_milliseconds)
        kv_table.add_row(copy.executor, f"{copy.mib:.1f}", *(f"{number:.2f}" for number in times))
    print_report(machine, note, table, kv_table)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="directory of a language model")
    parser.add_argument("--streams", type=int, default=4, help="responses with short prompts in flight (default: 4)")
    parser.add_argument("--longs", type=int, default=1, help="long prompts in flight (default: 1)")
    parser.add_argument("--tokens", type=int, default=1500, help="about the tokens of a long prompt (default: 1500)")
    parser.add_argument("--seconds", type=float, default=30, help="duration of a measurement (default: 30)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--chunks", type=int, nargs="*", default=[256, 512], metavar="TOKENS", help="default: 256 512")
    parser.add_argument("--quick", action="store_true", help="run a minimal measurement")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.rounds, options.tokens = 2.0, 1, 400
    return options


if __name__ == "__main__":
    main()
