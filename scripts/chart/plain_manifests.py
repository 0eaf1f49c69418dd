"""Renders the manifests for `kubectl apply` from the charts."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from scripts.cluster.programs import ROOT, program

CHARTS = ROOT / "helm"
NAMESPACE = "cornserve"
HEADER = "# Generated from helm/{chart} by `make manifests`.\n"
_ABOUT_HELM = re.compile(r"^ *(# Source: .*|helm\.sh/chart: .*|app\.kubernetes\.io/managed-by: Helm)\n", re.MULTILINE)
_EMPTY_LINE = re.compile(r"^ *\n", re.MULTILINE)


def plain_manifests(chart: Path) -> str:
    """Returns the manifests of a chart in the namespace `cornserve`, without Helm's labels."""
    command = [str(program("helm")), "template", "cornserve", str(chart), f"--namespace={NAMESPACE}", "--skip-tests"]
    rendered = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return HEADER.format(chart=chart.name) + _EMPTY_LINE.sub("", _ABOUT_HELM.sub("", rendered))
