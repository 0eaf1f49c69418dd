"""What is in a workload, in a few lines."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from cornserve_planner.workload.request import Request


def summary(requests: Sequence[Request]) -> str:
    if not requests:
        return "no requests"
    span = requests[-1].arrival - requests[0].arrival
    rate = f", {(len(requests) - 1) / span:.2f} a second" if span else ""
    lines = [
        ("requests", f"{len(requests)} in {span:.1f} s{rate}, of {len({it.client for it in requests})} clients"),
        (
            "text",
            f"{_mean(it.text_tokens for it in requests)} tokens in, {_mean(it.output_tokens for it in requests)} out",
        ),
    ]
    for name in ("images", "videos", "audios"):
        having = [request for request in requests if getattr(request, name)]
        if having:
            each = _mean(len(getattr(request, name)) for request in having)
            lines.append((name, f"in {len(having) / len(requests):.1%} of the requests, {each} each"))
    for modality in ("image", "video", "audio"):
        wanting = sum(modality in request.output_modalities for request in requests)
        if wanting:
            lines.append((f"{modality} out", f"of {wanting / len(requests):.1%} of the requests"))
    return "\n".join(f"{name:<12} {text}" for name, text in lines)


def _mean(values: Iterable[float]) -> str:
    return f"{statistics.fmean(values):.1f}"
