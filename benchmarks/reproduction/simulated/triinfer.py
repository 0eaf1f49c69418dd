"""TriInfer: role mixes on 8 GPUs [T Table 3, Figures 5, 6 and 10]."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from benchmarks.harness.planner.role_mixes import GPUS, WORKLOADS, MixRanks, RoleProblem, rank_mixes
from benchmarks.reproduction.markdown import prose, table

RANKED = (WORKLOADS[0], WORKLOADS[2])

TARGETS = ((0.5, 0.03), (2.0, 0.06))

REQUESTS = 200

RATIO_RATE = 0.5
"""The rate of Figure 5, relative to the highest rate of all mixes."""

PRINTED_GAIN = 3.9 / 2.6


def section() -> str:
    ranks = [*_ranks()]
    with TemporaryDirectory() as folder:
        problem = RoleProblem.of(Path(folder), WORKLOADS[0], 0.5, 0.03, 1000)
    best = max(problem.candidates, key=lambda each: each.bound).bound
    return prose("triinfer").format(
        requests=REQUESTS,
        ranks=table(
            ["workload", "TTFT", "TBT", "best mix", "requests/s", "rank of the heuristic", "even E + P + D"],
            map(_rank_row, ranks),
            text=1,
        ),
        mean=fmean(each.heuristic for each in ranks),
        worst=max(each.heuristic for each in ranks),
        gain=fmean(each.best / each.even for each in ranks if each.even),
        most=max(each.best / each.even for each in ranks if each.even),
        printed=PRINTED_GAIN,
        structures=_structures(ranks),
        rate=RATIO_RATE * best,
        ratios=table(["mix", "mean TTFT, s", "mean TBT, ms"], _ratio_rows(problem, RATIO_RATE * best)),
    )


def _ranks() -> Iterator[MixRanks]:
    for workload in RANKED:
        for ttft, tbt in TARGETS:
            with TemporaryDirectory() as folder:
                yield rank_mixes(Path(folder), workload, ttft, tbt, REQUESTS)


def _rank_row(found: MixRanks) -> list[object]:
    even = f"{found.even:.3g}" if found.even else "0"
    targets = f"{found.ttft:g} s", f"{1000 * found.tbt:g} ms"
    return [found.workload, *targets, found.best_mix, f"{found.best:.3g}", found.heuristic, even]


def _structures(ranks: list[MixRanks]) -> str:
    """Returns the separation that is best at each target of the time to the first token."""
    texts = []
    for ttft in dict.fromkeys(each.ttft for each in ranks):
        names = [_structure(each.best_mix) for each in ranks if each.ttft == ttft]
        counts = ", ".join(f"{name} in {names.count(name)} of {len(names)}" for name in sorted({*names}))
        texts.append(f"{ttft:g} s: {counts}")
    return "; ".join(texts)


def _structure(mix: str) -> str:
    return " + ".join(part.partition(" × ")[2] for part in mix.split(", "))


def _ratio_rows(problem: RoleProblem, rate: float) -> Iterator[list[object]]:
    for first, second in (("EP", "D"), ("ED", "P")):
        for number in (1, 2, 4, 6, 7):
            mix: Mapping[str, int] = {first: number, second: GPUS - number}
            ttft, tbt = problem.mean_latencies(mix, rate)
            yield [f"{number} {first} + {GPUS - number} {second}", f"{ttft:.2f}", f"{1000 * tbt:.0f}"]
