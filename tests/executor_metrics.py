"""Metrics of the executors of an instance."""

from __future__ import annotations

import re

import httpx2 as httpx


def executor_total(url: str, metric: str) -> float:
    """Returns the sum of a metric over all executors of the instance at `url`."""
    targets = httpx.get(f"{url}/admin/v1/metrics/targets").json()
    executors = [target for target in targets if target["labels"]["component"] == "executor"]
    return sum(sum_of(metric, f"http://{target['targets'][0]}/metrics") for target in executors)


def sum_of(metric: str, url: str) -> float:
    """Returns the sum of a metric, a name with or without labels, in the metrics at `url`."""
    return sum(map(float, re.findall(rf"^{re.escape(metric)} (\S+)$", httpx.get(url).text, re.MULTILINE)))
