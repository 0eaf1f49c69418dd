"""`cornserve import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cornserve.cli.console import CliError, print_error, stdout
from cornserve.cli.gateway import open_client
from cornserve.cli.options import Url


def import_apps(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File of `cornserve export`.")],
    url: Url = None,
) -> None:
    """Deploy the apps of a file. Does not wait until they serve: see `cornserve status`.

    Apps with the same names are deployed again. An app that is refused does not stop the others.
    """
    from pydantic import ValidationError

    from cornserve.app.spec import AppSpec
    from cornserve.client import ClientError
    from cornserve.control.local_instance.apps_file import AppsFileError, read_apps_file
    from cornserve.validation_errors import describe_all

    try:
        exported = read_apps_file(file)
    except AppsFileError as error:
        raise CliError(str(error)) from error
    refused = False
    with open_client(ctx, url) as client:
        for name, document in exported.apps.items():
            try:
                client.deploy(AppSpec.model_validate(document), name=name, wait=False)
            except ValidationError as error:
                print_error(f"{name}: {describe_all(error.errors())}")
                refused = True
            except ClientError as error:
                print_error(f"{name}: {error}")
                refused = True
            else:
                stdout().print(f"{name} deployed", markup=False)
    if refused:
        raise typer.Exit(1)
