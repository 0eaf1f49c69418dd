"""Reads the tables of docs/reference/metrics.md."""

from __future__ import annotations

import re

from tests.integration.docs.pages import ROOT

DocumentedMetrics = set[tuple[str, str, frozenset[str]]]
"""Name, type and labels of each metric."""


def documented_metrics(heading: str) -> DocumentedMetrics:
    text = (ROOT / "docs/reference/metrics.md").read_text()
    section = text[text.index(f"\n{heading}\n") + 1 :].partition("\n## ")[0]
    rows = re.findall(r"^\| `(cornserve_\w+)` \| (\w+) \|([^|]*)\|", section, re.MULTILINE)
    return {
        (name.removesuffix("_total"), type, frozenset(re.findall(r"`(\w+)`", labels))) for name, type, labels in rows
    }
