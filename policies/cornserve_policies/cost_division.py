"""Divides the time of executor groups among the apps that share them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping


def shares_of(group_apps: Iterable[str], used: Mapping[str, float]) -> dict[str, float]:
    """Returns the share of each app in a group. The shares add up to 1.

    An app has the share of the seconds that its invocations took. Apps share a group without invocations equally.

    Args:
        group_apps: the apps that need the group, at least one.
        used: seconds of the group's replicas by app. Apps that are not listed took no time.
    """
    apps = sorted({*group_apps, *used})
    total = math.fsum(used.values())
    return {app: used.get(app, 0.0) / total if total > 0 else 1 / len(apps) for app in apps}
