"""The components that a request needs, by which a plan classifies requests."""

from __future__ import annotations

from typing import Any

from cornserve.app.app import App
from cornserve.app.unused_fields import untracked
from cornserve.task.dry_record import DryRecording


def needed_components(app: App, request: Any, random_key: str, random_index: int) -> frozenset[str]:
    """Returns the components that a request needs on the app's first path, before a value arrives [C §4.1].

    Raises the errors of the task.

    Args:
        random_key: determines the random choices of the task.
        random_index: the index of its first random number.
    """
    dry = DryRecording(random_key, random_index, max_invocations=app.max_invocations)
    try:
        with untracked(request):
            dry.record(app.paths[0], request)
        return dry.needed_components
    finally:
        dry.close()
