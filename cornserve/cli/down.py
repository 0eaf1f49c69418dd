"""`cornserve down`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from cornserve.cli.console import Problem, emit, stderr, stdout
from cornserve.cli.options import HomePath, Json, home_at


def down(
    home: HomePath = None,
    keep_apps: Annotated[bool, typer.Option("--keep-apps", help="Keep the apps for the next `cornserve up`.")] = False,
    json: Json = False,
) -> None:
    """Delete all apps and stop Cornserve on this machine; also cleans up if it was killed."""
    from cornserve.control.shutdown import shut_down
    from cornserve.instance import HomeInUseError

    where = home_at(home)
    console = stderr()
    try:
        with console.status("Stopping Cornserve"):
            ended = shut_down(where, keep_apps=keep_apps, report=lambda line: console.print(line, style="dim"))
    except HomeInUseError as error:
        raise Problem(str(error)) from error
    except PermissionError as error:
        raise Problem(f"the instance belongs to another user: {error.strerror}") from error
    if json:
        emit(asdict(ended))
        return
    say = stdout().print
    say("Cornserve is stopped" if ended.instance else f"No Cornserve runs for {where.path}")
    if ended.apps:
        say(f"Deleted: {', '.join(ended.apps)}")
