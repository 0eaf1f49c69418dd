"""Checks that apps share an encoder, by its metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import httpx2 as httpx

from cornserve_tasklib.media import Modality
from tests.integration.serving.conftest import CommandLine
from tests.integration.serving.image_chats import Part, sum_metric

MEDIA = 8
"""The media of a burst. Each app sends all of them."""


def encoder_users(cornserve: CommandLine, app: str) -> list[list[str]]:
    """Returns the apps that use each executor of encoders of the app."""
    targets = httpx.get(f"{cornserve.url}/admin/v1/metrics/targets").json()
    labels = [target["labels"] for target in targets if target["labels"].get("group", "").startswith("encoder")]
    users: list[list[str]] = [found["app"].split(",") for found in labels]
    return [apps for apps in users if app in apps]


def are_encoded_together(
    cornserve: CommandLine,
    apps: Sequence[str],
    modality: Modality,
    make_part: Callable[[int], Part],
    send: Callable[[str, Part], object],
) -> bool:
    """Returns whether media of several apps are encoded in common batches, and equal ones once.

    Media that arrive during a batch form the next one. Their number depends on the machine, so tries several times.

    Args:
        make_part: returns a different medium for each number.
        send: sends a request with a medium to an app.
    """

    def count(metric: str) -> float:
        return sum_metric(cornserve, apps[0], f'cornserve_encoder_{metric}{{modality="{modality}"}}')

    for burst in range(10):
        before = count("batch_items_count"), count("items_total")
        parts = [make_part(MEDIA * burst + number) for number in range(MEDIA)]
        requests = [(app, part) for part in parts for app in apps]
        with ThreadPoolExecutor(len(requests)) as pool:
            list(pool.map(lambda request: send(*request), requests))
        batches = count("batch_items_count") - before[0]
        assert count("items_total") - before[1] == MEDIA, "a medium that several apps send is encoded once"
        if batches < MEDIA:
            return True
    return False
