#!/usr/bin/env python3
"""Measures generated images and spoken chats through the gateway: the time to the first output, compared with that to
the whole response, streamed or not; and the rate of concurrent requests, compared with one at a time. All sides take
turns in one run.

    benchmarks/generation.py --speaker OMNI --painter QWEN_IMAGE --concurrency 8
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from openai import OpenAI

from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.report import create_table, print_report
from benchmarks.harness.slot_instance import SlotInstance
from cornserve.client import Client

APPS = """
from cornserve import App
from cornserve_tasklib import GenerateImages, SpeakingChat

{name} = App(name={name!r}, paths=[{task}])
app = {name}
"""
TASKS = {"speaker": "SpeakingChat", "painter": "GenerateImages"}
SLOTS = 3
"""The executors of the speaker are a language model and a talker, that of the painter is one process."""


@dataclass(frozen=True, slots=True)
class FirstOutput:
    """The medians of all rounds, in ms."""

    first: float
    """The first samples, or the first step of the image."""
    text: float | None
    """The end of the text."""
    preview: float | None
    """The first preview of the image."""
    streamed: float
    """The end of the same response."""
    whole: float
    """The response without streaming."""


@dataclass(frozen=True, slots=True)
class Rates:
    """The medians of all rounds, in responses/s."""

    alone: float
    concurrent: float


@dataclass(frozen=True, slots=True)
class Load:
    """The requests of one app."""

    stream: Callable[[int], Iterator[str]]
    """Yields the kind of each part of a streamed response: `first`, `text`, `preview` or another one."""
    whole: Callable[[int], Any]


def main() -> None:
    arguments = _arguments()
    machine = MachineInfo.current()
    report: dict[str, Any] = {"machine": asdict(machine), "concurrency": arguments.concurrency}
    with tempfile.TemporaryDirectory() as directory:
        instance = SlotInstance(Path(directory) / "instance", SLOTS)
        with instance.started() as client:
            loads = _loads(client, arguments.tokens, arguments.steps)
            for name, model in {"speaker": arguments.speaker, "painter": arguments.painter}.items():
                if model is None:
                    continue
                load = loads[name]
                _deploy(instance, directory, name, f"{TASKS[name]}(model_id={str(model.resolve())!r})")
                load.whole(0)  # The first request connects the executors.
                report[name] = asdict(_first_output(load, arguments.rounds))
                report[name] |= asdict(_rates(load, arguments.concurrency, arguments.rounds))
    if arguments.json:
        print(json.dumps(report))
    else:
        _print(report, machine)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speaker", type=Path, help="the directory of a Qwen3-Omni")
    parser.add_argument("--painter", type=Path, help="the directory of a Qwen-Image")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=100, help="the tokens of a spoken response")
    parser.add_argument("--steps", type=int, default=20, help="the steps of an image")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="run a minimal measurement")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.speaker is None and arguments.painter is None:
        parser.error("give --speaker, --painter, or both")
    if arguments.quick:
        arguments.rounds, arguments.tokens, arguments.steps, arguments.concurrency = 1, 4, 4, 2
    return arguments


def _deploy(instance: SlotInstance, directory: str, name: str, task: str) -> None:
    source = Path(directory) / f"{name}.py"
    source.write_text(APPS.format(name=name, task=task))
    instance.cornserve("deploy", str(source))


def _loads(client: Client, tokens: int, steps: int) -> dict[str, Load]:
    openai = OpenAI(base_url=f"{client.url}/v1", api_key="none", max_retries=0, timeout=600)
    chat: dict[str, Any] = {
        "model": "speaker",
        "messages": [{"role": "user", "content": "What is corn?"}],
        "modalities": ["text", "audio"],
        "audio": {"voice": "ethan", "format": "pcm16"},
        "max_tokens": tokens,
        "extra_body": {"ignore_eos": True},
    }
    options: dict[str, Any] = {"num_inference_steps": steps, "size": "128x128"}

    def speak(seed: int) -> Iterator[str]:
        for chunk in openai.chat.completions.create(**chat, seed=seed, stream=True):
            audio = chunk.choices[0].delta.audio
            if audio is not None and (audio.data or audio.transcript):
                yield "first" if audio.data else "text"

    def paint(seed: int) -> Iterator[str]:
        for event in client.image_events("painter", "corn", seed=seed, partial_images=2, progress=True, **options):
            yield {"image_generation.progress": "first", "image_generation.partial_image": "preview"}.get(
                event["type"], "other"
            )

    return {
        "speaker": Load(speak, lambda seed: openai.chat.completions.create(**chat, seed=seed)),
        "painter": Load(paint, lambda seed: client.generate_images("painter", "corn", seed=seed, **options)),
    }


def _first_output(load: Load, rounds: int) -> FirstOutput:
    timings: list[dict[str, float]] = []
    for seed in range(rounds):
        timings.append(_timing(load, seed))
        started = time.perf_counter()
        load.whole(seed)
        timings[-1]["whole"] = 1000 * (time.perf_counter() - started)

    def of(kind: str) -> float | None:
        found = [timing[kind] for timing in timings if kind in timing]
        return median(found) if found else None

    first, streamed, whole = of("first"), of("streamed"), of("whole")
    assert first is not None
    assert streamed is not None
    assert whole is not None
    return FirstOutput(first, of("text"), of("preview"), streamed, whole)


def _timing(load: Load, seed: int) -> dict[str, float]:
    """Returns the ms until the first part of each kind, the last part of the text, and the end."""
    started = time.perf_counter()
    timing: dict[str, float] = {}
    for kind in load.stream(seed):
        elapsed = 1000 * (time.perf_counter() - started)
        if kind == "text":
            timing[kind] = elapsed
        else:
            timing.setdefault(kind, elapsed)
    return timing | {"streamed": 1000 * (time.perf_counter() - started)}


def _rates(load: Load, concurrency: int, rounds: int) -> Rates:
    alone, concurrent = [], []
    with ThreadPoolExecutor(concurrency) as pool:
        for _ in range(rounds):
            started = time.perf_counter()
            for seed in range(concurrency):
                load.whole(seed)
            alone.append(concurrency / (time.perf_counter() - started))
            started = time.perf_counter()
            list(pool.map(load.whole, range(concurrency)))
            concurrent.append(concurrency / (time.perf_counter() - started))
    return Rates(median(alone), median(concurrent))


def _print(report: dict[str, Any], machine: MachineInfo) -> None:
    names = [name for name in TASKS if name in report]
    table = create_table(("",), names)
    for figure in (*FirstOutput.__slots__, *Rates.__slots__):
        values = [report[name][figure] for name in names]
        table.add_row(figure, *("" if value is None else f"{value:.3g}" for value in values))
    print_report(machine, f"{report['concurrency']} concurrent requests", table)


if __name__ == "__main__":
    main()
