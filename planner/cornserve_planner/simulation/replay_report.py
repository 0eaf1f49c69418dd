"""The output of `cornserve simulate --replay`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from cornserve_planner.simulation.decision_replay import DifferentDecision, ReplayResult

SHOWN_REPLICAS = 8
"""The replicas whose loads are shown for a decision."""


def replay_document(result: ReplayResult) -> dict[str, Any]:
    """Returns the fields of `--json`."""
    return {
        "process": result.process,
        "decisions": dict(sorted(result.decisions.items())),
        "different": dict(sorted(result.different.items())),
        "differences": [asdict(each) for each in result.differences],
    }


def replay_report(result: ReplayResult) -> Group:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for name in ("decision", "logged", "repeated equally"):
        table.add_column(name, justify="left" if name == "decision" else "right")
    for event, count in sorted(result.decisions.items()):
        table.add_row(event, f"{count:,}", f"{count - result.different[event]:,}")
    return Group(table, *(_difference(each) for each in result.differences))


def _difference(difference: DifferentDecision) -> Text:
    request = f" of request {difference.request_id}" if difference.request_id else ""
    where = f"line {difference.line}, {difference.event}{request}"
    lines = [f"\n{where}: logged {_text(difference.logged)}, repeated {_text(difference.repeated)}"]
    replicas = difference.seen.get("replicas", ())
    for id, invocations, tokens, _ in replicas[:SHOWN_REPLICAS]:
        lines.append(f"  {id}: {invocations} invocations, {tokens} pending tokens")
    if len(replicas) > SHOWN_REPLICAS:
        lines.append(f"  and {len(replicas) - SHOWN_REPLICAS} more")
    return Text("\n".join(lines))


def _text(value: Any) -> str:
    return "nothing" if value is None else value if isinstance(value, str) else json.dumps(value)
