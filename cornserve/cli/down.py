"""`cornserve down`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from cornserve.cli.console import CliError, print_json, stderr, stdout
from cornserve.cli.options import HomePath, Json, home_directory


def down(
    home: HomePath = None,
    keep_apps: Annotated[bool, typer.Option("--keep-apps", help="Keep the apps for the next `cornserve up`.")] = False,
    json: Json = False,
) -> None:
    """Delete all apps and stop Cornserve on this machine. Also cleans up after a killed instance."""
    from cornserve.control.local_instance.shutdown import shut_down
    from cornserve.control.store.base import StoreError
    from cornserve.instance import HomeInUseError

    directory = home_directory(home)
    console = stderr()

    def report(line: str) -> None:
        console.print(line, markup=False, style="dim")

    try:
        with console.status("Stopping Cornserve"):
            ended = shut_down(directory, keep_apps=keep_apps, report=report)
    except HomeInUseError as error:
        raise CliError(f"{error}: wait until the other command has ended, and retry") from error
    except PermissionError as error:
        raise CliError(
            f"cannot stop the instance in {directory.path}: {error.strerror}: run the command as its user"
        ) from error
    except StoreError as error:
        raise CliError(f"all processes have stopped, but the apps are not deleted: {error}") from error
    except OSError as error:
        raise CliError(
            f"all processes have stopped, but the files in {directory.path} remain: {error.strerror}: make it "
            "writable, and run `cornserve down` again"
        ) from error
    if json:
        print_json(asdict(ended))
        return
    done = "Cornserve stopped" if ended.instance else f"No instance of Cornserve runs for {directory.path}"
    stdout().print(done, markup=False)
    if ended.apps:
        stdout().print(f"Deleted: {', '.join(ended.apps)}")
