"""Summarizes a workload in a few lines."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from cornserve_planner.requests.request import WorkloadRequest


def summarize_requests(requests: Sequence[WorkloadRequest]) -> str:
    if not requests:
        return "no requests"
    span = requests[-1].arrival - requests[0].arrival
    rate = f", {(len(requests) - 1) / span:.2f} per second" if span else ""
    clients = len({request.client for request in requests})
    text_in = _mean(request.text_tokens for request in requests)
    text_out = _mean(request.output_tokens for request in requests)
    lines = [
        ("requests", f"{len(requests)} in {span:.1f} s{rate}, from {clients} clients"),
        ("text", f"{text_in} tokens in, {text_out} out"),
    ]
    for name in ("images", "videos", "audios"):
        with_media = [request for request in requests if getattr(request, name)]
        if with_media:
            mean = _mean(len(getattr(request, name)) for request in with_media)
            lines.append((name, f"in {len(with_media) / len(requests):.1%} of the requests, {mean} each"))
    for modality in ("image", "video", "audio"):
        count = sum(modality in request.output_modalities for request in requests)
        if count:
            lines.append((f"{modality} out", f"for {count / len(requests):.1%} of the requests"))
    return "\n".join(f"{name:<12} {text}" for name, text in lines)


def _mean(values: Iterable[float]) -> str:
    return f"{statistics.fmean(values):.1f}"
