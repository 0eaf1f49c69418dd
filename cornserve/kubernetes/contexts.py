"""The names of the contexts in the kubeconfig. Reads the files without the Kubernetes client, which imports slowly."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def context_names() -> list[str]:
    """Returns the contexts in the files of `KUBECONFIG`, or else of the default file. Ignores unreadable files."""
    files = os.environ.get("KUBECONFIG") or "~/.kube/config"
    return sorted({name for file in files.split(os.pathsep) if file for name in _contexts(Path(file))})


def _contexts(path: Path) -> Iterator[str]:
    import yaml

    with suppress(OSError, RuntimeError, ValueError, TypeError, KeyError, yaml.YAMLError):
        for context in yaml.safe_load(path.expanduser().read_text())["contexts"]:
            yield str(context["name"])
