"""`cornserve doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from cornserve.cli.console import emit, stdout
from cornserve.cli.options import HomePath, Json, home_at


def doctor(
    home: HomePath = None,
    host: Annotated[str, typer.Option("--host", help="The address that `cornserve up` would listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", envvar="CORNSERVE_PORT", min=1, max=65535, help="And the port.")
    ] = 8000,
    json: Json = False,
) -> None:
    """Look whether this machine has what Cornserve needs, and say what to do where it has not."""
    from rich.text import Text

    from cornserve.cli.checks import examine

    findings = []
    for finding in examine(home_at(home), host, port):
        findings.append(finding)
        if not json:
            mark = ("✓", "green") if finding.ok else ("✗", "red" if finding.is_essential else "yellow")
            stdout().print(Text.assemble(mark, f" {finding.name:<10} ", (finding.found, "dim")))
            if not finding.ok:
                stdout().print(Text.assemble("  → ", finding.remedy))
    broken = [finding.name for finding in findings if finding.is_essential and not finding.ok]
    if json:
        emit({"ok": not broken, "checks": [finding._asdict() for finding in findings]})
    elif broken:
        stdout().print(f"\nCornserve cannot work here yet: {', '.join(broken)}")
    if broken:
        raise typer.Exit(1)
