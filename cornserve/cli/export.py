"""`cornserve export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cornserve.cli.console import CliError, stderr, write_file
from cornserve.cli.gateway import open_client
from cornserve.cli.options import Url


def export(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write.")],
    store: Annotated[
        Path | None,
        typer.Option("--store", help="Read this store (state.db) of any version instead of calling the gateway."),
    ] = None,
    url: Url = None,
) -> None:
    """Write the specs of all apps to a file, for `cornserve import`."""
    from cornserve.control.local_instance.apps_file import AppsFileError, ExportedApps, read_apps_of_store

    if store is None:
        with open_client(ctx, url) as client:
            exported = ExportedApps.of_specs({app.name: app.spec for app in client.apps()})
    else:
        try:
            exported = read_apps_of_store(store)
        except AppsFileError as error:
            raise CliError(str(error)) from error
    write_file(file, exported.model_dump_json(indent=2).encode())
    count = len(exported.apps)
    stderr().print(f"{count} app{'' if count == 1 else 's'} written to {file}", markup=False)
