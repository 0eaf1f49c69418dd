"""What the reference says of metrics."""

from __future__ import annotations

import re

from tests.integration.docs.pages import ROOT

Told = set[tuple[str, str, frozenset[str]]]
"""Name, type and labels."""


def metrics_told(heading: str) -> Told:
    text = (ROOT / "docs/reference/metrics.md").read_text()
    section = text[text.index(f"\n{heading}\n") + 1 :].partition("\n## ")[0]
    rows = re.findall(r"^\| `(cornserve_\w+)` \| (\w+) \|([^|]*)\|", section, re.MULTILINE)
    return {
        (name.removesuffix("_total"), type, frozenset(re.findall(r"`(\w+)`", labels))) for name, type, labels in rows
    }
