"""HeteroServe: idle encoder GPUs that decode, 1.13 times the throughput [H §6.5]."""

from __future__ import annotations

from benchmarks.reproduction.markdown import prose, table
from benchmarks.reproduction.published import PublishedFigures

BATCH, OUTPUT = 128, 128
"""Requests of [H Table 6], and their output tokens."""

DEAR, CHEAP = 2, 2
"""The numbers of A100 and RTX 4090."""

WITHOUT, WITH = 2793.0, 3156.0
"""Tokens/s without and with stealing [H §6.5]."""

SEQUENCES = (4, 8, 16)
"""Sequences that a GPU decodes at a time. Eight is half of the printed batch of 16."""

SPEEDS = (50.0, 70.0, 90.0)
"""Tokens/s of a sequence on an RTX 4090: 14 GB of weights at 1 TB/s are read 71 times per second."""


def section() -> str:
    phases = {entry.what: entry.figure.value for entry in PublishedFigures.shipped().from_paper("H", "Table 6")}
    language = phases["language prefill"] + phases["language decode"]
    encoding = phases["vision encoding"] / BATCH / OUTPUT
    rates = {entry.what: entry.figure.value for entry in PublishedFigures.shipped().from_paper("H", "Table 4")}
    one, two = rates["HeteroServe, one kind of GPU"], rates["HeteroServe, two kinds of GPUs"]
    return prose("stealing").format(
        without=WITHOUT,
        stolen=WITH,
        gain=WITH / WITHOUT,
        most=DEAR * BATCH * OUTPUT / language,
        busy=WITHOUT * encoding / CHEAP,
        gains=table(
            ["sequences", *(f"{speed:g} tokens/s" for speed in SPEEDS)],
            ([count, *(f"{_gain(count * speed, encoding):.3f}×" for speed in SPEEDS)] for count in SEQUENCES),
            text=0,
        ),
        share=_gain(8 * 70.0, encoding),
        delay=OUTPUT / 70.0,
        one=one / 64,
        two=two / 38,
        cheaper=(one / 64) / (two / 38) - 1,
        ratio=two / one,
    )


def _gain(speed: float, encoding: float) -> float:
    """Returns the throughput with stealing, relative to that without.

    The A100 serve the same tokens/s as without. The other GPUs encode the images of all requests, and decode in the
    time that is left: x = WITHOUT + speed * (CHEAP - x * encoding).

    Args:
        speed: tokens/s of a GPU that decodes.
        encoding: seconds of encoding per token of output.
    """
    return (WITHOUT + speed * CHEAP) / (1 + speed * encoding) / WITHOUT
